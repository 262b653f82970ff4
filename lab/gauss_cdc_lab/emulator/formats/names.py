"""Identifiers in the bytes of the database, quoted where the server quotes them."""

from __future__ import annotations

import re
from typing import Final

from gauss_cdc_lab.emulator.model import Profile
from gauss_cdc_lab.emulator.quoting import OPENGAUSS, POSTGRES

_SAFE: Final = re.compile(rb"[a-z_][a-z0-9_]*")


class Names:
    """Names of one database, in its encoding; the few that a stream has are kept."""

    __slots__ = ("_encoding", "_keywords", "_quoted", "_raw")

    def __init__(self, profile: Profile, encoding: str) -> None:
        """`encoding` is Python's name of the database's encoding."""
        self._encoding = encoding
        self._keywords = OPENGAUSS if profile.gauss else POSTGRES
        self._raw: dict[str, bytes] = {}
        self._quoted: dict[str, bytes] = {}

    def raw(self, name: str) -> bytes:
        """The name as the catalog holds it."""
        raw = self._raw.get(name)
        if raw is None:
            # Bytes that are not text (SQL_ASCII) come and go as surrogates.
            raw = self._raw[name] = name.encode(self._encoding, "surrogateescape")
        return raw

    def quoted(self, name: str) -> bytes:
        """What `quote_identifier()` makes of it.

        >>> names = Names(Profile("og7"), "utf-8")
        >>> names.quoted("id"), names.quoted("user"), names.quoted('a"b')
        (b'id', b'"user"', b'"a""b"')
        """
        quoted = self._quoted.get(name)
        if quoted is None:
            quoted = self.raw(name)
            if name in self._keywords or not _SAFE.fullmatch(quoted):
                quoted = b'"%b"' % quoted.replace(b'"', b'""')
            self._quoted[name] = quoted
        return quoted

    def table(self, schema: str, table: str) -> bytes:
        """The qualified name of a table, each part quoted where needed."""
        return b"%b.%b" % (self.quoted(schema), self.quoted(table))
