"""Where the packages lie: the product's at the root, two in distributions of their own."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("schemas", "producer", "spark_consumers", "gauss_cdc")
LABORATORY = "gauss_cdc_lab"
READER = "gauss_cdc_reader"
PACKAGES = (*PRODUCT, LABORATORY, READER)
_APART = {LABORATORY: "lab", READER: "reader"}


def folder(package: str) -> Path:
    return ROOT / _APART.get(package, "") / package


def modules(*packages: str) -> Iterator[tuple[str, Path]]:
    """Names of modules, as they are imported, and their files."""
    for package in packages:
        root = folder(package).parent
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path
