"""The architecture, executable: imports point downwards and pure layers touch no world.

Every module has a layer; one that no layer names is an error.
"""

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.tree import LABORATORY, PACKAGES, PRODUCT, READER, modules

# From the top down; what stands on one line may import each other.  The longest name that fits a
# module decides; a module that none fits is an error.
LAYERS = {
    "schemas": (("schemas",),),
    "producer": (
        ("producer.pipeline", "producer.outlook"),
        ("producer.start", "producer.preflight"),
        ("producer.acls", "producer.publish", "producer.meanwhile"),
        ("producer.sources.kinds",),
        ("producer.sources.gauss.kind", "producer.sources.postgres.kind"),
        (
            *("producer.sources.gauss.inspector", "producer.sources.postgres.inspector"),
            *("producer.sources.gauss.rehearsal", "producer.sources.postgres.rehearsal"),
        ),
        ("producer.sources.gauss.checks", "producer.sources.postgres.checks"),
        (
            *("producer.sources.gauss.source", "producer.sources.postgres.source"),
            *("producer.sources.gauss.point", "producer.sources.postgres.point"),
            *("producer.sources.gauss.key_ranges", "producer.sources.postgres.key_ranges"),
            *("producer.sources.gauss.new_slot", "producer.sources.gauss.stream_reader"),
            "producer.sources.lock",
        ),
        (
            *("producer.sources.base", "producer.sources.postgres.captured"),
            "producer.sources.postgres.catalog_look",
        ),
        ("producer.options",),
        (
            *("producer.sources.gauss", "producer.sources.postgres"),
            "producer.sources.postgres.triggers.install",
        ),
        ("producer.sources.gauss.section", "producer.sources.postgres.section"),
        ("producer.sources.section",),
        ("producer.settings",),
        ("producer.secret_words",),
        ("producer.sources",),
        ("producer.kafka", "producer.native"),
        (
            *("producer.sources.gauss.stream", "producer.sources.gauss.resolver"),
            *("producer.sources.gauss.buffer", "producer.sources.gauss.held"),
            *("producer.sources.gauss.boundaries", "producer.sources.gauss.csn_order"),
            *("producer.sources.gauss.mixed", "producer.sources.gauss.gaps"),
            *("producer.sources.postgres.stream", "producer.sources.postgres.gaps"),
        ),
        ("producer.sources.postgres.triggers",),
        ("producer.sources.gauss.options", "producer.sources.postgres.options"),
        ("producer.sources.decoders",),
        ("producer.sources.gauss.ddl",),
        ("producer.sources.gauss.decoders", "producer.sources.postgres.pgoutput"),
        (
            *("producer.sources.gauss.login", "producer.sources.gauss.server"),
            *("producer.sources.gauss.sqlstate", "producer.sources.gauss.copy_csv"),
            "producer.sources.gauss.system_schemas",
        ),
        # Nothing from here down is a source, and none of it knows one.
        ("producer.core",),
        ("producer.core.loads",),
        ("producer.core.log",),
        ("producer.core.ports",),
        ("producer.core.stream", "producer.core.statements", "producer.core.takeover"),
        ("producer.core.delivery",),
        ("producer.core.key_ranges",),
        ("producer.core.catalog", "producer.core.router"),
        ("producer.core.records",),
        ("producer.core.changes", "producer.core.events", "producer.core.shape_change"),
        ("producer.wire",),
        ("producer.errors", "producer.clock"),
    ),
    "spark_consumers": (
        ("spark_consumers.api", "spark_consumers.lakes", "spark_consumers.source"),
        ("spark_consumers.source.reader", "spark_consumers.upsert"),
        ("spark_consumers.source.batches", "spark_consumers.source.options"),
        ("spark_consumers.source.rows",),
        ("spark_consumers.spark",),
        ("spark_consumers.spark.frames", "spark_consumers.spark.stream"),
        ("spark_consumers.spark.pairs",),
        ("spark_consumers.loop",),
        ("spark_consumers.loop.job",),
        ("spark_consumers.sinks.kinds",),
        ("spark_consumers.kafka.history",),
        ("spark_consumers.sinks", "spark_consumers.kafka.read", "spark_consumers.kafka.parts"),
        ("spark_consumers.spark.jobs",),
        ("spark_consumers.spark.executors",),
        ("spark_consumers.spark.batches",),
        ("spark_consumers.sinks.step",),
        ("spark_consumers.sinks.base",),
        ("spark_consumers.spark.shapes",),
        ("spark_consumers.kafka.ranges",),
        ("spark_consumers.kafka.content",),
        ("spark_consumers.cuts.compact", "spark_consumers.decode"),
        ("spark_consumers.kafka", "spark_consumers.security", "spark_consumers.source.java_names"),
        ("spark_consumers.loop.ahead",),
        ("spark_consumers.dialects", "spark_consumers.cuts.segments"),
        ("spark_consumers.cuts.commits",),
        ("spark_consumers.cuts",),
        ("spark_consumers.native",),
        ("spark_consumers.model",),
        ("spark_consumers.spark.jvm", "spark_consumers.spark.micro_batches"),
        ("spark_consumers.errors", "spark_consumers.spark.folders", "spark_consumers.spark.given"),
    ),
    "gauss_cdc": (
        ("gauss_cdc.__main__",),
        ("gauss_cdc.cli",),
        ("gauss_cdc.commands",),
        ("gauss_cdc.commands.base",),
        ("gauss_cdc.page", "gauss_cdc.late", "gauss_cdc.several"),
        (
            *("gauss_cdc.verify", "gauss_cdc.rereads", "gauss_cdc.doctor"),
            "gauss_cdc.sizing",
        ),
        ("gauss_cdc.serve",),
        ("gauss_cdc.apply", "gauss_cdc.inspect"),
        ("gauss_cdc.session", "gauss_cdc.target", "gauss_cdc.reports", "gauss_cdc.shapes"),
        ("gauss_cdc.wiring", "gauss_cdc.gauss_dbapi"),
        (
            *("gauss_cdc.config", "gauss_cdc.config_tables", "gauss_cdc.config_serve"),
            *("gauss_cdc.kafka_settings", "gauss_cdc.spark_settings", "gauss_cdc.config_targets"),
        ),
        (
            *("gauss_cdc.errors", "gauss_cdc.logs", "gauss_cdc.pack"),
            *("gauss_cdc.secrets", "gauss_cdc.watch"),
        ),
        ("gauss_cdc.runtime",),
    ),
    "gauss_cdc_reader": (
        ("gauss_cdc_reader",),
        ("gauss_cdc_reader.aio",),
        ("gauss_cdc_reader.reader",),
        ("gauss_cdc_reader.group",),
        ("gauss_cdc_reader.commits", "gauss_cdc_reader.tables"),
        ("gauss_cdc_reader.changes", "gauss_cdc_reader.bookmark"),
        ("gauss_cdc_reader.values", "gauss_cdc_reader.tail", "gauss_cdc_reader.beside"),
    ),
    "gauss_cdc_lab": (
        ("gauss_cdc_lab.commands", "gauss_cdc_lab.reference", "gauss_cdc_lab.release"),
        ("gauss_cdc_lab.recordings",),
        ("gauss_cdc_lab.demo",),
        ("gauss_cdc_lab.emulator",),
        ("gauss_cdc_lab.services",),
    ),
}

# The laboratory stands apart: the product does not know it, and what a room of it may know besides
# itself is here.  The emulator is the oracle of the decoders: it quotes, prints DDL, reads
# recordings and refuses with code of its own.  A position and a table's name are values that
# both sides of a wire agree on; the emulator takes them from `schemas`.
ROOMS = {
    "gauss_cdc_lab.commands": (
        *(LABORATORY, "gauss_cdc.commands.base", "gauss_cdc.secrets", "gauss_cdc.watch"),
        *("producer.errors", "schemas.positions"),
    ),
    "gauss_cdc_lab.emulator": (
        *("gauss_cdc_lab.emulator", "gauss_cdc_lab.services.process"),
        *("schemas.positions", "schemas.tables"),
    ),
    # Reads streams by the product's own wire and decoders.
    "gauss_cdc_lab.recordings": (
        *("gauss_cdc_lab.recordings", "gauss_cdc.config", "gauss_cdc.errors", "gauss_cdc.wiring"),
        *("producer", "schemas"),
    ),
    "gauss_cdc_lab.services": ("gauss_cdc_lab.services", "gauss_cdc.runtime"),
    # Plays the product's own programs, and reads what `status` reads.
    "gauss_cdc_lab.demo": (
        *("gauss_cdc_lab.demo", "gauss_cdc_lab.services", "gauss_cdc.watch"),
        *("gauss_cdc.config", "gauss_cdc.inspect.places", "producer.sources.postgres.section"),
        # Looks into a lake as any program does, with a Spark of its own.
        *("gauss_cdc.runtime", "spark_consumers.lakes", "spark_consumers.sinks.lakes.places"),
        *("schemas.accept", "producer.errors"),
    ),
}

ALL = sorted(modules(*PACKAGES))

# Folders that know nothing of each other.
WINGS = ("producer.sources.gauss", "producer.sources.postgres")

MAY_IMPORT = {
    "schemas": {"schemas"},
    "producer": {"producer", "schemas"},
    "spark_consumers": {"spark_consumers", "schemas"},
    "gauss_cdc": set(PRODUCT),
    LABORATORY: {*PRODUCT, LABORATORY},
    READER: {"schemas", "spark_consumers", READER},
}

PURE = (
    "schemas",
    "producer.core",
    "producer.wire",
    "producer.errors",
    "producer.sources.decoders",
    *(f"producer.sources.gauss.{name}" for name in (
        *("boundaries", "buffer", "copy_csv", "ddl", "decoders", "gaps", "login", "mixed"),
        *("resolver", "stream"),
        *("options", "server", "sqlstate", "system_schemas"),
    )),
    *(f"producer.sources.postgres.{name}" for name in (
        *("gaps", "options", "pgoutput", "stream", "triggers.follow", "triggers.moved"),
        *("triggers.records", "triggers.using"),
    )),
    *("spark_consumers.cuts.segments", "spark_consumers.cuts.commits"),
    *("spark_consumers.cuts.ledger", "spark_consumers.cuts.complete"),
    "spark_consumers.dialects",
    "spark_consumers.loop.job",
    "spark_consumers.model",
    "spark_consumers.native",
    "spark_consumers.errors",
    "spark_consumers.spark.shapes",
    "spark_consumers.sinks.base",
    "spark_consumers.sinks.lakes.core",
    "spark_consumers.sinks.lakes.joined",
    "spark_consumers.sinks.step",
    "spark_consumers.cuts.versions",
    "gauss_cdc_reader.values",
    "gauss_cdc_reader.tail",
    "gauss_cdc_reader.changes",
)  # fmt: skip
WORLD = {
    *("asyncio", "concurrent", "multiprocessing", "select", "selectors", "signal", "subprocess"),
    *("confluent_kafka", "psycopg2", "pydantic", "pyspark", "requests"),
    *("http", "socket", "socketserver", "ssl", "urllib"),
    *("logging", "threading", "time"),
}
# The loop is given its reads, its sink and what wakes it, so that the simulation can run it.
WITHOUT_SPARK = ("spark_consumers.loop.run",)


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


def breaks_wall(module: str, name: str) -> bool:
    """Say whether a room of the laboratory imports what it may not know."""
    rooms = [allowed for room, allowed in ROOMS.items() if is_in(module, room)]
    return any(not any(is_in(name, layer) for layer in allowed) for allowed in rooms)


def wing_of(module: str) -> str:
    """Return the source that a module belongs to, if it does."""
    return next((wing for wing in WINGS if is_in(module, wing)), "")


def violations(module: str, source: str) -> list[str]:
    found = []
    package = module.partition(".")[0]
    if rank(module) is None and module not in PACKAGES:
        found.append("no layer names this module")
    for name in imports(module, source):
        top = name.partition(".")[0]
        if "." in name and top in PACKAGES and breaks_wall(module, name):
            found.append(f"a room of the laboratory must not know this: {name}")
            continue
        if top in PACKAGES:
            if top not in MAY_IMPORT[package]:
                found.append(f"{package} must not know {top}: {name}")
            elif top == package and is_above(name, module):
                found.append(f"imports must point downwards: {name}")
        elif package == "schemas" and top not in sys.stdlib_module_names:
            found.append(f"schemas uses the standard library only: {name}")
        if (wing := wing_of(module)) and wing_of(name) not in {"", wing}:
            found.append(f"one source must not know another: {name}")
        if top in WORLD and any(is_in(module, layer) for layer in PURE):
            found.append(f"pure code must not touch the world: {name}")
        if top == "pyspark" and module in WITHOUT_SPARK:
            found.append(f"runs without Spark: {name}")
    return found


def test_each_module_keeps_to_its_layer() -> None:
    found = {
        module: violations(module, path.read_text(encoding="utf-8"))
        for module, path in modules(*PACKAGES)
    }

    assert {module: wrong for module, wrong in found.items() if wrong} == {}


def test_every_name_of_a_layer_or_a_wall_is_a_module() -> None:
    there = {module for module, _ in ALL}
    named = {name for layers in LAYERS.values() for layer in layers for name in layer}
    named |= {*ROOMS, *PURE, *WITHOUT_SPARK}
    named |= {name for names in ROOMS.values() for name in names}

    assert named - there == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("producer.sources.postgres.pgoutput", "import socket"),
        ("producer.wire.auth", "def login():\n    from time import sleep"),
        ("producer.core.delivery.engine", "from producer.kafka.delivery import Sink"),
        ("producer.core.delivery.engine", "from producer import kafka"),
        ("producer.core.delivery.engine", "from ..kafka import delivery"),
        ("producer.core.delivery.engine", "from producer import preflight"),
        ("producer.core.stream.relations", "from producer.sources.gauss.ddl import tddl"),
        ("producer.sources.postgres.source", "from producer.sources.gauss.ddl import tddl"),
        (
            "producer.core.stream.assemble",
            "from producer.sources.postgres.triggers.records import read",
        ),
        ("producer.errors", "import producer.wire.cursor"),
        ("producer.pipeline", "import spark_consumers.cuts.segments"),
        ("producer.pipeline", "from gauss_cdc import config"),
        ("spark_consumers.loop.job", "import producer.errors"),
        ("spark_consumers.loop.job", "from pyspark.sql import DataFrame"),
        ("spark_consumers.loop.run", "from pyspark.sql import DataFrame"),
        ("spark_consumers.cuts.segments", "from spark_consumers.kafka.read import rows"),
        ("spark_consumers.cuts.segments", "import pyspark"),
        ("spark_consumers.dialects.postgres", "import psycopg2"),
        ("schemas.envelope", "import fastavro"),
        ("schemas.envelope", "import producer.errors"),
        ("schemas.types.numeric", "import logging"),
        ("gauss_cdc.new", ""),
        ("gauss_cdc.wiring", "from gauss_cdc_lab.emulator.model import Mode"),
        ("gauss_cdc.session", "from gauss_cdc_lab import services"),
        ("gauss_cdc.cli", "from gauss_cdc_lab import services"),
        ("gauss_cdc.commands.run", "import gauss_cdc_lab"),
        ("gauss_cdc_lab.commands.local", "from gauss_cdc.config import load"),
        ("gauss_cdc.config", "from gauss_cdc import wiring"),
        ("gauss_cdc.inspect.look", "from gauss_cdc.commands import stream"),
        ("gauss_cdc_lab.emulator.facade", "import producer.sources.decoders"),
        ("gauss_cdc_lab.emulator.deparse", "from producer.sources.gauss.ddl import tddl"),
        ("gauss_cdc_lab.emulator.recording", "from gauss_cdc_lab.recordings import files"),
        ("gauss_cdc_lab.emulator.names", "from schemas.sql_text import identifier"),
        ("gauss_cdc_lab.services.kafka", "from gauss_cdc.config import load"),
    ],
)
def test_a_forbidden_import_would_be_caught(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("producer.pipeline", "import time\nfrom producer.kafka import delivery"),
        (
            "producer.core.delivery.engine",
            "from producer.errors import CdcError\nfrom . import events",
        ),
        ("producer.kafka.delivery", "import confluent_kafka, schemas.topics"),
        ("spark_consumers.sinks.delta", "from spark_consumers.sinks import Sink"),
        ("gauss_cdc.apply", "import producer.pipeline, spark_consumers.loop.job, schemas.control"),
        ("gauss_cdc_lab.commands.local", "from gauss_cdc_lab.emulator import program"),
        ("gauss_cdc_lab.emulator.model", "from schemas.positions import Lsn"),
        ("schemas.load", "import json\nfrom importlib import resources"),
    ],
)
def test_a_permitted_import_passes(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_no_source_lies_below_the_core() -> None:
    names = [name for layer in LAYERS["producer"] for name in layer]

    below = names[names.index("producer.core") :]

    assert [name for name in below if is_in(name, "producer.sources")] == []
