"""Who may set what of Spark; a real `spark-submit` shows it in tests/e2e/test_submit.py."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gauss_cdc.errors import ConfigError
from gauss_cdc.spark_settings import REFUSED, in_file, merged

ZONE = "spark.sql.session.timeZone"
REDACTION = "spark.redaction.regex"
TOKEN = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://login/token"}


def settings(
    options: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
    *,
    is_local: bool = False,
    needed: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> dict[str, str]:
    return merged(
        options or {},
        given or {},
        is_local=is_local,
        needed=needed or {},
        properties=properties or {},
    )


def test_ours_fill_what_the_file_and_the_command_line_leave_open() -> None:
    options = {ZONE: "Asia/Tokyo", "spark.ui.enabled": "true"}

    assert settings()[ZONE] == "UTC"
    assert settings(options)[ZONE] == "Asia/Tokyo"
    assert settings(options, {ZONE: "Europe/Paris"})[ZONE] == "Europe/Paris"
    assert settings(options, {"spark.executor.memory": "7g"})["spark.executor.memory"] == "7g"


def test_a_cluster_keeps_its_web_pages_and_its_own_width() -> None:
    local, cluster = settings(is_local=True), settings()

    assert local["spark.ui.enabled"] == "false"
    assert local["spark.sql.shuffle.partitions"] == "2"
    for name in ("spark.ui.enabled", "spark.sql.shuffle.partitions", "spark.driver.host"):
        assert name not in cluster


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_exactness_is_refused_by_name_wherever_it_stands(name: str) -> None:
    for options, given in (({name: "other"}, {}), ({}, {name: "other"})):
        with pytest.raises(ConfigError, match=re.escape(name)):
            settings(options, given)
    for value in REFUSED[name][0]:
        assert settings({name: value.lower()}, {name: value})[name] == value


def test_the_pattern_that_hides_secrets_grows_and_is_not_replaced() -> None:
    once = settings(given={REDACTION: "Customer"})
    pattern = once[REDACTION]

    for text in ("kafka.sasl.jaas.config", "Customer", "PASSWORD"):
        assert re.search(pattern, text)
    assert not re.search(pattern, "customer")
    assert settings(given=once) == once


def test_extensions_of_cluster_configuration_and_target_add_up() -> None:
    name, needed = "spark.sql.extensions", {"spark.sql.extensions": "io.delta.A", "x": "1"}

    once = settings({name: "o.O, b.B"}, {name: "c.C,b.B"}, needed=needed)

    assert once[name] == "c.C,b.B,o.O,io.delta.A"
    assert settings({name: "o.O, b.B"}, once, needed=needed) == once
    assert settings(needed=needed)[name] == "io.delta.A"
    assert settings({"x": "2"}, needed=needed)["x"] == "2"
    assert name not in settings()


def test_executors_get_the_system_properties_beside_the_user_s() -> None:
    name, flag = "spark.executor.extraJavaOptions", f"-D{next(iter(TOKEN))}=https://login/token"

    once = settings({name: "-Xss4m"}, {name: "-XX:+UseG1GC"}, properties=TOKEN)

    assert once[name] == f"-XX:+UseG1GC {flag}"
    assert settings(given=once, properties=TOKEN) == once
    assert name not in settings()


def test_a_file_of_defaults_is_read_as_java_s_properties(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# note\n! note\n\nspark.master   spark://m:7077\nspark.a=b c\nspark.d : e \nspark.f\n"
    )

    assert in_file(tmp_path / "spark-defaults.conf") == {
        "spark.master": "spark://m:7077",
        "spark.a": "b c",
        "spark.d": "e",
        "spark.f": "",
    }
    assert in_file(tmp_path / "none.conf") == {}
