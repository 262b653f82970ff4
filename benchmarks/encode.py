"""How long a row takes to encode and to decode: native and generated code against fastavro.

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
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from spark_consumers.decode import RowDecoder, split
from spark_consumers.model import Change

ROUNDS = 5
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
TX = TransactionConstants(700, 99, 1, 5, 1_714_561_200_123_456, 1_714_561_200_223_456, 0x16B374D84)
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
            encode(op, kind, before, after, TX, 0x16B374D900 + ordinal, ordinal)

    return run


def decoding(decode: Callable[[bytes], Change], value: bytes, rows: int) -> Callable[[], None]:
    """Return a round of decoding."""

    def run() -> None:
        for _ in range(rows):
            decode(bytes(split(value)[1]))

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
    fast = compile_encoder(TABLE, prefix="bank", schema_id=42, database="bank")
    slow = reference(TABLE, prefix="bank", schema_id=42, database="bank")
    contestants = [fast, slow]
    if (parts := native.parts("auto")) is not None:
        contestants.append(
            compile_encoder(
                TABLE, prefix="bank", schema_id=42, database="bank", native=parts.encoder
            )
        )
    print(f"{len(TABLE.columns)} columns, µs per row     generated  fastavro  ratio  bytes  native")
    for case, arguments in CASES.items():
        a, b, *own = best([encoding(encoder, case, rows) for encoder in contestants], rows)
        size = len(fast.encode(*arguments, TX, 0x16B374D900, 1))
        by_native = "".join(f"{cost:8.2f}" for cost in own) or "       -"
        print(f"{case:29} {a:9.2f} {b:9.2f} {b / a:6.1f} {size:6}{by_native}")
    decoder = RowDecoder(envelope_schema("bank", TABLE))
    value = fast.encode(*CASES["insert"], TX, 0x16B374D900, 1)
    rounds = [decoding(decoder.decode, value, rows), decoding(decoder.decode_slowly, value, rows)]
    a, b = best(rounds, rows)
    print(f"{'decode an insert':29} {a:9.2f} {b:9.2f} {b / a:6.1f} {len(value):6}")


if __name__ == "__main__":
    main()
