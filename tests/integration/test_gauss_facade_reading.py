"""Catalog, first load and SQL functions against a server that answers like openGauss.

It is the emulator's facade over a real PostgreSQL, which shares no code with what
reads it here; what openGauss itself answers is not proven by it.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import psycopg2
import pytest

from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.emulator.model import PROFILES
from gauss_cdc_lab.emulator.product import EmulatedProduct
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.upstream import Address
from gauss_cdc_lab.services import Addresses
from producer.core.changes import Cells
from producer.sources.decoders import NAMING, Format
from producer.sources.dial import ConnectionArguments, parse_dsn
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.decoders.messages import NamedChange, TxCommit
from producer.sources.gauss.functions import FunctionStream
from producer.wire.replication import WalMessage
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.gauss_cdc_lab.emulator.running import Running

USER, PASSWORD = "cdc", "Gauss@123"
TABLE = TableId("public", "t")


@pytest.fixture
def server(addresses: Addresses, postgres_url: str) -> Iterator[ConnectionArguments]:
    """An openGauss whose data a database of PostgreSQL keeps."""
    upstream = Address.parse(addresses.postgres_url())
    product = EmulatedProduct(PROFILES["og7"])

    async def make() -> Emulator:
        gate = Gate([Account(USER, PASSWORD, is_admin=True)])
        return Emulator(product, Facade(upstream, product), gate)

    with Running(make) as running:
        dsn = f"postgresql://{USER}@127.0.0.1:{running.emulator.port}"
        database = postgres_url.rsplit("/", 1)[1].split("?", maxsplit=1)[0]
        yield parse_dsn(f"{dsn}/{database}?sslmode=disable", PASSWORD)


def run(url: str, *statements: str) -> None:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


def ordinary(server: ConnectionArguments) -> GaussConnection:
    return GaussConnection.open(server, replication=False)


CREATE = 'CREATE TABLE public.t (id int PRIMARY KEY, v varchar(9) UNIQUE, "N" numeric(10,2)[])'


def test_a_first_load_under_the_slots_own_snapshot(
    server: ConnectionArguments, postgres_url: str, topic_prefix: str
) -> None:
    with closing(ordinary(server)) as asking:  # the facade prepares the database
        run(postgres_url, CREATE, "INSERT INTO public.t VALUES (1, 'a''b\"\\', '{.5,NULL}')")
        assert gauss_catalog.expand(asking, ["public.*"]) == [TABLE]
        with GaussConnection.open(server) as maker:
            made = maker.create_slot(topic_prefix, "mppdb_decoding")
            run(postgres_url, "INSERT INTO public.t VALUES (2, NULL, NULL)")
            rows: list[Cells] = []
            with gauss_snapshot.imported(partial(ordinary, server), made.snapshot) as reading:
                (shape,) = reading.shapes([TABLE])
                reading.copy_rows(TABLE, shape.columns, rows.extend)
                encoding = reading.encoding

    assert rows == [[b"1", b"a'b\"\\", b"{0.50,NULL}"]]
    assert (shape.key, shape.identity_columns, encoding) == (("id",), ("id",), "UTF8")
    assert [(c.name, c.type_oid, c.type_name) for c in shape.columns] == [
        ("id", 23, "integer"),
        ("v", 1043, "character varying(9)"),
        ("N", 1231, "numeric(10,2)[]"),
    ]


def until_row(stream: FunctionStream, count: int) -> list[WalMessage]:
    """Messages up to the COMMIT behind so many rows."""
    messages: list[WalMessage] = []
    while sum(m[2].startswith(b"{") for m in messages) < count or not messages[-1][2].startswith(
        b"COMMIT"
    ):
        messages += stream.receive(60).messages
    return messages


def test_functions_give_what_the_decoders_read_and_move_the_slot(
    server: ConnectionArguments, postgres_url: str, topic_prefix: str
) -> None:
    with closing(ordinary(server)), GaussConnection.open(server) as maker:
        run(postgres_url, CREATE)
        maker.create_slot(topic_prefix, "mppdb_decoding")
    run(
        postgres_url,
        "INSERT INTO public.t VALUES (1, 'a', NULL)",
        "UPDATE public.t SET id = 2",
        "DELETE FROM public.t",
    )
    open_stream = partial(
        FunctionStream,
        slot=topic_prefix,
        options=(("include-xids", "true"), ("include-timestamp", "true")),
        poll_seconds=0,
        patience_seconds=0,
    )

    with closing(open_stream(ordinary(server))) as stream:
        given = until_row(stream, 3)
        commits = [at for at, m in enumerate(given) if m[2].startswith(b"COMMIT")]
        stream.send_status(Lsn(given[commits[-2]][0]))  # all but the last transaction
    with closing(open_stream(ordinary(server))) as stream:
        again = until_row(stream, 1)

    naming = NAMING["mppdb_decoding", ""](Format("mppdb_decoding"))
    reported = [naming.decode(at, r) for start, _, p in given for at, r in naming.split(start, p)]
    changes = [one for one in reported if isinstance(one, NamedChange)]
    ends = [one for one in reported if isinstance(one, TxCommit)]
    assert [(c.op, c.new and c.new.cells, c.old and c.old.cells) for c in changes] == [
        ("c", [b"1", b"a", None], None),
        ("u", [b"2", b"a", None], [b"1"]),
        ("d", None, [b"2"]),
    ]
    assert all(end.xid and end.csn and end.committed_at for end in ends)
    assert again == given[commits[-2] + 1 :]
