"""Options as Spark hands them over."""

import subprocess
import sys

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from schemas.tables import TableId
from spark_consumers.errors import SettingRefused
from spark_consumers.source import GaussCdcSource
from spark_consumers.source.options import LATEST, SNAPSHOT, SourceOptions
from spark_consumers.versions import Version

GIVEN = {"table": "account", "prefix": "bank", "registry": "http://r", "kafka.client.id": "x"}


def of(**more: str) -> SourceOptions:
    return SourceOptions.of({**GIVEN, **more})


def test_options_have_defaults_and_names_without_case() -> None:
    options = of(STARTINGVERSION="2/5001", **{"Registry.ssl.ca.location": "ca.pem"})

    assert (options.table, options.start, options.end) == (
        TableId("public", "account"), Version(2, 5001), None,
    )  # fmt: skip
    assert (of().start, of(startingVersion="latest").start) == (SNAPSHOT, LATEST)
    assert options.client == {"client.id": "x"}
    assert options.registry_options == {"ssl.ca.location": "ca.pem"}
    assert "ca.pem" not in repr(options)


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
    assert of(table=text).table == table


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "a.b.c"},
        {"table": "a."},
        {"table": ""},
        {"prefix": ""},
        {"startingVersion": "yesterday"},
        {"startingVersion": "0/5"},
        {"endingVersion": "snapshot"},
        {"maxRowsPerTrigger": "0"},
        {"maxRowsPerTrigger": "many"},
        {"startingTimestamp": "2024-05-01"},
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
