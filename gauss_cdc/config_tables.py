"""[tables] and [load]: what is captured, and how what is there already is read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from producer.errors import SourceError
from producer.settings import Section
from producer.sources.patterns import parse


def _as_list(value: object) -> object:
    """One pattern may stand without brackets."""
    return (value,) if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


def _checked(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            parse(pattern)
        except SourceError as exc:
            raise ValueError(f"{pattern!r}: {exc.hint}") from None
    return patterns


class TablesSection(Section):
    """[tables]: what is captured. `schema.table`, `*` for a whole part."""

    include: Patterns = ("*.*",)
    """Tables to capture, one pattern or a list: `public.*`, `*.orders`, `shop.item`."""

    exclude: Patterns = ()
    """Tables to leave out of `include`."""

    without_identity: Literal["stop", "skip-and-record"] = "stop"
    """openGauss, GaussDB: an UPDATE or DELETE that identifies no row, or a row of unknown columns.
    `skip-and-record` continues, and marks the table as not exact."""

    unfit_row: Literal["stop", "quarantine"] = "stop"
    """A row larger than `kafka.max-row-bytes`, or with a value that cannot be written. `quarantine`
    continues, keeps what it can in `<prefix>.quarantine`, and marks the table as not exact. With
    `stop`, whoever may insert such a row can stop everything."""

    @field_validator("include", "exclude")
    @classmethod
    def _grammar(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(patterns)


class LoadSection(Section):
    """[load]: how tables are read, for the first time or again."""

    mode: Literal["snapshot", "chunks"] = "snapshot"
    """How a first load reads. `snapshot`: all tables as of one commit. It is the fastest, but the
    source keeps its log meanwhile, and an interrupted table begins again. `chunks`: each table
    beside the stream, which begins at once; a restart goes on where it was. Later loads read so
    where they can."""

    rate: Annotated[int, Field(ge=0)] = 50_000
    """Rows a second of a load beside the stream, at most; `0`: no limit. Lower it where a load
    delays commits at the target. A range has 8,000 rows, or 8 MiB."""

    chunk_rows: Annotated[int, Field(ge=1)] = 16_000
    """Rows of a chunk: one Kafka transaction, and what `apply` can take at a time. 16 MiB close
    one, too."""
