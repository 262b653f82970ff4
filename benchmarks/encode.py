"""How long a row takes to encode and to decode: natively, and by fastavro.

    python benchmarks/encode.py [rows]

Prints microseconds per row (process CPU, best of five rounds, rounds of all
contestants taken in turn) and the ratio within this run.  Absolute numbers
belong to the machine; the ratios carry over.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from producer import native
from producer.core.changes import Cells
from producer.core.records.encode import (
    RowEncoder,
    TransactionConstants,
    compile_encoder,
    reference,
)
from schemas.envelope import envelope_schema
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from spark_consumers.decode import RowDecoder, split

ROUNDS = 5
_VALUES = 20_000
MONEY = (12 << 16 | 2) + 4  # type_mod of numeric(12,2)
TABLE = TableSchema(
    TableId("public", "account"),
    (
        Column("id", 20, nullable=False),
        Column("owner", 25, nullable=False),
        Column("balance", 1700, MONEY),
        Column("visits", 23),
        Column("active", 16),
        Column("opened", 1184),
        Column("note", 1043),
    ),
    key=("id",),
    identity_columns=("id",),
)
NEW: Cells = [
    b"123456", b"Alice Example", b"1234.56", b"-7", b"t", b"2024-05-01 12:00:00.123456+00", None,
]  # fmt: skip
KEY: Cells = [b"123456", *[None] * 6]
TX = TransactionConstants(
    700, 99, 1, 5, 1_714_561_200_123_456, 1_714_561_200_223_456, Lsn(0x16B374D84)
)
CASES: dict[str, tuple[str, str, Cells | None, Cells | None]] = {
    "insert": ("c", "", None, NEW),
    "update, whole old row": ("u", "O", NEW, NEW),
    "update, unsent TOAST": ("u", "", None, [*NEW[:6], UNCHANGED]),
    "delete, old key": ("d", "K", KEY, None),
    "insert with NaN": ("c", "", None, [*NEW[:2], b"NaN", *NEW[3:]]),
}


def encoding(encoder: RowEncoder, case: str, rows: int) -> Callable[[], None]:
    """Return a round of encoding."""
    encode = encoder.encode
    op, kind, before, after = CASES[case]

    def run() -> None:
        for ordinal in range(rows):
            encode(op, kind, before, after, TX, Lsn(0x16B374D900 + ordinal), ordinal)

    return run


def decoding(decode: Callable[[list[bytes]], object], value: bytes) -> Callable[[], None]:
    """Return a round of decoding, by thousands of values."""

    def run() -> None:
        decode([value] * _VALUES)

    return run


def best(contestants: list[Callable[[], None]], rows: int) -> list[float]:
    """Microseconds per row of each, the best round."""
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(ROUNDS):
        for own, run in zip(times, contestants, strict=True):
            begin = time.process_time()
            run()
            own.append((time.process_time() - begin) / rows * 1e6)
    return [min(own) for own in times]


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    parts = native.parts("auto")
    if parts is None:
        raise SystemExit("the native module was not built")
    slow = reference(TABLE, prefix="bank", schema_id=42, database="bank")
    fast = compile_encoder(
        TABLE, prefix="bank", schema_id=42, database="bank", native=parts.encoder
    )
    print(f"{len(TABLE.columns)} columns, µs per row         native  fastavro  ratio  bytes")
    for case, arguments in CASES.items():
        a, b = best([encoding(encoder, case, rows) for encoder in (fast, slow)], rows)
        size = len(fast.encode(*arguments, TX, Lsn(0x16B374D900), 1))
        print(f"{case:29} {a:9.2f} {b:9.2f} {b / a:6.1f} {size:6}")
    decoder = RowDecoder(envelope_schema("bank", TABLE))
    value = fast.encode(*CASES["insert"], TX, Lsn(0x16B374D900), 1)

    def by_native(values: list[bytes]) -> None:
        assert decoder.rows(42).take(values, 0) == len(values)

    def by_fastavro(values: list[bytes]) -> None:
        for one in values:
            decoder.decode(split(one)[1])

    a, b = best([decoding(by_native, value), decoding(by_fastavro, value)], _VALUES)
    print(f"{'decode an insert':29} {a:9.2f} {b:9.2f} {b / a:6.1f} {len(value):6}")


if __name__ == "__main__":
    main()
