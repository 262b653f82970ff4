"""The architecture, executable: imports point downwards and pure layers touch no world.

Every module has a layer; one that no layer names is an error.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas", "producer", "spark_consumers", "gauss_cdc")

# From the top down; what stands on one line may import each other.  The longest name that fits a
# module decides; a module that none fits is an error.
LAYERS = {
    "schemas": (("schemas",),),
    "producer": (
        ("producer.pipeline", "producer.outlook"),
        ("producer.start", "producer.sources.gauss.checks"),
        ("producer.preflight",),
        (
            *("producer.acls", "producer.publish", "producer.sources.kinds"),
            "producer.meanwhile",
        ),
        ("producer.sources.gauss.source", "producer.sources.postgres.source"),
        ("producer.sources.base", "producer.sources.postgres.captured"),
        ("producer.sources.catalog_look",),
        ("producer.options",),
        (
            *("producer.sources.gauss", "producer.sources.postgres"),
            "producer.sources.postgres.triggers.install",
        ),
        ("producer.sources",),
        ("producer.kafka",),
        ("producer.core",),
        (
            *("producer.sources.gauss.buffer", "producer.sources.gauss.described"),
            *("producer.sources.gauss.mixed", "producer.sources.gauss.gaps"),
            *("producer.sources.postgres.triggers", "producer.sources.postgres.gaps"),
        ),
        ("producer.sources.gauss.options", "producer.sources.postgres.options"),
        ("producer.sources.decoders",),
        ("producer.sources.gauss.ddl", "producer.core.canonical", "producer.core.disclosed"),
        ("producer.sources.gauss.decoders", "producer.sources.postgres.pgoutput"),
        (
            *("producer.core.changes", "producer.core.shape_change", "producer.core.sql_words"),
            *("producer.core.catalog_rows", "producer.core.system_schemas"),
            "producer.sources.postgres.triggers.records",
        ),
        (
            *("producer.sources.gauss.login", "producer.sources.gauss.server"),
            *("producer.sources.gauss.sqlstate", "producer.sources.gauss.sm3"),
            "producer.sources.gauss.copy_csv",
        ),
        ("producer.wire",),
        ("producer.errors",),
    ),
    "spark_consumers": (
        ("spark_consumers.api",),
        ("spark_consumers.lanes", "spark_consumers.frames", "spark_consumers.stream"),
        ("spark_consumers.job",),
        ("spark_consumers.sinks", "spark_consumers.kafka.read"),
        ("spark_consumers.compact", "spark_consumers.decode"),
        ("spark_consumers.kafka", "spark_consumers.security"),
        ("spark_consumers.cuts", "spark_consumers.dialects"),
        ("spark_consumers.model",),
        ("spark_consumers.errors",),
    ),
    "gauss_cdc": (("gauss_cdc",),),
}

MAY_IMPORT = {
    "schemas": {"schemas"},
    "producer": {"producer", "schemas"},
    "spark_consumers": {"spark_consumers", "schemas"},
    "gauss_cdc": set(PACKAGES),
}

PURE = (
    "schemas",
    "producer.core",
    "producer.wire",
    "producer.errors",
    "producer.sources.decoders",
    *(f"producer.sources.gauss.{name}" for name in (
        *("buffer", "copy_csv", "ddl", "decoders", "described", "gaps", "login", "mixed"),
        *("options", "server", "sm3", "sqlstate"),
    )),
    *(f"producer.sources.postgres.{name}" for name in (
        *("gaps", "options", "pgoutput", "triggers.follow", "triggers.records", "triggers.using"),
    )),
    "spark_consumers.cuts",
    "spark_consumers.dialects",
    "spark_consumers.model",
    "spark_consumers.errors",
)  # fmt: skip
WORLD = {
    *("asyncio", "concurrent", "multiprocessing", "select", "selectors", "signal", "subprocess"),
    *("confluent_kafka", "psycopg2", "pydantic", "pyspark", "requests"),
    *("http", "socket", "socketserver", "ssl", "urllib"),
    *("logging", "threading", "time"),
}
# The loop is given its reads and its sink, so that the simulation can run it without Spark.
WITHOUT_SPARK = ("spark_consumers.job",)


def imports(module: str, source: str) -> Iterator[str]:
    """Full names of all that a module imports, at any depth of its code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: -node.level] if node.level else []
            base = [*parents, node.module] if node.module else parents
            yield from (".".join([*base, alias.name]) for alias in node.names)


def is_in(module: str, layer: str) -> bool:
    return module == layer or module.startswith(f"{layer}.")


def rank(module: str) -> int | None:
    """How deep a module lies in its package; None: no layer has it."""
    fits = [
        (len(name), depth)
        for depth, names in enumerate(LAYERS[module.partition(".")[0]])
        for name in names
        if is_in(module, name)
    ]
    return max(fits)[1] if fits else None


def is_above(name: str, module: str) -> bool:
    """Say whether an import points upwards."""
    theirs, mine = rank(name), rank(module)
    if name in PACKAGES:
        return False
    return theirs is None or mine is None or theirs < mine


def violations(module: str, source: str) -> list[str]:
    found = []
    package = module.partition(".")[0]
    for name in imports(module, source):
        top = name.partition(".")[0]
        if top in PACKAGES:
            if top not in MAY_IMPORT[package]:
                found.append(f"{package} must not know {top}: {name}")
            elif top == package and is_above(name, module):
                found.append(f"imports must point downwards: {name}")
        elif package == "schemas" and top not in sys.stdlib_module_names:
            found.append(f"schemas uses the standard library only: {name}")
        if top in WORLD and any(is_in(module, layer) for layer in PURE):
            found.append(f"pure code must not touch the world: {name}")
        if top == "pyspark" and module in WITHOUT_SPARK:
            found.append(f"runs without Spark: {name}")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


@pytest.mark.parametrize(("module", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_a_module_keeps_to_its_layer(module: str, path: Path) -> None:
    assert violations(module, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("producer.sources.postgres.pgoutput", "import socket"),
        ("producer.wire.auth", "def login():\n    from time import sleep"),
        ("producer.core.engine", "from producer.kafka.delivery import Sink"),
        ("producer.core.engine", "from producer import kafka"),
        ("producer.core.engine", "from ..kafka import delivery"),
        ("producer.core.engine", "from producer import preflight"),
        ("producer.errors", "import producer.wire.cursor"),
        ("producer.pipeline", "import spark_consumers.cuts"),
        ("producer.pipeline", "from gauss_cdc import config"),
        ("spark_consumers.job", "import producer.errors"),
        ("spark_consumers.job", "from pyspark.sql import DataFrame"),
        ("spark_consumers.cuts", "from spark_consumers.kafka.read import rows"),
        ("spark_consumers.cuts", "import pyspark"),
        ("spark_consumers.dialects.postgres", "import psycopg2"),
        ("schemas.envelope", "import fastavro"),
        ("schemas.envelope", "import producer.errors"),
        ("schemas.types.numeric", "import logging"),
    ],
)
def test_a_forbidden_import_would_be_caught(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("producer.pipeline", "import time\nfrom producer.kafka import delivery"),
        ("producer.core.engine", "from producer.errors import CdcError\nfrom . import events"),
        ("producer.kafka.delivery", "import confluent_kafka, schemas.topics"),
        ("spark_consumers.sinks.delta", "from spark_consumers.sinks import Sink"),
        ("gauss_cdc.demo", "import producer.pipeline, spark_consumers.job, schemas.control"),
        ("schemas.load", "import json\nfrom importlib import resources"),
    ],
)
def test_a_permitted_import_passes(module: str, source: str) -> None:
    assert violations(module, source) == []
