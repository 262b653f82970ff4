"""Connection strings: the one place that knows each setting of a connection.

A source is read over our own wire and by psycopg2, a target by either: both get
their settings from here, so that they mean the same.  A setting of libpq that one
of the two cannot honour is refused by name; nothing is dropped.  libpq would also
take settings from the environment (PGSSLMODE, PGOPTIONS, …), from a service file and
from ~/.pgpass; our own wire reads none of them, so each setting is passed to psycopg2
explicitly.
"""

from __future__ import annotations

import difflib
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

import psycopg2
from psycopg2.extensions import parse_dsn as libpq_parse_dsn

from producer.errors import LoginRefused, SourceError
from producer.sources.password_command import PasswordCommand
from schemas.plaintext import is_loopback
from schemas.secret_file import exposed

SSL_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")
SYSTEM: Final = "system"  # as sslrootcert: the authorities of this machine

# What a server may ask for, in the words of libpq's require_auth; the last three are
# openGauss' and GaussDB's own.
LIBPQ_METHODS: Final = ("password", "md5", "scram-sha-256", "none", "gss", "sspi")
GAUSS_METHODS: Final = ("sha256", "md5-sha256", "sm3")

CHOOSE_LESS: Final = (
    "name a private authority's file by sslrootcert=FILE in the dsn, and connect by a name that "
    "the certificate holds; or choose less: sslmode=verify-ca (any name), require (any "
    "certificate), disable (no TLS)"
)

# Dead peers are detected within a minute, independent of the kernel's defaults.
_KEEPALIVES_IDLE, _KEEPALIVES_INTERVAL, _KEEPALIVES_COUNT = 30, 10, 3  # seconds, seconds, probes
_USER_TIMEOUT_MS: Final = 60_000

# Usual places of the machine's authorities, for a libpq that was built elsewhere.
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, slots=True)
class ConnectionArguments:
    """Where to log in and as whom; never prints the password."""

    host: str = "localhost"  # a name, an address, or a path: the folder of a Unix socket
    port: int = 5432
    hosts: tuple[str, ...] = ()  # PostgreSQL: the servers of a cluster, one of which is meant
    role: Literal["primary", "standby", "any"] = "primary"  # PostgreSQL: which of them
    slot: str = ""  # where several have the role of a reader: the one with this slot
    dbname: str = ""
    user: str = ""
    password: str | None = field(default=None, repr=False)
    password_command: PasswordCommand | None = None  # instead of a password
    hostaddr: str = ""  # connect here, but check the certificate against `host`
    sslmode: str = ""  # "": as `mode` decides
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    sslpassword: str = field(default="", repr=False)
    sslcrl: str = ""
    sslcrldir: str = ""
    ssl_min_protocol_version: str = "TLSv1.2"
    ssl_max_protocol_version: str = ""
    require_auth: str = ""  # names with commas, all or none with `!` before them
    channel_binding: str = "prefer"
    connect_timeout: float = 10.0  # seconds, from the first packet to the end of the login
    keepalives: bool = True
    keepalives_idle: int = _KEEPALIVES_IDLE
    keepalives_interval: int = _KEEPALIVES_INTERVAL
    keepalives_count: int = _KEEPALIVES_COUNT
    tcp_user_timeout: int = _USER_TIMEOUT_MS  # 0: the kernel's
    options: str = ""  # of the server's command line: `-c name=value`
    application_name: str = "gauss-cdc"

    @property
    def is_local(self) -> bool:
        """Is the server on this machine?"""
        return is_loopback(self.hostaddr or self.host)

    @property
    def mode(self) -> str:
        """The sslmode: as the dsn says, else `verify-full` off this machine.

        >>> ConnectionArguments(host="db").mode, ConnectionArguments(host="127.0.0.1").mode
        ('verify-full', 'prefer')
        """
        return self.sslmode or ("prefer" if self.is_local else "verify-full")

    @property
    def is_verified(self) -> bool:
        """Is the server's certificate verified, where there is TLS?"""
        return bool(self.roots)

    @property
    def roots(self) -> str:
        """The file of authorities, libpq's own where the dsn names none, or `system`; "": none."""
        if self.mode in ("disable", "prefer"):
            return ""
        if self.sslrootcert:
            return self.sslrootcert
        usual = _home("root.crt")
        if usual.exists():
            return str(usual)
        return SYSTEM if self.mode.startswith("verify") else ""

    @property
    def asked(self) -> str:
        """What libpq is told: `require_auth`; else no clear text where TLS is not certain.

        >>> ConnectionArguments(host="db", sslmode="disable").asked
        '!password'
        """
        is_certain = self.mode not in ("disable", "prefer") or self.host.startswith("/")
        if self.require_auth or is_certain or (self.mode == "prefer" and self.is_local):
            return self.require_auth
        return "!password"

    @property
    def methods(self) -> frozenset[str] | None:
        """Which login methods are accepted, as `require_auth` says; None: all.

        >>> sorted(ConnectionArguments(require_auth="md5,scram-sha-256").methods)
        ['md5', 'scram-sha-256']
        """
        if not self.require_auth:
            return None  # our own wire gives no password in clear text without TLS
        names = [name.strip() for name in self.require_auth.split(",")]
        if names[0].startswith("!"):
            return frozenset((*LIBPQ_METHODS, *GAUSS_METHODS)) - {name[1:] for name in names}
        return frozenset(names)

    def current_password(self) -> str | None:
        """Return the password of a login that begins now; see `PasswordCommand` for errors."""
        return self.password if self.password_command is None else self.password_command()

    def check_files(self) -> None:
        """Raise LoginRefused where a file that the dsn names cannot be used."""
        named = {
            "sslrootcert": "" if self.roots == SYSTEM else self.roots,
            "sslcrl": self.sslcrl,
            "sslcrldir": self.sslcrldir,
            "sslcert": self.sslcert,
            "sslkey": self.sslkey,
        }
        for name, path in named.items():
            # libpq ignores a list of revoked certificates that it cannot read.
            if path and not os.access(path, os.R_OK):
                raise LoginRefused(
                    "a certificate file cannot be read",
                    hint="check sslrootcert (a file, or `system`), sslcert, sslkey and sslcrl",
                    setting=name,
                    file=path,
                )
        if self.sslkey and (why := exposed(self.sslkey)):
            raise LoginRefused("the private key is not one", hint=why)

    def libpq(self) -> dict[str, Any]:
        """The same as keyword arguments of psycopg2.connect.

        Raises LoginRefused for files that cannot be used, SourceError for what libpq lacks.
        """
        if any(name.strip("!") in GAUSS_METHODS for name in self.require_auth.split(",")):
            raise SourceError(
                "require_auth names a login method of openGauss and GaussDB only",
                hint=f"one of {', '.join(LIBPQ_METHODS)}",
                require_auth=self.require_auth,
            )
        self.check_files()
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "dbname": self.dbname,
            "user": self.user,
            "sslmode": self.mode,
            "ssl_min_protocol_version": self.ssl_min_protocol_version,
            "channel_binding": self.channel_binding,
            "connect_timeout": max(2, round(self.connect_timeout)),
            "keepalives": int(self.keepalives),
            "keepalives_idle": self.keepalives_idle,
            "keepalives_interval": self.keepalives_interval,
            "keepalives_count": self.keepalives_count,
            "tcp_user_timeout": self.tcp_user_timeout,
            "application_name": self.application_name,
            "options": self.options,
            "sslrootcert": _bundle() if self.roots == SYSTEM else self.roots,
            "sslcertmode": "allow" if self.sslcert else "disable",
            # Settings that our own wire does not know; libpq might take them from the environment.
            "gssencmode": "disable",
            "target_session_attrs": "any",
            "load_balance_hosts": "disable",
            "requirepeer": "",
            "passfile": _NO_FILE,
        }
        if self.asked:  # empty it would exclude every method
            settings["require_auth"] = self.asked
        # An empty setting differs from a missing one, which libpq takes from the environment.
        settings |= {name: getattr(self, name) or "" for name in _AS_SAID}
        return settings | {"password": self.current_password() or ""}


_AS_SAID: Final = (
    *("hostaddr", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslcrldir"),
    "ssl_max_protocol_version",
)
# libpq warns about a file that is not a regular one; for an empty name it takes ~/.pgpass.
_NO_FILE: Final = f"{os.devnull}/none"


def parse_dsn(
    dsn: str, password: str | None = None, *, sslpassword: str = "", is_cluster: bool = False
) -> ConnectionArguments:
    """Read a postgresql:// URI or a key=value string; the given secrets win over those in it.

    `is_cluster`: it may name several hosts, of which one is the primary.
    Raises SourceError for a setting we would have to ignore.
    """
    if unknown := [name for name in names_in(dsn) if name not in _KNOWN and name not in _REFUSED]:
        near = difflib.get_close_matches(unknown[0], _KNOWN, n=1)
        raise SourceError(
            "the dsn has unknown settings",
            hint=f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(_KNOWN))}",
            names=",".join(unknown),
        )
    try:
        given: Mapping[str, str] = libpq_parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # The text of the error repeats the dsn, which may hold a password.
        raise SourceError(
            "the dsn cannot be read", hint="write postgresql://user@host:port/database"
        ) from None
    said = {name: value for name, value in given.items() if value}
    if is_cluster and said.get("target_session_attrs") in ("primary", "read-write"):
        del said["target_session_attrs"]  # which is what we look for
    for name in said:
        if name in _REFUSED:
            raise SourceError("the dsn has an unsupported setting", hint=_REFUSED[name], name=name)
    host, port = said.get("host", "localhost"), said.get("port", "5432")
    hosts: tuple[str, ...] = ()
    if "," in host + port + said.get("hostaddr", ""):
        if not is_cluster or "hostaddr" in said:
            raise SourceError(
                "the dsn names several hosts", hint="name the primary only", host=host
            )
        hosts = _listed(host, port)
        said = {**said, "host": host.partition(",")[0], "port": port.partition(",")[0] or "5432"}
        host = said["host"]
    if not (user := said.get("user", "")):
        raise SourceError("the dsn names no user", hint="write postgresql://user@host/database")
    taken: dict[str, Any] = {"host": host, "user": user, "dbname": said.get("dbname", user)}
    for name, read in _KNOWN.items():
        if name in said and name not in taken:
            try:
                taken[name] = read(said[name])
            except ValueError as error:
                raise SourceError(f"the dsn's {name} {error}", host=host) from None
    taken["hosts"] = hosts
    known = {one.name for one in fields(ConnectionArguments)}
    if "fallback_application_name" in taken:
        taken.setdefault("application_name", taken["fallback_application_name"])
    if taken.get("connect_timeout") == 0.0:
        del taken["connect_timeout"]
    if password is not None:
        taken["password"] = password
    if sslpassword:
        taken["sslpassword"] = sslpassword
    arguments = ConnectionArguments(**{name: taken[name] for name in taken.keys() & known})
    _judge(arguments)
    return _with_usual_files(arguments)


def _listed(hosts: str, ports: str) -> tuple[str, ...]:
    """The hosts of a dsn, each with its port: as libpq takes them.

    >>> _listed("db1,::1", "5432"), _listed("db1,db2", "1,")
    (('db1:5432', '[::1]:5432'), ('db1:1', 'db2:5432'))
    """
    names, given = hosts.split(","), ports.split(",")
    if len(given) not in (1, len(names)) or not all(names):
        raise SourceError("the dsn has not as many ports as hosts", hosts=hosts, ports=ports)
    each = given * len(names) if len(given) == 1 else given
    return tuple(
        f"{f'[{name}]' if ':' in name else name}:{port or 5432}"
        for name, port in zip(names, each, strict=True)
    )


def names_in(dsn: str) -> list[str]:
    """The settings that a dsn names, known or not; an unreadable one names none.

    >>> names_in("postgresql://u@h/db?sslmode=require&p%61ssword=x")
    ['sslmode', 'password']
    """
    if dsn.startswith(("postgresql://", "postgres://")):
        query = dsn.partition("?")[2]
        return [unquote(part.partition("=")[0]) for part in query.split("&") if part]
    return [name for name, _ in _PAIR.findall(dsn)]


_PAIR: Final = re.compile(r"\s*([^\s=]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)", re.DOTALL)


def _judge(arguments: ConnectionArguments) -> None:
    """Raise SourceError for contradictory settings."""
    if arguments.sslrootcert == SYSTEM and arguments.mode in ("verify-ca", "require"):
        raise SourceError(
            "sslrootcert=system needs sslmode=verify-full",
            hint="public authorities certify every name: the name must be checked",
            sslmode=arguments.mode,
        )
    newest = arguments.ssl_max_protocol_version
    if newest and newest < arguments.ssl_min_protocol_version:
        raise SourceError("ssl_max_protocol_version is below ssl_min_protocol_version")
    names = arguments.require_auth.split(",") if arguments.require_auth else []
    if len({name.strip().startswith("!") for name in names}) > 1:
        raise SourceError("require_auth negates some of its methods: all of them, or none")
    methods = arguments.methods
    is_bound = arguments.channel_binding == "require"
    if is_bound and methods is not None and "scram-sha-256" not in methods:
        raise SourceError("channel_binding=require needs scram-sha-256 in require_auth")
    if arguments.sslkey and not arguments.sslcert:
        raise SourceError("the dsn has sslkey without sslcert", hint="name the certificate as well")


def _with_usual_files(arguments: ConnectionArguments) -> ConnectionArguments:
    """Fill in the files that libpq takes from its own folder where the dsn names none."""
    found: dict[str, Any] = {}
    if not arguments.sslcert and (usual := _home("postgresql.crt")).exists():
        found["sslcert"] = str(usual)
    if (cert := arguments.sslcert or found.get("sslcert")) and not arguments.sslkey:
        key = _home("postgresql.key")
        found["sslkey"] = str(key) if key.exists() else cert  # one file may hold both
    if not (arguments.sslcrl or arguments.sslcrldir) and (usual := _home("root.crl")).exists():
        found["sslcrl"] = str(usual)
    return replace(arguments, **found)


def _home(name: str) -> Path:
    return Path("~/.postgresql").expanduser() / name


def _bundle() -> str:
    """The machine's authorities as a file: psycopg2's own OpenSSL may look elsewhere."""
    usual = ssl.get_default_verify_paths().cafile
    return next((path for path in (usual, *_BUNDLES) if path and Path(path).is_file()), SYSTEM)


# ---- parsers of values; ValueError says what is wrong, never the value of a secret


def _text(value: str) -> str:
    return value


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not (value.isascii() and value.isdigit() and len(value) < 12):
            raise ValueError("must be a number")
        if not low <= int(value) <= high:
            raise ValueError(f"must be a number of {low} to {high}")
        return int(value)

    return read


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is unknown: one of {', '.join(allowed)}")
        return value

    return read


def _switch(value: str) -> bool:
    return _one_of("0", "1")(value) == "1"


def _methods(value: str) -> str:
    for name in value.split(","):
        _one_of(*LIBPQ_METHODS, *GAUSS_METHODS)(name.strip().removeprefix("!"))
    return value.replace(" ", "")


def _tls(value: str) -> str:
    if value in ("TLSv1", "TLSv1.1"):
        raise ValueError(f"{value} is insecure: TLSv1.2 or TLSv1.3")
    return _one_of("TLSv1.2", "TLSv1.3")(value)


def _utf8(value: str) -> str:
    if value.upper().replace("-", "") not in ("UTF8", "AUTO"):
        raise ValueError("is always UTF8")
    return value


# Each setting of a dsn, and how its value is read.
_KNOWN: Final[Mapping[str, Callable[[str], Any]]] = {
    "host": _text,
    "hostaddr": _text,
    "port": _number(1, 65535),
    "dbname": _text,
    "user": _text,
    "password": _text,
    "sslmode": _one_of(*SSL_MODES),
    "sslrootcert": _text,
    "sslcert": _text,
    "sslkey": _text,
    "sslpassword": _text,
    "sslcrl": _text,
    "sslcrldir": _text,
    "ssl_min_protocol_version": _tls,
    "ssl_max_protocol_version": _tls,
    "require_auth": _methods,
    "channel_binding": _one_of("disable", "prefer", "require"),
    "connect_timeout": lambda value: float(_number(0, 3600)(value)),
    "keepalives": _switch,
    "keepalives_idle": _number(1, 32767),
    "keepalives_interval": _number(1, 32767),
    "keepalives_count": _number(1, 127),
    "tcp_user_timeout": _number(0, 2**31 - 1),
    "options": _text,
    "application_name": _text,
    # These have no effect: the value is always this one; another value is refused.
    "fallback_application_name": _text,
    "client_encoding": _utf8,
    "gssencmode": _one_of("disable"),
    "sslcompression": _one_of("0"),
    "sslsni": _one_of("1"),
    "sslnegotiation": _one_of("postgres"),
}

_HOSTS: Final = "leave it out: [source] hosts names the servers, and role which of them is read"
_SECRET: Final = "use the variables and files for secrets, see docs/security.md"  # noqa: S105
_GSS: Final = "there is no login by GSS: use scram-sha-256, or a client's certificate"
# Settings of libpq that one of our two clients does not support: what to do instead.
_REFUSED: Final[Mapping[str, str]] = {
    "service": "write what the service file says into the dsn",
    "servicefile": "write what the service file says into the dsn",
    "passfile": "use password-file in the configuration",
    "replication": "leave it out: we decide which sessions replicate",
    "target_session_attrs": _HOSTS,
    "load_balance_hosts": _HOSTS,
    "requirepeer": "leave it out: the rights of a socket's folder say who may listen there",
    "sslcertmode": "leave it out: a certificate is sent where sslcert names one",
    "krbsrvname": _GSS,
    "gsslib": _GSS,
    "gssdelegation": _GSS,
    "min_protocol_version": "leave it out: protocol 3.0 is used",
    "max_protocol_version": "leave it out: protocol 3.0 is used",
    "scram_client_key": _SECRET,
    "scram_server_key": _SECRET,
    "oauth_issuer": "there is no login by OAuth to a database: use scram-sha-256",
    "oauth_client_id": "there is no login by OAuth to a database: use scram-sha-256",
    "oauth_client_secret": "there is no login by OAuth to a database: use scram-sha-256",
    "oauth_scope": "there is no login by OAuth to a database: use scram-sha-256",
    "ssl_key_log_file": "leave it out: it would reveal what TLS protects",
    "sslkeylogfile": "leave it out: it would reveal what TLS protects",
    "authtype": "leave it out: it has no effect",
    "tty": "leave it out: it has no effect",
}
