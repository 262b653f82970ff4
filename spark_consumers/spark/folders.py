"""Folders that Spark's options name: of this machine, or of any Hadoop file system."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit


def local(folder: str) -> Path | None:
    """Return the folder on this machine; None: it is on another file system.

    >>> local("state"), local("file:///var/x"), local("s3a://bucket/x")
    (PosixPath('state'), PosixPath('/var/x'), None)
    """
    parts = urlsplit(folder)
    if not parts.scheme:
        return Path(folder)
    return Path(parts.path) if parts.scheme == "file" else None


def below(folder: str, name: str) -> str:
    """Return what is called `name` in the folder, in the words in which the folder is named.

    `Path` would make a local folder `s3a:` of a URL.

    >>> below("s3a://bucket/x/", "spark"), below("state", "spark"), below("hdfs://h", "spark")
    ('s3a://bucket/x/spark', 'state/spark', 'hdfs://h/spark')
    """
    return f"{folder.rstrip('/')}/{name}"
