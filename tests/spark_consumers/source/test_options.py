"""Options as Spark hands them over."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from schemas.tables import TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import SettingRefused
from spark_consumers.source import GaussCdcSource
from spark_consumers.source.options import LATEST, SNAPSHOT, SourceOptions

GIVEN = {"table": "account", "prefix": "bank", "registry": "http://r", "kafka.client.id": "x"}


def of(**more: str) -> SourceOptions:
    return SourceOptions.of({**GIVEN, **more})


def test_options_have_defaults_and_names_without_case() -> None:
    options = of(STARTINGVERSION="2/5001", **{"Registry.ssl.ca.location": "ca.pem"})

    assert (*options.tables, options.start, options.end) == (
        TableId("public", "account"), Version(2, 5001), None,
    )  # fmt: skip
    assert (of().start, of(startingVersion="latest").start) == (SNAPSHOT, LATEST)
    assert options.client == {"client.id": "x"}
    assert options.registry_options == {"ssl.ca.location": "ca.pem"}
    assert "ca.pem" not in repr(options)


def test_a_start_is_a_version_or_a_time() -> None:
    assert of(startingVersion="0").start == (1, 0)
    assert of(startingVersion=str(int(Version(2, 5)))).start == (2, 5)
    for text in ("2024-05-01 12:00:00", "2024-05-01T14:00:00+02:00", "2024-05-01T12:00Z"):
        assert of(startingTimestamp=text).start == datetime(2024, 5, 1, 12, tzinfo=UTC)
    between = of(startingVersion="1/5", endingTimestamp="2024-05-01")
    assert (between.start, between.end) == ((1, 5), datetime(2024, 5, 1, tzinfo=UTC))


def test_properties_of_spark_s_catalog_are_no_options_of_ours() -> None:
    """As CREATE TABLE ... USING gives them with Spark 4.1; SELECT gives none at all."""
    more = {"owner": "me", "provider": "gauss_cdc", "option.table": "account", "comment": "mine"}

    assert of(**more) == of()
    with pytest.raises(SettingRefused, match="TEMPORARY VIEW"):
        SourceOptions.of({})


def test_a_path_is_a_table_where_no_table_is_named() -> None:
    """Spark's catalog gives its own tables a path, which is not ours."""
    given = {name: value for name, value in GIVEN.items() if name != "table"}

    assert SourceOptions.of({**given, "path": "s.t"}).tables == (TableId("s", "t"),)
    assert of(path="file:/warehouse/t").tables == (TableId("public", "account"),)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("s.t", TableId("s", "t")),
        ("Mixed Case.金", TableId("Mixed Case", "金")),
        ('"a.b"."c""d"', TableId("a.b", 'c"d')),
        ('s."t.u"', TableId("s", "t.u")),
        ('"t.u"', TableId("public", "t.u")),
    ],
)
def test_a_table_is_named_as_in_sql_and_keeps_its_case(text: str, table: TableId) -> None:
    assert of(table=text).tables == (table,)


def test_several_tables_are_named_with_commas_between() -> None:
    given = {name: value for name, value in GIVEN.items() if name != "table"}
    options = SourceOptions.of({**given, "tables": 'a, s.b ,"c,d", a', "path": "file:/t"})

    assert options.is_nested
    assert [str(table) for table in options.tables] == ["public.a", "s.b", "public.c,d"]
    for wrong in ("", "a,", "a, A", ", a", "a b.c.d"):
        with pytest.raises(SettingRefused):
            SourceOptions.of({**given, "tables": wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "a.b.c"},
        {"table": "a."},
        {"table": "a, b"},
        {"tables": "a"},
        {"table": ""},
        {"prefix": ""},
        {"startingVersion": "yesterday"},
        {"startingVersion": "0/5"},
        {"endingVersion": "snapshot"},
        {"maxRowsPerTrigger": "0"},
        {"maxRowsPerTrigger": "many"},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "2024-05-01", "startingVersion": "1/1"},
        {"startingVersion": "1/5", "endingVersion": "1/4"},
        {"startingTimestamp": "2024-05-02", "endingTimestamp": "2024-05-01T23:59:59+00:00"},
        {"startingLatest": "true"},
    ],
)
def test_what_is_not_valid_is_refused_before_anything_is_asked(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingRefused):
        of(**wrong)


PLAIN = {
    "kafka.bootstrap.servers": "kafka:9092",
    "kafka.security.protocol": "sasl_plaintext",
    "kafka.sasl.mechanism": "PLAIN",
}


@pytest.mark.parametrize("login", [PLAIN, {"registry.basic.auth.user.info": "me:pencil"}])
def test_a_login_that_others_could_read_has_to_be_allowed(login: dict[str, str]) -> None:
    with pytest.raises(SettingRefused, match=r"without TLS.*allowPlaintextLogin") as caught:
        of(**login)

    assert "pencil" not in str(caught.value)
    assert of(**login, allowPlaintextLogin="true").prefix == "bank"


def test_a_stream_has_no_end() -> None:
    with pytest.raises(SettingRefused, match="endingVersion"):
        GaussCdcSource({**GIVEN, "endingVersion": "1/5"}).streamReader(StructType())
    with pytest.raises(SettingRefused, match="columns of its own"):
        GaussCdcSource(dict(GIVEN)).streamReader(StructType())


def test_options_travel_to_executors_which_are_other_processes() -> None:
    read = "import sys; from pyspark import cloudpickle; cloudpickle.load(sys.stdin.buffer)"

    subprocess.run([sys.executable, "-c", read], input=cloudpickle.dumps(of()), check=True)
