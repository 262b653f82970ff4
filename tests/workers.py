"""Which worker of `make test` takes which file, and when.

A file stays on one worker, whose services it shares.  The files that need the Spark session stay
on one, too: a session takes as long as a hundred small tests.  Those of lakes in `make scenes` have
two, for they take longer than all others together.  The longest files come first, so that no worker
is left with one at the end.  Files with services wait more than they compute:
between them stand some without, which compute; the others of these fill the end.
"""

import sys
from collections import OrderedDict
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SERVED: Final = ("tests/e2e/", "tests/integration/")
BETWEEN: Final = 0.5  # of the files without services, beside those with

# Where the `spark` fixture is asked for, by session; the file that takes longest is the first.
SESSION: Final = (
    "tests/integration/test_lakes.py",
    "tests/integration/test_lake_others.py",
    "tests/e2e/test_upsert.py",
    "tests/integration/test_typed_changes.py",
    "tests/integration/test_lanes.py",
    "tests/integration/test_api.py",
    "tests/integration/test_lake_reading.py",
    "tests/integration/test_lake_values.py",
    "tests/integration/test_kafka_tls.py",
    "tests/integration/test_dialect_spark.py",
    "tests/integration/test_services.py",
    "tests/e2e/test_documented_examples.py",
    "tests/e2e/test_in_a_program.py",
)
SECOND_SESSION: Final = (
    "tests/e2e/test_spark_source.py",
    "tests/e2e/test_lake_kills.py",
    "tests/e2e/test_verify_lakes.py",
    "tests/e2e/test_late_target.py",
)
# Tests that compute for half a minute, and share nothing: each goes to whichever worker is free,
# at the end.
APART: Final = ("tests/sim/test_mutations.py",)
# Programs with a Java of their own, compilers, kills: half a minute of CPU and more each.
LONG: Final = (
    "tests/e2e/test_kills.py",
    "tests/e2e/test_cluster.py",
    "tests/e2e/test_examples.py",
    "tests/e2e/test_ten_faults.py",
    "tests/e2e/test_serve.py",
    "tests/e2e/test_page.py",
    "tests/e2e/test_gauss_demo.py",
    "tests/e2e/test_gauss_golden.py",
    "tests/e2e/test_gauss_looks.py",
    "tests/e2e/test_gauss_moments.py",
    "tests/e2e/test_documented_commands.py",
    "tests/e2e/test_several_targets.py",
    "tests/e2e/test_ddl.py",
    "tests/e2e/test_ddl_gaps.py",
    "tests/e2e/test_reader.py",
    "tests/integration/test_wheel.py",
)
# Of `make scenes`: most take minutes of all cores.
SCENES: Final = (
    "tests/integration/test_lakes.py",
    "tests/integration/test_lake_others.py",
    "tests/e2e/test_undone.py",
    "tests/e2e/test_unrepeatable.py",
    "tests/e2e/test_sent_as.py",
    "tests/e2e/test_ten_faults.py",
    "tests/e2e/test_upsert.py",
    "tests/e2e/test_verify_lakes.py",
    "tests/e2e/test_lake_kills.py",
    "tests/e2e/test_restored.py",
    "tests/e2e/test_late_target.py",
    "tests/e2e/test_several_targets.py",
    "tests/e2e/test_promotion.py",
    "tests/e2e/test_examples.py",
    "tests/e2e/test_serve.py",
    "tests/e2e/test_page.py",
    "tests/e2e/test_gauss_demo.py",
    "tests/e2e/test_frozen.py",
    "tests/e2e/test_gauss_rereads.py",
    "tests/e2e/test_gauss_beside.py",
    "tests/e2e/test_gauss_looks.py",
    "tests/e2e/test_gauss_moments.py",
    "tests/e2e/test_beside.py",
    "tests/e2e/test_beside_partitions.py",
    "tests/e2e/test_mend.py",
    "tests/e2e/test_beside_keys.py",
    "tests/e2e/test_marks_that_move.py",
    "tests/e2e/test_spark_source.py",
    "tests/sim/test_mutations.py",
    "tests/e2e/test_cluster.py",
    "tests/e2e/test_kills.py",
    "tests/e2e/test_pipelines.py",
    "tests/e2e/test_newest_server.py",
    "tests/e2e/test_reader.py",
    "tests/e2e/test_reader_faults.py",
    "tests/e2e/test_reader_promotion.py",
    "tests/e2e/test_gauss_golden.py",
    "tests/e2e/test_documented_commands.py",
    "tests/e2e/test_idle.py",
    "tests/e2e/test_debezium_sink.py",
    "tests/integration/test_wheel.py",
    "tests/integration/test_lake_values.py",
    # What owners and strangers do to objects of theirs, and of ours.
    "tests/integration/test_planted.py",
    "tests/integration/test_sink_altered.py",
    "tests/e2e/test_ddl_gaps.py",
    "tests/e2e/test_ddl_trust.py",
    "tests/e2e/test_not_visible.py",
    "tests/e2e/test_rereads.py",
    # Random tables, statements and kills: they search, for as long as they are given.
    "tests/e2e/test_property.py",
    "tests/e2e/test_ddl_random.py",
    "tests/e2e/test_moments.py",
    "tests/e2e/test_roles.py",
    "tests/e2e/test_large_values.py",
    "tests/integration/test_reader.py",
    "tests/integration/test_reader_group.py",
    "tests/integration/test_ranges_random.py",
    "tests/e2e/test_kills_native.py",
)


class ByFile(LoadScopeScheduling):
    """Files by the order of the collection, those with Spark as one."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Hand out what a worker that crashed left, and return the test in which it crashed.

        xdist 3.8 would run that test again, and hand out the files that the worker had ended, too:
        a worker that gets one has nothing to run, never reports, and the run never ends.
        """
        work = self.assigned_work.pop(node)
        left = [tests for tests in work.values() if not all(tests.values())]
        if not left:
            return None
        crashed = next(test for test, ended in left[0].items() if not ended)
        left[0][crashed] = True
        open_work = {scope: tests for scope, tests in work.items() if not all(tests.values())}
        self.workqueue = OrderedDict(open_work | self.workqueue)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give more work to a worker that knows its tests; one that replaces another may not.

        A worker runs a test once it knows the next one, or that there is none.  It gets no file
        before: others may be idle by then.
        """
        if node not in self.registered_collections:
            return
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        with suppress(OSError):  # it has just died: `remove_node` will hand this out again
            super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in SESSION:
            return "Spark"
        if file in APART:
            return nodeid
        return "Spark again" if file in SECOND_SESSION else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asking = {file_of(one) for one in items if "spark" in getattr(one, "fixturenames", ())}
    if others := asking - {*SESSION, *SECOND_SESSION}:
        raise pytest.UsageError(f"tests/workers.py does not name {sorted(others)} of Spark")
    if hasattr(config, "workerinput"):
        places = {
            file: at for at, file in enumerate(order(list(dict.fromkeys(map(file_of, items)))))
        }
        items.sort(key=lambda item: places[file_of(item)])


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def order(files: list[str]) -> list[str]:
    """Files in the order in which workers take them."""
    first = [file for file in (*SESSION, *SECOND_SESSION, *LONG) if file in files]
    served = [file for file in files if file.startswith(SERVED) and file not in first]
    last = [file for file in APART if file in files]
    pure = [file for file in files if not file.startswith(SERVED) and file not in last]
    share = BETWEEN * len(pure) / max(len(served), 1)
    cuts = [round(share * at) for at in range(len(served) + 1)]
    mixed = ((file, *pure[cuts[at] : cuts[at + 1]]) for at, file in enumerate(served))
    return [*first, *chain.from_iterable(mixed), *pure[cuts[-1] :], *last]


if __name__ == "__main__":
    sys.stdout.write(" ".join(SCENES))
