"""`ddl plan` says what would happen, for each source and target, and leaves nothing behind."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gauss_cdc.cli import cli
from gauss_cdc_lab.emulator.login import Account
from producer.errors import SourceError, Unsupported
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.rehearsal import at_gauss
from producer.sources.postgres import catalog
from producer.sources.postgres.rehearsal import at_postgres
from tests.e2e.gauss_facade import PASSWORD, USER, facade
from tests.e2e.path import ask as query
from tests.services_fixtures import execute

SHAPE = (
    "SELECT attname::text FROM pg_attribute WHERE attrelid = 'public.t'::regclass AND attnum > 0"
)
MADE = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one');"
PUBLISHED = f"{MADE} CREATE PUBLICATION pub FOR TABLE t"
TOML = """\
[source]
kind = "{kind}"
dsn = "{source}"
slot = "{prefix}"
{more}
[tables]
include = ["public.*"]
[kafka]
prefix = "{prefix}"
[kafka.client]
"bootstrap.servers" = "127.0.0.1:1"
[registry]
url = "{registry}"
"""


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
    execute(postgres_url, PUBLISHED)
    arguments = parse_dsn(postgres_url)
    options = Options(arguments, topic_prefix, "pub", topic_prefix, {}, registry_url)
    with closing(catalog.connect(arguments)) as connection, pytest.raises(SourceError):
        at_postgres(options, connection, statement)

    assert query(postgres_url, SHAPE) == [("id",), ("v",)]
    assert query(postgres_url, "SELECT count(*) FROM pg_event_trigger") == [(0,)]


def test_a_rehearsal_takes_the_schema_from_the_role_of_run_alone(
    postgres_url: str, registry_url: str, topic_prefix: str
) -> None:
    """Whoever else made it may have put functions there, which a superuser would call."""
    owner = f"owner_{topic_prefix}"
    execute(postgres_url, f'{PUBLISHED}; CREATE ROLE "{owner}"')
    arguments = parse_dsn(postgres_url)
    options = Options(arguments, topic_prefix, "pub", topic_prefix, {}, registry_url)
    try:
        execute(postgres_url, f'CREATE SCHEMA gauss_cdc AUTHORIZATION "{owner}"')
        with closing(catalog.connect(arguments)) as connection:
            statement = "ALTER TABLE t ADD COLUMN c int"
            with pytest.raises(SourceError, match="schema gauss_cdc is not ours"):
                at_postgres(options, connection, statement)

            assert at_postgres(options, connection, statement, owner).changes
    finally:
        execute(postgres_url, f'DROP OWNED BY "{owner}" CASCADE; DROP ROLE "{owner}"')


# ---- openGauss and GaussDB


@pytest.fixture(params=["gaussdb", "opengauss"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def front(postgres_url: str, kind: str) -> Iterator[str]:
    """A DSN of a server of that family, whose data a real PostgreSQL keeps."""
    execute(postgres_url, MADE)
    profile = "gaussdb" if kind == "gaussdb" else "og7"
    accounts = [Account(USER, PASSWORD, is_admin=True)]
    with facade(postgres_url, profile=profile, accounts=accounts) as server:
        database = postgres_url.rpartition("/")[2]
        yield (f"postgresql://{USER}@127.0.0.1:{server.emulator.port}/{database}?sslmode=disable")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN c int; COMMIT",
        "COMMIT",
        "END",
        "SELECT 1",
        "DO $$ BEGIN COMMIT; END $$",
        "",
    ],
)
def test_only_one_statement_that_changes_the_schema_is_tried(
    front: str, kind: str, statement: str
) -> None:
    arguments = parse_dsn(front, PASSWORD)
    options = Options(arguments, "p", "", "p", {}, "", kind=kind, plugin="mppdb_decoding")
    session = GaussConnection.open(arguments, replication=False)
    with closing(session), pytest.raises(Unsupported, match="only one statement"):
        at_gauss(options, session, statement)


@pytest.fixture
def plan(
    registry_url: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """`ddl plan` of a statement, with a configuration file."""
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    file = tmp_path / "gauss-cdc.toml"

    def run(
        statement: str, *, kind: str, source: str, more: str, target: str = "postgres"
    ) -> Result:
        said = TOML.format(
            kind=kind, source=source, prefix=topic_prefix, registry=registry_url, more=more
        )
        file.write_text(said, encoding="utf-8")
        words = ["ddl", "plan", "--config", str(file), "--target", target, statement]
        return CliRunner().invoke(cli, words)

    return run


REPORTED = 'plugin = "mppdb_decoding"\n[source.options]\n"enable-ddl-decoding" = "true"'


@pytest.mark.parametrize("kind", ["gaussdb"], indirect=True)
def test_gaussdb_says_what_its_statement_does(
    front: str, kind: str, plan: Callable[..., Result], postgres_url: str
) -> None:
    asked = partial(plan, kind=kind, source=front, more=REPORTED)

    added = asked("ALTER TABLE t ADD COLUMN n numeric(9,2) DEFAULT 1.5")
    renamed = asked("ALTER TABLE t RENAME v TO w")
    moved = asked("ALTER TABLE t RENAME TO u;")
    computed = asked("ALTER TABLE t ADD COLUMN n int DEFAULT length('abc')")
    made = asked("CREATE TABLE c (id int PRIMARY KEY, v varchar(5))")
    refused = asked("ALTER TABLE nothing ADD COLUMN n int")

    assert 'ADD COLUMN "n" numeric(9,2)' in added.stdout
    assert "  gap  " not in added.stdout
    assert 'RENAME COLUMN "v" TO "w"' in renamed.stdout
    assert 'ALTER TABLE "public"."t" RENAME TO "u"' in moved.stdout
    assert "  gap  " in computed.stdout
    assert "CREATE TABLE" in made.stdout
    assert '"v" character varying(5)' in made.stdout
    assert 'relation "nothing" does not exist' in str(refused.exception)
    assert [one.exit_code for one in (added, renamed, moved, computed, made)] == [0] * 5
    assert query(postgres_url, SHAPE) == [("id",), ("v",)]


@pytest.mark.parametrize("kind", ["opengauss"], indirect=True)
def test_where_ddl_is_not_decoded_the_first_row_shows_it(
    front: str, kind: str, plan: Callable[..., Result]
) -> None:
    asked = partial(plan, kind=kind, source=front, more='plugin = "mppdb_decoding"')

    added = asked("ALTER TABLE t ADD COLUMN n int")
    renamed = asked("ALTER TABLE t RENAME v TO w")
    rekeyed = asked("ALTER TABLE t RENAME id TO number")
    dropped = asked("DROP TABLE t")

    assert "first row of the new shape" in added.stdout
    assert 'ADD COLUMN "n" integer' in added.stdout
    assert "  gap  " in renamed.stdout
    assert "a column was renamed, or dropped and another added: v went, w came" in renamed.stdout
    assert "renamed, or dropped and another added: id went, number came" in rekeyed.stdout
    assert "no row would show this" in dropped.stdout


# ---- targets of each family

NASTY = "ALTER TABLE t ADD COLUMN n text DEFAULT lower('By ' || session_user)"


@pytest.mark.parametrize("target", ["postgres", "opengauss", "spark"])
def test_a_plan_is_in_the_words_of_the_target(
    target: str, postgres_url: str, topic_prefix: str, plan: Callable[..., Result]
) -> None:
    execute(postgres_url, f"{MADE} CREATE PUBLICATION {topic_prefix} FOR TABLE t")
    published = f'publication = "{topic_prefix}"'
    asked = partial(plan, kind="postgres", source=postgres_url, more=published, target=target)

    added = asked("ALTER TABLE t ADD COLUMN n numeric(9,2)")
    nasty = asked(NASTY)

    quote = "`" if target == "spark" else '"'
    said = [line for line in added.stdout.splitlines() if line.lstrip().startswith("target")]
    assert any(f"{quote}n{quote}" in line for line in said), added.output
    assert ("DECIMAL(9,2)" in added.stdout) == (target == "spark")
    applied = [line for line in nasty.stdout.splitlines() if line.lstrip().startswith("target")]
    assert any("by postgres" in line for line in applied)  # the value, which the source has
    if target == "spark":  # of another family: no text of the source
        assert not any("SESSION_USER" in line.upper() for line in applied)
    assert query(postgres_url, SHAPE) == [("id",), ("v",)]
