"""PostgreSQL 16 and newer: a standby is read, loads and re-reads included; it is promoted."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from gauss_cdc.sandbox.services import Addresses
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.primary import at_primary
from schemas.tables import TableId
from tests.e2e.path import Path, until
from tests.e2e.test_promotion import TABLES, Load, same
from tests.integration.private_pair import Pair, Server, private_pair


@contextmanager
def read_at_standby(addresses: Addresses, prefix: str, target: str) -> Iterator[tuple[Pair, Path]]:
    with private_pair(*TABLES) as pair:
        url = f"postgresql://postgres@{pair.primary.host},{pair.standby.host}/bank"
        arguments = replace(parse_dsn(url, is_cluster=True), role="standby", slot=prefix)
        with Path(
            addresses, prefix, pair.primary.url, target, include=("public.*",), repair="auto",
            role="standby", look_seconds=0.5,
        ) as path:  # fmt: skip
            path.options = replace(path.options, source=arguments)
            yield pair, path


def ask_for(path: Path, table: str) -> None:
    with closing(catalog.connect(at_primary(path.options.source))) as connection:
        asks = catalog.QueryingConnection(connection)
        requests.ask(asks, path.options.slot, [TableId("public", table)])


def number(server: Server, query: str) -> int:
    ((found,),) = server.ask(query)
    assert isinstance(found, int)
    return found


def test_a_standby_is_loaded_and_streamed_and_promoted(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> None:
    """The primary only writes.  With role "any" the stream continues at the promoted server."""
    pause = threading.Event().wait
    with read_at_standby(addresses, topic_prefix, new_database()) as (pair, path):
        primary, standby = pair.primary, pair.standby
        load = Load(primary)
        until(lambda: load.committed > 50, "a load", pause)
        path.start()
        path.catch_up()
        ours = "SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'logical'"
        assert (standby.ask(ours), primary.ask(ours)) == ([(path.options.slot,)], [])

        primary.ask("ALTER TABLE quiet ADD COLUMN more int")
        primary.ask("INSERT INTO quiet VALUES (2, 'new', 3)")
        ask_for(path, "account")
        open_requests = "SELECT count(*)::int FROM gauss_cdc.snapshot_requests"
        until(lambda: number(primary, open_requests) == 0, "the re-read", pause)
        standby.ask("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                    " WHERE active")  # fmt: skip
        primary.ask("CREATE TABLE later (id int PRIMARY KEY, note text)")
        primary.ask("INSERT INTO later VALUES (1, 'one')")
        published = "SELECT count(*)::int FROM pg_publication_tables WHERE tablename = 'later'"
        until(lambda: number(primary, published) == 1, "the new table", pause)
        primary.ask("INSERT INTO later VALUES (2, 'two')")
        until(lambda: path.catch_up().state == "EXACT", "loaded", pause)

        primary.ask("SELECT pg_current_xact_id()")
        path.arrive()
        primary.stop(signal.SIGKILL)
        load.join()
        pair.promote()
        until(lambda: any("the history" in n for n in path.notes), "the promotion", pause)
        path.stop()
        standby.ask("UPDATE quiet SET note = 'after the promotion'")
        path.options = replace(
            path.options, role="any", source=replace(path.options.source, role="any")
        )
        path.start()
        same(pair, path, ("account", "entry", "quiet", "later"))
        path.stop()
        ledger = path.catch_up_to(0)

    assert (ledger.epoch, ledger.state) == (2, "EXACT")
    notes = "\n".join(path.notes)
    assert "is read again" not in notes, notes
