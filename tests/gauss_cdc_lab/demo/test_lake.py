"""What a lake was given, counted by its files."""

from gauss_cdc_lab.demo.lake import writes


def test_the_newest_commits_of_both_kinds_are_counted(tmp_path):
    for name in (
        "public/a/_delta_log/00000000000000000002.json",
        "public/a/_delta_log/00000000000000000003.json",
        "public/a/_delta_log/00000000000000000003.crc",
        "public/b/metadata/v7.metadata.json",
        "gauss_cdc/watermark_bank/metadata/v9.metadata.json",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    assert writes(str(tmp_path)) == 3 + 7
    assert writes(str(tmp_path / "nothing")) == 0
