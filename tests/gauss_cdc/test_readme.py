"""The README is the product's face; its tables are tested with those of all documents."""

from gauss_cdc_lab import reference


def test_the_readme_is_the_products_face() -> None:
    assert len((reference.ROOT / "README.md").read_text("utf-8").splitlines()) <= 180


def test_the_readme_has_no_stale_table() -> None:
    text = (reference.ROOT / "README.md").read_text("utf-8")

    assert reference.filled(text) == text
