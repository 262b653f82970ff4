"""The documents: links lead somewhere."""

import re
from pathlib import Path

import pytest

from gauss_cdc.reference import ROOT, documents

_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
DOCUMENTS = documents()


def prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """Names of a document's headings, as hosts of repositories make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in _HEADING.findall(prose(path))
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    dead = []
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        where, _, anchor = link.partition("#")
        target = (path.parent / where).resolve() if where else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)

    assert dead == []


def test_every_document_is_linked() -> None:
    linked = {ROOT / "README.md"}
    for path in DOCUMENTS:
        linked |= {
            (path.parent / link.partition("#")[0]).resolve()
            for link in _LINK.findall(prose(path))
            if not re.match(r"[a-z]+:", link)
        }
    folders = {path for path in linked if path.is_dir()}

    assert [p for p in DOCUMENTS if p not in linked and p.parent not in folders] == []
