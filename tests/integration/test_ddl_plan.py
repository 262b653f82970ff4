"""`ddl plan` leaves nothing behind, whatever it is given."""

import pytest

from gauss_cdc.ddl_plan import plan
from producer.drivers import catalog
from producer.drivers.postgres_dial import parse_dsn
from producer.drivers.registry import Registry
from producer.errors import SourceError
from producer.options import Options
from tests.services_fixtures import execute


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN c int; COMMIT",
        "COMMIT; DROP TABLE t",
        "END; ALTER TABLE t ADD COLUMN c int; BEGIN",
        "ALTER TABLE t ADD COLUMN c int $plan$; END $outerplan$; COMMIT",
    ],
)
def test_a_text_cannot_make_the_rehearsal_real(
    postgres_url: str, registry_url: str, topic_prefix: str, statement: str
) -> None:
    execute(postgres_url, "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t")
    arguments = parse_dsn(postgres_url)
    options = Options(arguments, topic_prefix, "pub", topic_prefix, {}, registry_url)
    connection = catalog.connect(arguments)
    try:
        with pytest.raises(SourceError):
            plan(options, connection, Registry(registry_url), statement, target="postgres")
        with connection.cursor() as cursor:
            cursor.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'public.t'::regclass"
                           " AND attnum > 0")  # fmt: skip
            assert cursor.fetchall() == [("id",)]
            cursor.execute("SELECT count(*) FROM pg_event_trigger")
            assert cursor.fetchall() == [(0,)]
    finally:
        connection.close()
