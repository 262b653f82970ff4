"""Tests mirror the tree: who looks for the tests of a module finds them where the module is.

A test module of tests/<package>/ is named after a module or package of the product, or is of
the package whose folder it stands in (`WHOLE`).  A module of the product above 60 lines has a
test module of its name, or `TESTED_BY` says where it is tested.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.tree import PACKAGES, ROOT, folder, modules

COMMANDS = ("gauss_cdc.commands.", "gauss_cdc_lab.commands.")
SMALL = 60  # lines, up to which a module is tested with what uses it

# Tests of a whole package, beside those of its modules.
WHOLE = {
    "gauss_cdc/test_readme.py",
    "gauss_cdc_lab/emulator/formats/test_golden.py",
    "gauss_cdc_lab/emulator/formats/test_round_trip.py",
    "gauss_cdc_lab/emulator/test_losses.py",
    "gauss_cdc_lab/emulator/test_recorded_sessions.py",
    "gauss_cdc_lab/services/test_compose.py",
    "producer/core/stream/test_made_again.py",
    "producer/core/takeover/test_takeover_loads.py",
    "producer/native/test_any_bytes.py",
    "producer/native/test_chunk.py",
    "producer/native/test_encode.py",
    "producer/native/test_hand_over.py",
    "producer/native/test_walk.py",
    "producer/sources/gauss/checks/test_rules.py",
    "producer/sources/gauss/decoders/test_any_bytes.py",
    "producer/sources/gauss/decoders/test_golden.py",
    "producer/sources/gauss/decoders/test_rewritten.py",
    "producer/sources/gauss/decoders/test_type_names.py",
    "producer/sources/gauss/options/test_emulator.py",
    "producer/sources/gauss/options/test_manual.py",
    "schemas/types/test_options.py",
    "schemas/types/test_types.py",
    "spark_consumers/dialects/test_captured_changes.py",
    "spark_consumers/dialects/test_hostile.py",
    "spark_consumers/native/test_any_bytes.py",
    "spark_consumers/sinks/test_contract.py",
    "spark_consumers/sinks/test_marks.py",
    "spark_consumers/test_parts_rules.py",
    "spark_consumers/test_segments_for_one.py",
}
# Module or package -> the test that shows it; the longest name that fits a module decides.
TESTED_BY = {
    "schemas.types": "schemas/types/test_types.py",
    "producer.core": "sim/test_simulation.py",
    "producer.core.stream.inference": "producer/core/stream/test_relations.py",
    "producer.core.stream.logical_messages": "producer/core/stream/test_transactions.py",
    "producer.core.records": "producer/core/records/test_encode.py",
    "producer.core.records.messages": "producer/core/stream/test_transactions.py",
    "producer.core.stream.row_writer": "producer/core/stream/test_assemble.py",
    "producer.errors": "e2e/test_cli.py",
    "producer.kafka.rights": "integration/test_kafka_rights.py",
    "producer.kafka.topics": "integration/test_faults_producer.py",
    "producer.kafka.writer": "producer/kafka/test_delivery.py",
    "producer.options": "integration/test_postgres_source.py",
    "producer.outlook": "e2e/test_cli.py",
    "producer.pipeline": "integration/test_faults_producer.py",
    "producer.preflight": "integration/test_kafka_rights.py",
    "producer.sources.lock": "e2e/test_frozen.py",
    "producer.sources.base": "gauss_cdc/inspect/test_history.py",
    "producer.sources.connection": "integration/test_postgres_driver.py",
    "producer.sources.dsn": "integration/test_postgres_tls.py",
    "producer.settings": "gauss_cdc/test_config.py",
    "producer.secret_words": "gauss_cdc/test_secrets.py",
    "producer.start": "integration/test_faults_producer.py",
    "producer.sources.streaming": "integration/test_postgres_source.py",
    "producer.sources.requests": "e2e/test_rereads.py",
    "producer.sources.gauss.point": "e2e/test_gauss_rereads.py",
    "producer.sources.gauss": "integration/test_gauss_source.py",
    "producer.sources.gauss.buffer": "producer/sources/gauss/test_stream.py",
    "producer.sources.gauss.catalog": "integration/test_gauss_catalog.py",
    "producer.sources.gauss.checks": "producer/sources/gauss/checks/test_rules.py",
    "producer.sources.gauss.ddl": "producer/sources/gauss/ddl/test_apply.py",
    "producer.sources.gauss.ddl.losses": "producer/sources/gauss/ddl/test_deparsed.py",
    "producer.sources.gauss.ddl.pairs": "producer/sources/gauss/test_stream.py",
    "producer.sources.gauss.decoders": "producer/sources/gauss/decoders/test_golden.py",
    "producer.sources.gauss.evidence": "integration/test_gauss_evidence.py",
    "producer.sources.gauss.functions": "integration/test_gauss_functions.py",
    "producer.sources.gauss.mixed": "producer/sources/gauss/test_gaps.py",
    "producer.sources.gauss.options": "producer/sources/gauss/options/test_manual.py",
    "producer.sources.gauss.inspector": "e2e/test_gauss_cli.py",
    "producer.sources.gauss.rehearsal": "integration/test_ddl_plan.py",
    "producer.sources.gauss.resolver": "producer/sources/gauss/test_stream.py",
    "producer.sources.gauss.snapshot": "integration/test_gauss_snapshot.py",
    "producer.sources.rights": "integration/test_source_rights.py",
    "producer.sources.postgres": "integration/test_postgres_source.py",
    "producer.sources.postgres.captured": "integration/test_source_rights.py",
    "producer.sources.postgres.catalog": "integration/test_postgres_catalog.py",
    "producer.sources.postgres.catalog_look": "integration/test_catalog_look.py",
    "producer.sources.postgres.connection": "integration/test_postgres_driver.py",
    "producer.sources.postgres.decoding_standby": "e2e/test_standby.py",
    "producer.sources.postgres.gaps": "e2e/test_ddl_gaps.py",
    "producer.sources.postgres.inspector": "e2e/test_cli.py",
    "producer.sources.postgres.primary": "e2e/test_standby.py",
    "producer.sources.postgres.rehearsal": "integration/test_ddl_plan.py",
    "producer.sources.postgres.snapshot": "integration/test_postgres_snapshot.py",
    "producer.sources.postgres.triggers": "integration/test_ddl_triggers.py",
    "producer.sources.ranges": "integration/test_key_ranges.py",
    "spark_consumers.api": "integration/test_api.py",
    "spark_consumers.dialects.spark_types": "integration/test_typed_changes.py",
    "spark_consumers.spark.shapes": "integration/test_typed_changes.py",
    "spark_consumers.spark.frames": "integration/test_typed_changes.py",
    "spark_consumers.spark.batches": "spark_consumers/source/test_batches.py",
    "spark_consumers.dialects": "spark_consumers/dialects/test_hostile.py",
    "spark_consumers.native": "spark_consumers/decode/test_rows.py",
    "spark_consumers.kafka.content": "spark_consumers/kafka/test_ranges.py",
    "spark_consumers.model": "spark_consumers/cuts/test_compact.py",
    "spark_consumers.spark.jobs": "integration/test_lanes.py",
    "spark_consumers.spark.lanes": "integration/test_lanes.py",
    "spark_consumers.sinks": "spark_consumers/sinks/test_contract.py",
    "spark_consumers.spark.lake_rows": "integration/test_lakes.py",
    "spark_consumers.lakes": "integration/test_lakes.py",
    "spark_consumers.sinks.lakes": "integration/test_lakes.py",
    "spark_consumers.sinks.postgres": "integration/test_sink_postgres.py",
    "spark_consumers.sinks.positions": "integration/test_api.py",
    "spark_consumers.sinks.postgres.checks": "integration/test_target_rights.py",
    "spark_consumers.sinks.postgres.rights": "integration/test_target_rights.py",
    "spark_consumers.upsert": "e2e/test_upsert.py",
    "gauss_cdc": "e2e/test_cli.py",
    "gauss_cdc.commands": "gauss_cdc/test_commands.py",
    "gauss_cdc.doctor": "e2e/test_doctor.py",
    "gauss_cdc.serve.answers": "gauss_cdc/page/test_facts.py",
    "gauss_cdc.inspect": "e2e/test_cli.py",
    "gauss_cdc.inspect.ddl_plan": "integration/test_ddl_plan.py",
    "gauss_cdc.inspect.watching": "e2e/test_status_watch.py",
    "gauss_cdc.runtime.jars": "integration/test_services.py",
    "gauss_cdc_lab.commands": "gauss_cdc/test_commands.py",
    "gauss_cdc_lab.demo": "e2e/test_kills.py",
    "gauss_cdc_lab.emulator": "integration/test_gauss_facade_reading.py",
    "gauss_cdc_lab.emulator.program": "e2e/test_gauss_cli.py",
    "gauss_cdc_lab.emulator.recording": "gauss_cdc_lab/emulator/test_replay.py",
    "gauss_cdc_lab.emulator.scratch": "integration/test_record_gauss.py",
    "gauss_cdc_lab.recordings": "integration/test_record.py",
    "gauss_cdc_lab.recordings.gauss": "integration/test_record_gauss.py",
    "gauss_cdc_lab.recordings.masks": "gauss_cdc_lab/recordings/test_redaction.py",
    "gauss_cdc_lab.recordings.tables_file": "gauss_cdc_lab/recordings/test_decode.py",
    "gauss_cdc_lab.services": "integration/test_services.py",
    "gauss_cdc_lab.services.cluster": "e2e/test_cluster.py",
    "gauss_cdc_reader": "integration/test_reader.py",
    "gauss_cdc.config_tables": "gauss_cdc/test_config.py",
    "gauss_cdc.target": "integration/test_target_login.py",
    "gauss_cdc.verify": "e2e/test_verify.py",
    "gauss_cdc.wiring": "gauss_cdc/test_config.py",
}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = dict(modules(*PACKAGES, "tests"))
OURS = [name for name in MODULES if not name.startswith("tests.")]


def own_test(module: str) -> Path:
    package, _, name = module.rpartition(".")
    return ROOT / "tests" / package.replace(".", "/") / f"test_{name}.py"


def place_of(module: str) -> str | None:
    fits = [name for name in TESTED_BY if f"{module}.".startswith(f"{name}.")]
    return max(fits, key=len) if fits else None


@cache
def imports(module: str) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in found if name in MODULES)


def reached(module: str) -> set[str]:
    """All that a module imports, and what that imports."""
    seen, left = set(), [module]
    while left:
        if (here := left.pop()) not in seen:
            seen.add(here)
            left += imports(here)
            if here == "gauss_cdc.cli":  # it imports a command when it is asked for
                left += [name for name in MODULES if name.startswith(COMMANDS)]
    return seen


LARGE = [
    module
    for module in OURS
    if MODULES[module].read_text("utf-8").count("\n") > SMALL and not own_test(module).is_file()
]


def _folder_of(test: str) -> Path:
    """Return the folder whose tests it is among."""
    package = test.partition("/")[0]
    return (folder(package).parent / test).parent


def test_every_test_is_named_after_what_it_tests() -> None:
    strays = set()
    for package in PACKAGES:
        for path in sorted((ROOT / "tests" / package).rglob("test_*.py")):
            here = path.relative_to(ROOT / "tests")
            module = ".".join([*here.parent.parts, path.stem.removeprefix("test_")])
            if module not in MODULES:
                strays.add(str(here))

    assert strays == WHOLE
    assert {test for test in WHOLE if not _folder_of(test).is_dir()} == set()


@pytest.mark.parametrize("module", LARGE)
def test_a_module_without_a_test_of_its_name_is_tested_where_it_says(module: str) -> None:
    name = place_of(module)
    assert name is not None, f"no test: write {own_test(module).relative_to(ROOT)}"

    test = ROOT / "tests" / TESTED_BY[name]
    assert module in reached(name_of(test))


def test_the_table_has_no_line_that_nothing_needs() -> None:
    assert {place_of(module) for module in LARGE} == set(TESTED_BY)
