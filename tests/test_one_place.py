"""What has one place in the product is written nowhere else.

The emulator has places of its own, on purpose: it is the oracle of the decoders.
"""

import re

import pytest

from schemas.version import VERSION
from tests import tree

# What, how to find it, and where alone it may stand.
ONE_PLACE = {
    "the version": (rf"""["']{re.escape(VERSION)}["']""", {"schemas/version.py"}),
    "schemas of the servers": (
        r"""information_schema["'$|]""",
        {"schemas/system_schemas.py", "gauss_cdc_lab/demo/compare.py"},
    ),
    "settings under which values are cast": (
        r"""["']DateStyle["'], ["']IntervalStyle["'], ["']bytea_output["']""",
        {"schemas/control.py"},
    ),
    "what names below a prefix begin with": (
        r"""f"\{(?:\w+\.)*prefix\}\.\"""",
        {"schemas/topics.py", "gauss_cdc_lab/demo/audit.py"},
    ),
    "settings of a session with a source": (
        r"""["']extra_float_digits["']: """,
        {"producer/sources/session_settings.py", "gauss_cdc_lab/emulator/shapes.py"},
    ),
    "stale leader epochs": (r"FENCED_LEADER_EPOCH", {"producer/kafka/client.py"}),
    "styles that plugins have by name": (
        r"parallel_json_decoding.*:",
        {
            "producer/sources/gauss/decoders/formats.py",
            "gauss_cdc_lab/emulator/model.py",
        },
    ),
    "what Spark has below SparkSession": (
        r"py4j|[Ss]parkContext\b|java_gateway|\._j(vm|sc|df|c|sparkSession)\b|\._sc\b|\.rdd\b",
        {"spark_consumers/spark/jvm.py"},
    ),
    "what a kind of source is asked by name": (
        r"""kind (?:[!=]=|(?:not )?in) [("'{[]+(?:postgres|opengauss|gaussdb)\b""",
        set(),
    ),
    "what a kind of target is asked by name": (
        r"""is_lake|kind (?:[!=]=|(?:not )?in) [("'{[]+(?:delta|iceberg)\b""",
        {
            "spark_consumers/lakes.py",
            "gauss_cdc_lab/demo/lake.py",
            "gauss_cdc_lab/demo/play.py",
            "gauss_cdc_lab/demo/scene.py",
        },
    ),
    "quotes of SQL": (
        r"""\.replace\((["'])(\\?["'])\1, *(["'])\2\2\3\)""",
        {"schemas/quoting.py", "gauss_cdc_lab/emulator/quoting.py"},
    ),
}


def found(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


@pytest.mark.parametrize("what", ONE_PLACE)
def test_it_stands_in_one_place(what: str) -> None:
    pattern, places = ONE_PLACE[what]
    there = {
        str(path.relative_to(tree.folder(module.partition(".")[0]).parent))
        for module, path in tree.modules(*tree.PACKAGES)
        if found(pattern, path.read_text("utf-8"))
    }

    assert there == places


@pytest.mark.parametrize(
    "text", ['if options.kind == "postgres":', 'if source.kind not in ("opengauss", "gaussdb"):']
)
def test_a_question_for_a_kind_by_its_name_would_be_found(text: str) -> None:
    assert found(ONE_PLACE["what a kind of source is asked by name"][0], text)


@pytest.mark.parametrize("text", ["""name.replace('"', '""')""", """text.replace("'", "''")"""])
def test_a_second_quoter_would_be_found(text: str) -> None:
    assert found(ONE_PLACE["quotes of SQL"][0], text)
