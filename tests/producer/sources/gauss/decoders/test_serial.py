import pytest

from producer.core.changes import Logical
from producer.errors import DecodeError
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.decoders.messages import Ddl, NamedTruncate, TxBegin, TxCommit
from schemas.positions import Lsn

AT = "2023-09-14 16:03:51.394287+08"
ALL = ("mppdb_decoding", "sql_decoding", "test_decoding")


def decoded(plugin: str, payload: str | bytes, start: int = 7) -> object:
    raw = payload.encode() if isinstance(payload, str) else payload
    decoder = NAMING[plugin, ""](Format(plugin))
    ((position, record),) = decoder.split(start, raw)
    return decoder.decode(position, record)


@pytest.mark.parametrize("plugin", ["mppdb_decoding", "test_decoding"])
def test_begin_and_commit(plugin: str) -> None:
    for line, message in {
        "BEGIN 1010023": TxBegin(1010023, first_lsn=Lsn(7)),
        "BEGIN": TxBegin(first_lsn=Lsn(7)),
        "BEGIN 5 ORIGIN_ID 3": TxBegin(5, first_lsn=Lsn(7), origin_id=3),
        f"COMMIT 5 (at {AT}) CSN 6": TxCommit(5, 6, AT, end_lsn=Lsn(7)),
        "COMMIT CSN 6": TxCommit(None, 6, end_lsn=Lsn(7)),
        "COMMIT 1010023 CSN 1010022": TxCommit(1010023, 1010022, end_lsn=Lsn(7)),
    }.items():
        assert decoded(plugin, line) == message


def test_a_late_begin_has_no_position() -> None:
    assert decoded("mppdb_decoding", "BEGIN 5", start=0) == TxBegin(5)
    assert decoded("sql_decoding", "BEGIN 5", start=0) == TxBegin(csn=5)


def test_sql_decoding_sends_the_csn_twice_and_no_xid() -> None:
    assert decoded("sql_decoding", "BEGIN 2307") == TxBegin(csn=2307, first_lsn=Lsn(7))
    assert decoded("sql_decoding", f"COMMIT (at {AT}) 2307") == TxCommit(
        None, 2307, AT, end_lsn=Lsn(7)
    )


def test_postgresql_has_no_csn() -> None:
    assert decoded("test_decoding", "COMMIT 529") == TxCommit(529, end_lsn=Lsn(7))
    assert decoded("test_decoding", f"COMMIT 529 (at {AT})") == TxCommit(529, None, AT, Lsn(7))
    with pytest.raises(DecodeError):
        decoded("mppdb_decoding", "COMMIT 529")  # cut off: it always ends with the CSN


def test_a_message_of_postgresql_may_hold_anything() -> None:
    content = b"\xff, sz: 1 content:x\n"
    line = b"message: transactional: 1 prefix: a, sz: 9 content:b, sz: %d content:" % len(content)

    assert decoded("test_decoding", line + content) == Logical(
        True, Lsn(7), "a, sz: 9 content:b", content
    )
    assert decoded("test_decoding", "message: transactional: 0 prefix: , sz: 0 content:") == (
        Logical(False, Lsn(7), "", b"")
    )
    with pytest.raises(DecodeError):
        decoded("test_decoding", line + content[:-1])


@pytest.mark.parametrize("plugin", ALL)
def test_truncate(plugin: str) -> None:
    line = "table public.a, public.b: TRUNCATE: restart_seqs"

    assert decoded(plugin, line) == NamedTruncate(
        (("public", "a"), ("public", "b")), restart_identity=True
    )


RENAME = (
    '{"fmt": "ALTER %{objtype}s %{if_exists}s %{identity}D RENAME TO %{newname}I",'
    ' "newname": "dd1r", "objtype": "TABLE",'
    ' "identity": {"objname": "dd1", "schemaname": "public"}, "if_exists": ""}'
)


MPPDB = "prefix: deparse, lsn: 40060152, relid 16507, cmdtype: Simple, size: 190, content: "
OTHERS = "message: prefix deparse, relid 16507, cmdtype: Simple, sz: 190 content: "


@pytest.mark.parametrize(
    ("plugin", "head", "tail"),
    [
        ("mppdb_decoding", MPPDB, "decode to: "),
        ("test_decoding", OTHERS, "decode to : "),
        ("sql_decoding", OTHERS, "decode to : "),
    ],
)
def test_ddl_of_opengauss(plugin: str, head: str, tail: str) -> None:
    sql = "ALTER TABLE  public.dd1 RENAME TO dd1r"
    line = f"{head}{RENAME}\n{tail}{sql}, [owner none]"

    assert decoded(plugin, line) == Ddl("deparse", RENAME, sql, "Simple", 16507, "none")
    for end in ("\n", ", [owner", " [owner", "fmt"):
        with pytest.raises(DecodeError):
            decoded(plugin, line[: line.index(end) + 1])


def test_the_start_of_a_drop_has_no_statement() -> None:
    line = (
        "prefix: deparse, lsn: 40060152, relid 16507, cmdtype: Drop Table, size: 25,"
        " content: Drop table command start"
    )

    assert decoded("mppdb_decoding", line) == Ddl(
        "deparse", "Drop table command start", None, "Drop Table", 16507
    )


def test_a_statement_of_several_lines_and_with_brackets() -> None:
    sql = "CREATE TABLE a.b (c int[])\nPARTITION BY RANGE (c)\n( , [owner of]\n)"
    line = (
        'prefix: deparse, lsn: 1, relid 2, cmdtype: Create Object, size: 3, content: {"fmt": "x"}'
        f"\ndecode to: {sql}, [owner omm]"
    )

    assert decoded("mppdb_decoding", line) == Ddl(
        "deparse", '{"fmt": "x"}', sql, "Create Object", 2, "omm"
    )


@pytest.mark.parametrize("plugin", ["mppdb_decoding", "test_decoding"])
def test_ddl_of_gaussdb(plugin: str) -> None:
    text = "CREATE  TABLE  public.a (b pg_catalog.int4) WITH (orientation = 'row') NOCOMPRESS"
    document = '{"fmt": "CREATE", "identity": {"object_name": "中", "present": false}, "n": [1]}'

    assert decoded(plugin, f'{{"TDDL":"{text}"}}') == Ddl("TDDL", text)
    assert decoded(plugin, f'{{"JDDL":{document}}}') == Ddl("JDDL", document)
    for bad in (
        '{"TDDL":1}',
        '{"JDDL":"x"}',
        '{"TDDL":"a","more":1}',
        '{"TDDL":"a"',
        '{"TDDL":[]}',
    ):
        with pytest.raises(DecodeError):
            decoded(plugin, bad)


@pytest.mark.parametrize("plugin", ALL)
@pytest.mark.parametrize("line", ["", "ABORT 5", "BEGIN x", "BEGIN 5 ", "COMMIT (at ", "{}", "x"])
def test_what_is_no_line_is_refused_with_its_position(plugin: str, line: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(plugin, line)

    assert caught.value.where["position"] == "0/7"
