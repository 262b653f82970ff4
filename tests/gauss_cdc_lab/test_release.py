import io
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest

from gauss_cdc_lab import release


def packed(path: Path, **members: int) -> Path:
    """An archive of empty files, with the times that they have."""
    with tarfile.open(path, "w:gz") as archive:
        for name, at in members.items():
            member = tarfile.TarInfo(name)
            member.mtime, member.uid, member.uname = at, at, f"user{at}"
            archive.addfile(member, io.BytesIO())
    return path


def test_an_archive_depends_neither_on_the_clock_nor_on_who_packs_it(tmp_path: Path) -> None:
    first = packed(tmp_path / "first.tar.gz", a=1, b=2)
    second = packed(tmp_path / "second.tar.gz", b=3, a=4)

    for path in (first, second):
        release.settle(path, 5)

    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert [(one.name, one.mtime, one.uid) for one in archive] == [("a", 5, 0), ("b", 5, 0)]


def test_the_compiler_does_what_it_does_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-O1")

    flags = release.compiling()["CFLAGS"].split()

    assert flags == [*sysconfig.get_config_var("CFLAGS").split(), "-O1", "-g0"]


def test_builds_differ_in_what_one_lacks_and_in_what_both_have_differently(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, own in ((one, "alone"), (other, "lonely")):
        folder.mkdir()
        for name, text in (("same", ""), ("wheel", own), (own, "")):
            (folder / name).write_text(text)

    assert release.differing(one, other) == ["alone", "lonely", "wheel"]


def test_the_sums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a wheel.whl").write_bytes(b"bytes")
    (tmp_path / "SHA256SUMS").write_text(release.sums(tmp_path))

    check = ("sha256sum", "--check", "--strict", "SHA256SUMS")
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "a wheel.whl").write_bytes(b"others")
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 1


def test_each_part_has_the_licence_that_its_metadata_tell() -> None:
    parts = [
        {"name": "gauss-cdc-lab", "version": "1"},
        {"name": "a", "version": "1", "licenses": [{"expression": "MIT OR 0BSD"}]},
        {"name": "b", "version": "2", "licenses": [{"license": {"id": "MIT"}}]},
        {
            "name": "c",
            "version": "3",
            "licenses": [{"license": {"name": "License :: OSI Approved :: BSD License"}}],
        },
        {"name": "d", "version": "4", "licenses": [{"license": {"name": "A title\n\nits text"}}]},
        {"name": "e", "version": "5"},
    ]

    assert [*release.licences({"components": parts})] == [
        ("a", "1", "MIT OR 0BSD"),
        ("b", "2", "MIT"),
        ("c", "3", "BSD License"),
        ("d", "4", "A title"),
        ("e", "5", "not known"),
    ]


@pytest.mark.parametrize(
    ("licence", "asks"),
    [
        ("MIT", False),
        ("MPL-2.0", False),
        ("LGPL-3.0-or-later", False),
        ("GNU Library or Lesser General Public License (LGPL)", False),
        ("GPL-2.0-only", True),
        ("MIT; AGPL-3.0-only", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("GNU Affero General Public License v3", True),
        ("SSPL-1.0", True),
        ("not known", True),
    ],
)
def test_unknown_licences_and_strong_copyleft_ask_for_a_look(licence: str, *, asks: bool) -> None:
    assert release.asks_for_a_look(licence) == asks


def test_a_tree_with_changes_makes_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "new.py").touch()

    with pytest.raises(SystemExit, match=r"(?s)new\.py.*commit these files"):
        release.export(tmp_path / "tree")
