"""The table of losses and the encoders say the same."""

from itertools import product

import pytest

from gauss_cdc_lab.emulator.model import PROFILES, Ddl, Item, Mode, Op, Row, Truncate
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.gauss_cdc_lab.emulator.formats.made import insert, number, sent, transaction
from tests.gauss_cdc_lab.emulator.losses import LOSSES, Done, losses

DDL = Ddl(Lsn(0x110), content=b"{}", sql=b"CREATE TABLE x ()")
TRUNCATE = Truncate(Lsn(0x110), (TableId("public", "t"),))
ROW = insert(0x118)
GENERATED = insert(0x118, number("a", 1), number("b", 2)._replace(generated=True))

# What is done, and what of it is alone in the message that must come.
DOINGS: dict[Done, tuple[list[Item], bool]] = {
    Done.ROW_BEHIND_DDL: ([DDL, ROW], True),
    Done.TRUNCATE: ([TRUNCATE], False),
    Done.DDL: ([DDL], False),
    Done.NOT_LISTED: ([ROW._replace(table="other")], True),
    Done.EXCLUDED: ([ROW], True),
    Done.FOREIGN: ([ROW], True),
}
MODES = [
    Mode(),
    Mode(plugin="test_decoding"),
    Mode(plugin="sql_decoding"),
    Mode(plugin="test_decoding", only_local=False),
    Mode(plugin="test_decoding", white_table_list=(("public", "t"),)),
    Mode(plugin="test_decoding", exclude_users=frozenset({"sync"})),
    Mode(enable_ddl_decoding=True),
    *(Mode(parallel_decode_num=2, decode_style=style) for style in "bjt"),
    Mode(parallel_decode_num=2, enable_ddl_decoding=True),
    Mode(parallel_decode_num=2, only_local=False),
    Mode(parallel_decode_num=2, white_table_list=(("public", "t"),)),
    Mode(parallel_decode_num=2, exclude_users=frozenset({"sync"})),
]
STREAMS = [
    pytest.param(name, mode, id=f"{name} {mode}")
    for name, mode in product(PROFILES, MODES)
    if name != "postgres" or (mode.plugin == "test_decoding" and not mode.parallel)
]


def count(items: list[Item], mode: Mode, name: str, **rest: object) -> int:
    """Messages between BEGIN and COMMIT."""
    return max(0, len(sent(mode, [transaction(*items, **rest)], name)) - 2)


@pytest.mark.parametrize("done", DOINGS)
@pytest.mark.parametrize(("name", "mode"), STREAMS)
def test_what_the_table_calls_lost_is_not_sent(name: str, mode: Mode, done: Done) -> None:
    items, is_row = DOINGS[done]
    rest: dict[str, object] = {
        "user": "sync" if done is Done.EXCLUDED else None,
        "origin_id": 1 if done is Done.FOREIGN else 0,
    }
    if done is not Done.FOREIGN or PROFILES[name].gauss:
        before = [item for item in items if not isinstance(item, Row)] if is_row else []

        reported = count(items, mode, name, **rest) - count(before, mode, name)

        assert (reported == 0) == (done in {loss.done for loss in losses(name, mode)})


def test_what_generated_columns_lose_is_in_the_table() -> None:
    kept, skipped = (
        sent(Mode(skip_generated_columns=skip), [transaction(GENERATED)], "gaussdb")[1].payload
        for skip in (False, True)
    )

    assert (b'"b"' in kept, b'"b"' in skipped) == (True, False)
    assert Done.GENERATED in {
        loss.done for loss in losses("gaussdb", Mode(skip_generated_columns=True))
    }


def test_json_ends_a_value_at_nul_and_the_table_knows() -> None:
    row = insert(0x118, number("a", 1)._replace(type_oid=25, value=b"ab\0cd"))
    modes = {
        "json": Mode(),
        "j": Mode(parallel_decode_num=2, decode_style="j"),
        "b": Mode(parallel_decode_num=2, decode_style="b"),
    }

    whole = {
        name: b"cd" in sent(mode, [transaction(row)])[1].payload for name, mode in modes.items()
    }

    assert whole == {"json": False, "j": False, "b": True}
    assert whole == {
        name: Done.NUL not in {loss.done for loss in losses("og7", mode)}
        for name, mode in modes.items()
    }


def test_sql_decoding_loses_digits_and_the_table_knows() -> None:
    third = number("a", 1)._replace(type_oid=701, value=b".3333333333333333")
    update = Row(Lsn(0x110), Op.INSERT, "public", "t", (third,), None)

    mode = Mode(plugin="sql_decoding")
    payload = sent(mode, [transaction(update)])[1].payload

    assert payload == b"insert into public.t values (.333333333333333);"
    assert Done.FLOAT in {loss.done for loss in losses("og7", mode)}


def test_every_loss_names_its_source() -> None:
    assert {loss.done for loss in LOSSES} == set(Done)
    assert all(loss.source for loss in LOSSES)
