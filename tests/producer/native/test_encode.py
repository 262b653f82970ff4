"""The native encoder writes usual rows itself, and leaves to the reference only what is rare."""

from collections.abc import Callable
from typing import Any

import pytest

from producer.core.changes import Cells
from producer.core.records.encode import RowEncoder, compile_encoder
from producer.core.records.reference import Encode
from producer.core.records.row_plan import RowPlan
from producer.errors import CdcError
from schemas.envelope import EnvelopeOptions
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from schemas.types import TypeOptions
from tests.producer.core.records.test_encode import ACCOUNT, ALICE, TX
from tests.producer.native.twins import native
from tests.schemas.types.values import CHOSEN, SAMPLES, Sample


class Slow:
    """The reference behind the native one, and how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def compile(self, plan: RowPlan, slow: Encode) -> Encode:
        def counted(*arguments: Any) -> bytes:
            self.calls += 1
            return slow(*arguments)

        encode: Encode = native().CellEncoder(plan, counted).encode
        return encode


def both(table: TableSchema, **options: Any) -> tuple[RowEncoder, RowEncoder, Slow]:
    arguments = {"prefix": "bank", "schema_id": 42, "database": "bank", **options}
    slow = Slow()
    fast = compile_encoder(table, native=slow.compile, **arguments)
    return fast, compile_encoder(table, **arguments), slow


def said(encode: Callable[..., bytes], *arguments: Any) -> bytes | str:
    try:
        return encode(*arguments)
    except CdcError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_sample_of_every_type(sample: Sample, nullable: bool) -> None:
    fast, plain, _ = both(TableSchema(TableId("s", "t"), (sample.column(nullable=nullable),)))

    for text in (*sample.texts, None, "\udcff", "x"):
        row: Cells = [None if text is None else text.encode("utf-8", "surrogateescape")]
        for arguments in (
            ("r", "", None, row),
            ("u", "O", row, row),
            ("u", "O", row, [UNCHANGED]),
            ("u", "", None, [UNCHANGED]),
            ("d", "O", row, None),
        ):
            assert said(fast.encode, *arguments, TX, 7, 1) == said(
                plain.encode, *arguments, TX, 7, 1
            )


@pytest.mark.parametrize(
    ("choice", "sample"),
    [pytest.param(c, sample, id=f"{name} {sample.type_name}") for name, c, sample in CHOSEN],
)
def test_every_sample_of_every_type_option(choice: TypeOptions, sample: Sample) -> None:
    table = TableSchema(TableId("s", "t"), (sample.column(),))
    fast, plain, _ = both(table, options=EnvelopeOptions(types=choice))

    for text in sample.texts:
        row = ("c", "", None, [text.encode()], TX, 7, 1)
        assert said(fast.encode, *row) == said(plain.encode, *row)


def test_usual_rows_do_not_reach_python() -> None:
    fast, plain, slow = both(ACCOUNT)
    key: Cells = [b"7", None, None, None]
    rows: list[tuple[str, str, Cells | None, Cells | None]] = [
        ("c", "", None, ALICE),
        ("r", "", None, ALICE),
        ("u", "", None, ALICE),
        ("u", "K", key, ALICE),
        ("u", "O", ALICE, ALICE),
        ("u", "", None, [b"7", UNCHANGED, b"1.00", UNCHANGED]),
        ("u", "K", key, [b"7", UNCHANGED, b"1.00", None]),
        ("d", "K", key, None),
        ("d", "O", ALICE, None),
        ("u", "O", [*ALICE[:3], b"long"], [*ALICE[:3], UNCHANGED]),
        ("c", "", None, [b"7", b"\xff", b"NaN", None]),
        ("u", "O", [b"7", b"a", b"NaN", None], [b"7", b"a", b"Infinity", b"\xff"]),
    ]

    for at, row in enumerate(rows):
        assert fast.encode(*row, TX, 2**40, at) == plain.encode(*row, TX, 2**40, at)
    assert slow.calls == 0


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(("t", "", None, None), id="truncate"),
        pytest.param(("c", "", None, [b"7"]), id="another width"),
        pytest.param(("c", "", None, [None, *ALICE[1:]]), id="NULL in NOT NULL"),
        pytest.param(("u", "O", ALICE, [*ALICE[:3], UNCHANGED]), id="unsent, and NULL before"),
    ],
)
def test_unusual_rows_are_pythons(row: tuple[Any, ...]) -> None:
    fast, plain, slow = both(ACCOUNT)

    assert said(fast.encode, *row, TX, 1, 0) == said(plain.encode, *row, TX, 1, 0)
    assert slow.calls == 1


def test_texts_of_another_encoding_are_recoded_and_what_is_none_is_pythons() -> None:
    table = TableSchema(TableId("s", "t"), (Column("v", 25),))
    fast, plain, slow = both(table, encoding="gbk")

    for cell in ("金额".encode("gbk"), b"\xff", None, UNCHANGED):
        row = ("u", "", None, [cell], TX, 1, 0)
        assert fast.encode(*row) == plain.encode(*row)  # type: ignore[arg-type]
    assert (fast.plan, slow.calls) == (None, 0)


def test_a_large_row_leaves_no_large_buffer_and_the_next_one_is_right() -> None:
    fast, plain, _ = both(ACCOUNT)

    for size in (100_000, 1, 10_000):
        row = ("c", "", None, [b"7", b"x" * size, b"1.00", None], TX, 1, 0)
        assert fast.encode(*row) == plain.encode(*row)  # type: ignore[arg-type]
