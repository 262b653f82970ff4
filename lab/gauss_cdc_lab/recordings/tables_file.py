"""A file about what a stream does not contain: columns and keys of its tables.

The format is that of `tables_NAME.json` next to our captures.  Only what is read is
checked; everything else may be missing.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gauss_cdc.errors import ConfigError
from gauss_cdc_lab.recordings.transactions import Known, KnownTable
from schemas.tables import TableId


class _Column(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    name: str
    type: str = ""
    attnum: Any = None  # of use where it is a number


class _TableEntry(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, populate_by_name=True)

    schema_name: str = Field(alias="schema")
    table: str
    columns: list[_Column]
    primary_key: list[str] = []
    identity_columns: list[str] = []


class _Tables(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    tables: list[_TableEntry]


def read_tables(path: Path) -> Known:
    """Read such a file, plain or gzipped; ConfigError if it is invalid."""
    try:
        raw = path.read_bytes()
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        tables = _Tables.model_validate(json.loads(raw)).tables
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {where}: {first['msg']}") from None
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(f"{path}: not a file about tables: {error}") from None
    return {
        TableId(table.schema_name, table.table): KnownTable(
            tuple(column.name for column in table.columns),
            tuple(column.type for column in table.columns),
            tuple(table.primary_key),
            tuple(table.identity_columns),
            is_gapless=all(c.attnum == at for at, c in enumerate(table.columns, 1)),
        )
        for table in tables
    }
