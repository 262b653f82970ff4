"""Whatever an owner or administrator does at the source, and undoes: equal, or not called exact.

A sequence is a moment (`moments`) or two among random statements and rows; `run` is killed in some
of them, and in some tables are asked for before it: half of the pairs read all in small ranges of
keys, beside the stream.  At every `wait` that says so, in the middle and at the end, the target is
equal but for tables that are called not exact.

    make moments SEQUENCES=5000 SEED=7        finds are printed with their seed and statements
    GAUSS_CDC_MOMENTS_KINDS="schema table"    plays these kinds of moments alone
"""

import os
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from multiprocessing.process import BaseProcess
from operator import attrgetter
from pathlib import Path as File
from typing import Any

import psycopg2

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.services import Addresses
from producer.core.ports import Wish
from producer.errors import CdcError
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from schemas.quoting import literal
from schemas.tables import TableId
from spark_consumers.errors import ApplyError, KafkaDown
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.loop import job
from spark_consumers.sinks.step import COMPARED
from tests.e2e import quick_run
from tests.e2e.ddl_play import START
from tests.e2e.moments import HELD, MORE, Moments
from tests.e2e.path import ask
from tests.e2e.test_ddl import install
from tests.integration.postgres_target import sink_of
from tests.services_fixtures import databases

SEQUENCES = int(os.environ.get("GAUSS_CDC_MOMENTS", "12"))
SEED = int(os.environ.get("GAUSS_CDC_MOMENTS_SEED", "1"))
EACH = 30  # sequences of one pair of databases
PAIRS = 4  # at once: they mostly wait
PATIENCE = 180

TOML = """\
[source]
dsn = "{source}"
slot = "{prefix}"
publication = "{prefix}"
status-interval = "1s"
[tables]
include = ["public.*", "one.*", "two.*"]
[kafka]
prefix = "{prefix}"
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[load]
mode = "{mode}"
rate = 400
[target]
dsn = "{target}"
"""
SOME_KEYS = [(str(n),) for n in range(-2, 40)]  # of whatever table
IN_RANGES = {"range_rows": 20, "beside_bytes": 0}  # no table is too small
PLACE = attrgetter(*COMPARED)  # of a ledger: what it calls exact is said of this place
IS_WHOLE = """
AND (p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate) = (true, true, true, true)
"""  # else `run` and `status` name new tables, which are not captured
PUBLISHED = f"""
SELECT format('%I.%I', schemaname, tablename) FROM pg_publication_tables JOIN pg_publication p
USING (pubname) WHERE pubname = {{0}} AND schemaname IN ('public', 'one', 'two') {IS_WHOLE}
"""
TO_BE_PUBLISHED = f"""UNION
SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname IN ('public', 'one', 'two')
JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
JOIN pg_publication p ON p.pubname = {{0}} {IS_WHOLE}
WHERE c.relkind = 'r' AND NOT c.relispartition AND c.relreplident IN ('d', 'f')
"""  # by `run` itself, as soon as it looks
PUBLICATIONS = ("", "FOR ALL TABLES", "FOR TABLES IN SCHEMA public, one, two")


def unequal(
    source: str, target: str, publication: str, *, is_ours: bool, inexact: set[str]
) -> list[str]:
    """Tables whose columns or rows differ, or that are published and not at the target."""
    out: list[str] = []
    with answering(source) as asks, answering(target) as answers:
        ours, theirs = columns(asks), columns(answers)
        which = (PUBLISHED + (TO_BE_PUBLISHED if is_ours else "")).format(literal(publication))
        published = asks(which)
        captured = {name for (name,) in published if name in ours}
        out += [
            f"{name}: only at the source" for name in sorted(captured - theirs.keys() - inexact)
        ]
        for name in sorted(theirs.keys() - inexact):
            if name not in ours:
                out.append(f"{name}: only at the target")
                continue
            (here, only), (there, _) = ours[name], theirs[name]
            if here != there:
                out.append(f"{name}: columns {here} at the source, {there} at the target")
                continue
            cells = ", ".join(f"{c}::text" for c in sorted(here)) or "1"
            read = f'SELECT ROW({cells})::text COLLATE "C" FROM {{}}{name} ORDER BY 1'
            rows, copies = asks(read.format(only)), answers(read.format(""))
            if rows != copies:
                more, less = Counter(rows), Counter(copies)
                out.append(
                    f"{name}: source only {list(more - less)[:3]}, target {list(less - more)[:3]}"
                )
    return out


@contextmanager
def answering(url: str) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Give what asks a database, by one connection: its session is what costs."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True

        def asks(statement: str) -> list[tuple[Any, ...]]:
            cursor.execute(statement)
            return cursor.fetchall()

        yield asks


def columns(
    asks: Callable[[str], list[tuple[Any, ...]]],
) -> dict[str, tuple[set[str], str]]:
    """Columns of each table whose rows are in the log, partitions among them; and ONLY, or not."""
    found = asks(
        "SELECT format('%I.%I', n.nspname, c.relname), c.relkind = 'p', ARRAY(SELECT"
        " quote_ident(attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0"
        " AND NOT attisdropped AND attgenerated = '') FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'"
        " AND n.nspname !~ '^(pg_|information_schema$|gauss_cdc$)'"
    )
    return {name: (set(names), "" if is_root else "ONLY ") for name, is_root, names in found}


def sent_as_others(source: str, publication: str) -> list[str]:
    """Return partitions that are sent as their root, and roots as their partitions."""
    found = ask(
        source,
        "WITH named AS (SELECT format('%%I.%%I', schemaname, tablename)::regclass AS oid"
        " FROM pg_publication_tables WHERE pubname = %s),"
        # With a key that is not valid a root is not captured, and a mark of its partition stays.
        " sent AS (SELECT oid FROM named WHERE NOT EXISTS (SELECT FROM pg_index"
        " WHERE indrelid = oid AND (indisprimary OR indisreplident) AND NOT indisvalid))"
        " SELECT n.nspname || '.' || c.relname FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relpersistence = 'p' AND c.oid NOT IN (SELECT oid FROM sent)"
        " AND (c.relispartition AND pg_partition_root(c.oid) IN (SELECT oid FROM sent)"
        " OR c.relkind = 'p' AND (SELECT bool_and(t.relid IN (SELECT oid FROM sent))"
        " FROM pg_partition_tree(c.oid) t WHERE t.isleaf))",
        publication,
    )
    return [name for (name,) in found]


class Scene:
    """A source under work, `run` as a program, and the consumer's loop in a thread."""

    def __init__(
        self, addresses: Addresses, prefix: str, source: str, target: str, folder: File, seed: int
    ) -> None:
        self.random = random.Random(seed)
        self.prefix, self.source, self.target = prefix, source, target
        self.seen: Counter[str] = Counter()
        self.log = folder / f"run-{seed}.log"
        self.file = folder / f"{seed}.toml"
        self.tuning = IN_RANGES if seed % 2 else {}
        self.file.write_text(
            TOML.format(
                source=source,
                target=target,
                prefix=prefix,
                kafka=addresses.kafka_bootstrap,
                registry=addresses.registry_url,
                mode="chunks" if seed % 4 == 1 else "snapshot",
            )
        )
        ask(source, START)
        ask(source, MORE)
        ask(source, "CREATE SCHEMA hidden")
        self.kind = self.random.choice(PUBLICATIONS)
        if self.kind:
            root = self.random.choice(("true", "true", "false"))
            ask(
                source,
                f'CREATE PUBLICATION "{prefix}" {self.kind}'
                f" WITH (publish_via_partition_root = {root})",
            )
        self.play = Moments(source, seed, lossy=True)
        self.play.publication = prefix
        client = {"bootstrap.servers": addresses.kafka_bootstrap}
        schema_of = registry_at(addresses.registry_url)
        self.cuts = CutReader(client, prefix, schema_of)
        self.rows = RangeReader(client, prefix, schema_of)
        # A third of the targets get the statements of openGauss's, and are reached as it is.
        self.target_kind = ("postgres", "postgres", "opengauss")[seed % 3]
        self.sink = sink_of(target, prefix, self.target_kind)
        self.applier = job.Applier(self.cuts, self.rows, self.sink)
        self.quiet = threading.Lock()  # held while the target is compared
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self.waits_for = ""  # what the consumer's loop does without
        self.process = self.go()
        self.thread = threading.Thread(target=self._apply, daemon=True)
        self.thread.start()

    def go(self) -> BaseProcess:
        self.process = quick_run.started(self.file, self.log, **self.tuning)
        return self.process

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def close(self) -> None:
        self.over.set()
        self.thread.join(PATIENCE)
        self.process.terminate()
        self.process.join()
        self.play.close()
        for one in (self.cuts, self.rows, self.sink):
            one.close()

    def _apply(self) -> None:
        while not self.over.is_set():
            try:
                with self.quiet:
                    self.applier.drain(self.over.is_set)
                self.waits_for = ""
            except KafkaDown as error:
                self.waits_for = str(error)
                self.over.wait(0.1)  # nothing has made the topics yet
            except (ApplyError, CdcError) as error:
                self.failure = error
                return
            self.cuts.wait(0.2)

    def look(self) -> None:
        """`wait`, then compare what it calls exact."""
        begun = time.monotonic()

        def gives_up(seconds: float) -> bool:
            if self.failure is not None:
                raise self.failure
            assert self.process.is_alive(), self.tail(3000)
            return bool(self.over.wait(min(seconds, 0.1))) or time.monotonic() - begun > PATIENCE

        said: list[str] = []
        found: list[str] | None = None
        with Endpoints(load(self.file)) as places:
            while found is None:
                goal = places.source().goal()
                standing = places.wait(goal, gives_up, lambda _: None, said.append)
                assert standing is not None, (
                    f"wait never ends: {said} {self.waits_for}\n{self.tail(2000)}"
                )
                assert standing.target is not None
                inexact = standing.target.inexact
                with self.quiet:  # what was told is of this very commit, or it is asked again
                    now = places.target()
                    if now is not None and PLACE(now) == PLACE(standing.target):
                        found = unequal(
                            self.source,
                            self.target,
                            self.prefix,
                            is_ours=not self.kind,
                            inexact=set(inexact),
                        )
        self.seen["waits"] += 1
        self.seen["exact" if not inexact else "with marks"] += 1
        self.seen.update(re.sub(r"[ :].*", "", why) + " " + why[-40:] for why in inexact.values())
        assert found == [], f"called exact: {found}\nmarks {dict(inexact)}"

    def tail(self, size: int) -> str:
        return self.log.read_text()[-size:]

    def sequence(self) -> None:
        choose = self.random.random
        if choose() < 0.3:
            self.play.some(self.random.randint(1, 8))
        if choose() < HELD:
            self.play.hold()
        if choose() < 0.3:
            self.ask_for_tables()
        is_killed = choose() < 0.25
        for at in range(self.random.choice((1, 1, 2))):
            if is_killed and at == 0:
                self.kill()
            self.play.moment(lambda: None if is_killed else self.look())
        if is_killed:
            self.go()
        self.look()
        if choose() < 0.2:
            self.settle()

    def ask_for_tables(self) -> None:
        """Have tables read again: the next statements come while their loads are under way."""
        with answering(self.source) as asks:
            names = [TableId(*n.split(".", 1)) for n in sorted(columns(asks)) if '"' not in n]
        wanted = [table for table in names if table.schema in {"public", "one", "two"}]
        if wanted:
            wishes = [Wish(table) for table in self.random.choices(wanted, k=3)]
            some = {one.table: SOME_KEYS for one in wishes if self.random.random() < 0.5}
            said = (f"{one.table}{' by key' if one.table in some else ''}" for one in wishes)
            self.play.done.append(f"asked for: {', '.join(said)}")
            with closing(catalog.connect(parse_dsn(self.source))) as session:
                requests.ask(catalog.QueryingConnection(session), self.prefix, wishes, some)

    def settle(self) -> None:
        """Let marks be mended; what is left is of tables that only a person can mend."""
        end = time.monotonic() + 20
        while time.monotonic() < end and (marks := self.marks()):
            self.over.wait(0.2)
        self.seen["settled" if not marks else "not settled"] += 1
        self.look()
        stuck = self.marks() & set(sent_as_others(self.source, self.prefix))
        assert not stuck, f"nothing ends these marks: {stuck}"

    def marks(self) -> set[str]:
        ledger = self.applier.ledger
        return set() if ledger is None else set(ledger.inexact)


def play(part: int, addresses: Addresses, folder: File) -> tuple[Counter[str], str]:
    """Play the sequences of one pair of databases; return what was seen, and what was found."""
    with databases(addresses) as new_database:
        seed = SEED + part
        prefix = f"moments{os.getpid()}x{seed}"
        scene = Scene(addresses, prefix, new_database(), new_database(), folder, seed)
        return scene.seen, played(scene, seed, min(EACH, SEQUENCES - part * EACH))


def played(scene: Scene, seed: int, count: int) -> str:
    """Play sequences; return what was found, with what led to it."""
    at, began = 0, 0
    try:
        scene.look()
        if scene.random.random() < 0.5:
            install(scene.source, scene.prefix, include=("public.*", "one.*", "two.*"))
            scene.play.has_triggers = True
        for at in range(count):  # noqa: B007  it is told
            began = len(scene.play.done)
            scene.sequence()
    except Exception as error:  # noqa: BLE001  with what led to it
        done = "\n".join(scene.play.done[max(0, began - 30) :])
        kind = scene.kind or "a list of our own"
        return (
            f"seed {seed}, sequence {at}, {kind}, triggers {scene.play.has_triggers},"
            f" target as {scene.target_kind}:"
            f"\n{done}\n{error!r} {error}\n{scene.tail(1500)}"
        )
    finally:
        scene.play.release()  # a slot waits for whoever is open in any database
        scene.close()
    return ""


def test_what_is_done_and_undone_at_the_source_is_equal_or_not_called_exact(
    addresses, new_database, tmp_path, capsys
) -> None:
    seen: Counter[str] = Counter()
    for statement in (
        "CREATE ROLE moments",
        "CREATE ROLE moments_super SUPERUSER",
        "CREATE TABLESPACE moments LOCATION ''",
    ):
        # They are of the cluster: an earlier run may have made them.
        with suppress(psycopg2.Error), closing(psycopg2.connect(new_database())) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SET allow_in_place_tablespaces = on")
                cursor.execute(statement)
    finds: list[str] = []
    with ThreadPoolExecutor(PAIRS) as pairs:
        parts = [
            pairs.submit(play, part, addresses, tmp_path) for part in range(-(-SEQUENCES // EACH))
        ]
        for part in as_completed(parts):
            seen_there, found = part.result()
            seen += seen_there
            finds += [found] if found else []
            if SEQUENCES > EACH:
                with capsys.disabled():
                    sys.stdout.write(f"\nmoments: {seen['waits']} waits {found}\n")
    with capsys.disabled():
        sys.stdout.write(f"\nmoments: {SEQUENCES} sequences from seed {SEED}: {dict(seen)}\n")
    assert finds == [], "\n\n".join(finds)
