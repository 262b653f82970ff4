"""The Python examples of docs/spark.md, run as they stand, with this machine's addresses."""

import json
import re
from pathlib import Path as File

from tests.e2e.path import Path, ask
from tests.tree import ROOT

_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_SHOWN = re.compile(r"(?:^[+|].*\n)+", re.MULTILINE)


def _toml(value: object) -> str:
    """Write a text, or an inline table of texts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)


def test_the_examples_for_other_spark_programs_run(
    addresses, topic_prefix, new_database, spark, tmp_path: File, capfd
) -> None:
    source = new_database()
    ask(source, "CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2))")
    ask(source, "CREATE TABLE payment (id int PRIMARY KEY, account int, amount numeric(12,2))")
    with Path(addresses, topic_prefix, source, new_database()) as path:
        path.start()
        path.catch_up()
        ask(source, "INSERT INTO account VALUES (1, 10), (2, 20)")
        ask(
            source,
            "UPDATE account SET balance = 30 WHERE id = 2; INSERT INTO payment VALUES (1, 2, 10)",
        )
        path.catch_up()
    settings = {
        "source": {"dsn": source},
        "kafka": {"prefix": topic_prefix, "client": path.options.client},
        "registry": {"url": addresses.registry_url},
        "target": {"kind": "postgres", "dsn": new_database()},
        "spark": {"checkpoint": str(tmp_path / "checkpoint")},
    }
    written = "".join(
        f"[{section}]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in own.items())
        for section, own in settings.items()
    )
    (tmp_path / "bank.toml").write_text(written, "utf-8")
    examples = _PYTHON.findall((ROOT / "docs" / "spark.md").read_text("utf-8"))
    names = {"spark": spark}
    for code in examples:
        here = (
            code.replace("kafka.example.com:9092", addresses.kafka_bootstrap)
            .replace("http://registry.example.com:8081", addresses.registry_url)
            .replace('"bank"', repr(topic_prefix))
            .replace("state/totals", str(tmp_path / "totals"))
            .replace("bank.toml", str(tmp_path / "bank.toml"))
        )
        exec(compile(here, "docs/spark.md", "exec"), names)

    assert spark.streams.active == []  # each example has ended its query
    said = capfd.readouterr().out
    accounts, history, joined = map(shown, _SHOWN.findall(said))
    assert accounts == [
        ["seq", "ordinal", "op", "id", "balance"],
        ["1", "0", "c", "1", "10.00"],
        ["1", "1", "c", "2", "20.00"],
        ["2", "0", "u", "2", "30.00"],
    ]
    kind = history[0].index("_change_type")
    assert [row[kind] for row in history[1:]] == ["insert", "insert", "update_postimage"]
    assert spark.table("account_changes").count() == 3
    assert joined == [["id", "balance", "paid"], ["2", "30.00", "10.00"]]
    assert "public.account" in said


def shown(table: str) -> list[list[str]]:
    """The head and the rows of a table, as `show` prints it."""
    lines = (line for line in table.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
