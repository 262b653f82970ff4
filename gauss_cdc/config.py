"""The one TOML file for both halves, and the environment for secrets.

Unknown keys are errors; a loaded configuration never changes; errors name the
file, the line and the reason.  Keys are spelled with hyphens.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Union, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    PrivateAttr,
    SecretStr,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from gauss_cdc import config_targets, kafka_settings
from gauss_cdc.config_serve import ServeSection, listening
from gauss_cdc.config_tables import LoadSection, TablesSection
from gauss_cdc.errors import ConfigError
from gauss_cdc.secrets import from_environment, from_file, option
from producer.secret_words import holds_secret, is_secret
from producer.settings import Duration, Options, Public, Section, duration
from producer.sources.kinds import SOURCES
from producer.sources.section import SourceSection
from schemas import plaintext
from schemas.secret_file import exposed_of
from schemas.topics import Topics
from spark_consumers.security import OWN as JAVA_CLIENT
from spark_consumers.sinks.kinds import SINKS

__all__ = ["Config", "ConfigError", "Section", "duration", "line_of", "load"]

SOURCE_PASSWORD = "GAUSS_CDC_SOURCE_PASSWORD"  # noqa: S105  the variable's name
TARGET_PASSWORD = "GAUSS_CDC_TARGET_PASSWORD"  # noqa: S105
KAFKA_PASSWORD = "GAUSS_CDC_KAFKA_PASSWORD"  # noqa: S105
REGISTRY_CREDENTIALS = "GAUSS_CDC_REGISTRY_CREDENTIALS"

SOURCE_SSL_PASSWORD = "GAUSS_CDC_SOURCE_SSL_PASSWORD"  # noqa: S105
TARGET_SSL_PASSWORD = "GAUSS_CDC_TARGET_SSL_PASSWORD"  # noqa: S105

SERVE_TOKEN = "GAUSS_CDC_SERVE_TOKEN"  # noqa: S105


_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|[a-z0-9]+://.+")


class TypesSection(Section):
    """[types]: how values travel, as Debezium names it. `apply` reads every choice back exactly."""

    decimal_handling: Literal["precise", "string", "double"] = "precise"
    """`numeric` and `money`: Avro decimals, text, or doubles."""

    interval_handling: Literal["numeric", "string"] = "numeric"
    """`interval`: about so many microseconds, or ISO 8601 text such as `P1Y2M3DT4H5M6.78S`."""

    binary_handling: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """`bytea`: bytes, or text."""

    time_precision: Literal["adaptive", "adaptive-time-microseconds", "connect"] = "adaptive"
    """By the column's precision, every `time` in microseconds, or Kafka Connect's types, which end
    at milliseconds."""

    hstore_handling: Literal["json", "map"] = "json"
    """`hstore`: JSON text, or an Avro map."""

    unknown_types: Literal["text", "fail"] = "text"
    """Types that docs/reference/types.md does not name: their text, or an error that names the
    column."""


class DdlSection(Section):
    """[ddl]: schema changes."""

    apply: Literal["none", "tables", "all"] = "tables"
    """What `apply` follows. `tables`: columns, types, keys, unique indexes, renames and drops.
    `all`: also NOT NULL, defaults, indexes, views, functions, sequences and comments, at a target
    of the source's family; your own views on what the source drops go with it. `none`: nothing, you
    alter the target. A type that does not hold the source's stops `apply`."""

    code: bool = False
    """With `apply = "all"`: also functions, procedures, triggers, aggregates, and definitions that
    call anything but the server's own functions that compute. They run with the target's rights.
    Else they are reported."""

    text: bool = False
    """Keep the text of statements, definitions and defaults in `<prefix>.ddl` for ever, with
    passwords and rows that it may contain. Implied by `apply = "all"`."""

    incompatible: Literal["stop", "new-version", "quarantine"] = "stop"
    """A new schema that the registry refuses: stop before its first row; register it all the same;
    or leave the table out, which is then not exact."""


class KafkaSection(Section):
    """[kafka]: topics and delivery."""

    prefix: str
    """Name of the source, with which all topics begin; each source has its own."""

    exactly_once: bool = True
    """Rows and cut in one Kafka transaction. `false`: after a crash plain readers may see rows
    twice; readers of cuts never."""

    messages: bool = False
    """Logical messages of PostgreSQL 14 and newer, as Debezium's `m` records in `<prefix>.message`.
    No cut names them."""

    transaction_metadata: bool = False
    """Debezium's `provide.transaction.metadata`: BEGIN and END in `<prefix>.transaction`, and each
    row's place between them. No cut names them."""

    key: Literal["table", "primary-key"] = "table"
    """Record key: `schema.table`, or the primary key as Avro, for consumers that upsert."""

    partition_by: Literal["table", "primary-key"] = "table"
    """`table`: a table is totally ordered. `primary-key`: it is spread, and each row is ordered."""

    partitions: int = Field(1, ge=1, le=1000)
    """Partitions of a new topic of a table; with `partition-by = "table"` one is used."""

    replication: int = Field(-1, ge=-1)
    """Replication factor of new topics; -1: the broker's default."""

    retention: Duration = timedelta(days=7)
    """How long data topics keep rows. Cuts are kept as long, and at least for 30 days."""

    transaction_timeout: Duration = timedelta(minutes=5)
    """Longest Kafka transaction; a longer source transaction is committed in parts."""

    max_row_bytes: int = Field(8 << 20, ge=1 << 10, le=1 << 30)
    """A larger row stops `run`, or is put aside (tables.unfit-row). Topics are made to take 1 MiB
    more."""

    group_rows: int = Field(20_000, ge=1)
    """A group of source transactions closes at this many rows."""

    group_time: Duration = timedelta(milliseconds=100)
    """It closes at this age, too. An idle source closes it at once."""

    native: Literal["auto", "off"] = "auto"
    """`auto`: native modules, where a C compiler built them. `off`: Python, several times
    slower."""

    client: Options = Field(default_factory=dict)
    """librdkafka's own settings, for every client; `bootstrap.servers` is required. A secret is `{
    env = "VARIABLE" }` or `{ file = "PATH" }`."""

    password: SecretStr = SecretStr("")
    """`sasl.password`, read from GAUSS_CDC_KAFKA_PASSWORD; never printed."""

    password_file: Path | None = None
    """File that holds it; used where the variable is not set."""

    allow_plaintext_login: bool = False
    """Log in by PLAIN or OAUTHBEARER without TLS to brokers on other machines."""

    def client_settings(self) -> dict[str, str | int | float | bool]:
        """Librdkafka's settings, the secret among them."""
        secret = self.password.get_secret_value()
        return {**revealed(self.client), **({"sasl.password": secret} if secret else {})}

    @field_validator("prefix")
    @classmethod
    def _prefix(cls, prefix: str) -> str:
        Topics(prefix)
        return prefix

    @model_validator(mode="after")
    def _client(self) -> KafkaSection:
        if "bootstrap.servers" not in self.client:
            raise ValueError('[kafka.client] needs "bootstrap.servers" = "host:port"')
        set_by_us = {"transactional.id", "enable.idempotence", "acks", "isolation.level"}
        if wrong := set_by_us & set(self.client):
            raise ValueError(f"[kafka.client] {', '.join(sorted(wrong))}: set by us, leave it out")
        return self


class RegistrySection(Section):
    """[registry]: any registry with Confluent's API."""

    url: Public
    """Its base URL. Credentials: GAUSS_CDC_REGISTRY_CREDENTIALS, `user:password`."""

    options: Options = Field(default_factory=dict)
    """Further settings of Confluent's client, as `ssl.ca.location`."""

    credentials: SecretStr = SecretStr("")
    """Read from GAUSS_CDC_REGISTRY_CREDENTIALS; never printed."""

    credentials_file: Path | None = None
    """File that holds `user:password`; used where the variable is not set."""

    allow_plaintext_login: bool = False
    """Send credentials to an `http://` URL of another machine."""

    @field_validator("url")
    @classmethod
    def _url(cls, urls: str) -> str:
        for url in urls.split(","):
            try:
                parts = urlsplit(url.strip())
                is_fit = parts.scheme in {"http", "https"} and bool(parts.hostname)
                is_fit = is_fit and (parts.port is None or parts.port > 0)
            except ValueError:  # no port, or half an IPv6 address
                is_fit = False
            if not is_fit:
                raise ValueError(f"{url!r} is not a registry URL: write http://host:8081")
        return urls

    def client(self) -> dict[str, Any]:
        """Settings of the registry client besides the URL."""
        secret = self.credentials.get_secret_value()
        return {
            **revealed(self.options),
            **({"basic.auth.user.info": secret} if secret else {}),
        }


def _kind_of_sink(name: str) -> str:
    if name not in SINKS:
        raise ValueError(f"unknown kind, one of {', '.join(SINKS)}")
    return name


class TargetSection(Section):
    """[target]: the database that follows."""

    kind: Annotated[str, AfterValidator(_kind_of_sink)] = "postgres"
    """`postgres`; `opengauss` for openGauss and centralized GaussDB, in a database of compatibility
    PG or B; or a lake, `delta` or `iceberg`."""

    dsn: Public
    """Connection string without a password. Of a lake: the folder or URL of its tables, or a
    catalog of Spark's settings."""

    mode: Literal["scd1", "scd2", "log"] = "scd1"
    """What a lake's tables hold: `scd1` the source's rows, `scd2` each state of a row with the
    commits at which it began and ended, `log` all changes."""

    interval: Duration = timedelta(seconds=20)
    """Time from one step of a lake to the next."""

    keep: Duration = timedelta(days=7)
    """How long `read_at` finds the commits of a lake."""

    strict: bool = False
    """One source transaction = one target transaction. Else several whole ones share one."""

    name: Annotated[str, Field(pattern=r"^[\w.-]{0,63}$")] = ""
    """Tells targets of the same topics apart (`--target NAME`, `gauss-cdc snapshot --for NAME`);
    else its kind. Each `[[target]]` of several needs one. Targets of one name take each other's
    loads."""

    listen: Annotated[str, AfterValidator(listening)] = ""
    """`host:port` of its `apply`, in place of [serve] listen. The `apply` of a `[[target]]` answers
    here only."""

    password: SecretStr = SecretStr("")
    """Read from GAUSS_CDC_TARGET_PASSWORD, of a `[[target]]` from GAUSS_CDC_TARGET_PASSWORD_NAME
    with its name in capitals and `_` for `.` and `-`; never printed."""

    password_file: Path | None = None
    """File that holds the password; used where the variable is not set."""

    ssl_password: SecretStr = SecretStr("")
    """Of `sslkey`; read from GAUSS_CDC_TARGET_SSL_PASSWORD, or GAUSS_CDC_TARGET_SSL_PASSWORD_NAME;
    never printed."""

    ssl_password_file: Path | None = None
    """File that holds it; used where the variable is not set."""


class SparkSection(Section):
    """[spark]: how `apply` runs."""

    master: str = "local[*]"
    """Spark master."""

    checkpoint: Public = "state"
    """Folder of the streaming query; each `[[target]]` has one of its name therein. The target's
    ledger decides, not the checkpoint."""

    backlog: Literal["auto", "driver"] = "auto"
    """Who reads what waits: `auto`, Spark's tasks once Spark has started; or the `driver`. For a
    lake it is always executors."""

    executor_secrets: Literal["sent", "own"] = "sent"
    """How executors get the password of Kafka: `sent` by Spark, as a file; or their `own`, in
    GAUSS_CDC_KAFKA_PASSWORD, which wins."""

    options: Options = Field(default_factory=dict)
    """Further Spark settings; those of `spark-submit` win. `kafka.…` is one of Kafka's Java client,
    in place of what `[kafka.client]` is translated to."""

    @field_validator("master")
    @classmethod
    def _master(cls, master: str) -> str:
        if not _MASTER.fullmatch(master):
            raise ValueError(
                f"{master!r} is not a Spark master: write local[*], local[4], spark://host:7077, "
                "yarn or k8s://https://host:443"
            )
        return master


def _kind_of_source(section: object) -> str | None:
    """Find whose section of `SOURCES` it is; None: it is no section."""
    if isinstance(section, SourceSection):
        return section.kind
    return str(section.get("kind", DEFAULT_KIND)) if isinstance(section, dict) else None


DEFAULT_KIND: Final = "postgres"
if TYPE_CHECKING:
    AnySource: TypeAlias = SourceSection
else:
    AnySource = Annotated[
        Union[tuple(Annotated[kind.section, Tag(name)] for name, kind in SOURCES.items())],  # noqa: UP007
        Discriminator(_kind_of_source),
    ]

_ALLOWED: Final = "allow-plaintext-login = true where nobody else reads that network"


class Config(Section):
    """A whole file, with one of its targets; `targets` has one for each."""

    source: AnySource
    tables: TablesSection = TablesSection()
    load: LoadSection = LoadSection()
    types: TypesSection = TypesSection()
    ddl: DdlSection = DdlSection()
    kafka: KafkaSection
    registry: RegistrySection
    target: TargetSection | None = None
    spark: SparkSection = SparkSection()
    serve: ServeSection = ServeSection()

    _others: tuple[Config, ...] = PrivateAttr(())
    _is_listed: bool = PrivateAttr(default=False)  # its target is a [[target]]

    @property
    def targets(self) -> tuple[Config, ...]:
        """The file for each of its targets alone; without any, itself."""
        return (self.with_others(), *self._others) if self.label else (self,)

    @property
    def name(self) -> str:
        """Its target's name among those of the same topics; "": it has none."""
        return "" if self.target is None else self.target.name or self.target.kind

    @property
    def label(self) -> str:
        """Name of its target if that is a [[target]], which tells it from others; else ""."""
        return self.name if self._is_listed else ""

    def only(self, name: str | None) -> Config:
        """Return it for the target of a name, or with None for all; raise ConfigError."""
        if name is None:
            return self
        for one in self.targets:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self.targets) or "none"
        raise ConfigError(f"{name} is no target of this file, which has {names}")

    def single(self, name: str | None) -> Config:
        """Return it for the target of a name, or for its only one; raise ConfigError."""
        if name is None and self._others:
            names = ", ".join(one.name for one in self.targets)
            raise ConfigError(f"this file has several targets: name one by --target, of {names}")
        return self.only(name)

    def with_others(self, others: tuple[Config, ...] = ()) -> Config:
        """Return it as one of several [[target]], and the first of these others."""
        made = self.model_copy()
        made._others, made._is_listed = others, True  # noqa: SLF001  one of this class
        return made

    @property
    def checkpoint(self) -> str:
        """Folder of the query's checkpoint, of its target alone."""
        folder = self.spark.checkpoint
        return f"{folder.rstrip('/')}/{self.label}" if self.label else folder

    @property
    def listens(self) -> list[str]:
        """Where programs of this file listen."""
        own = (one.target.listen for one in self.targets if one.target is not None)
        return [at for at in (self.serve.listen, *own) if at]

    def listening(self, listen: str | None) -> Config:
        """Return it with another [serve] listen, if one is given."""
        if listen is None:
            return self
        serve = self.serve.model_copy(update={"listen": listen})
        return self.model_copy(update={"serve": serve})

    def of_apply(self, listen: str | None) -> Config:
        """Return it for its target's `apply`, which listens there, or where its target says."""
        own = "" if self.target is None else self.target.listen
        return self.listening(own if listen is None and (own or self.label) else listen)

    def shown(self) -> str:
        """Every setting as JSON, secrets as stars; several targets as a list."""
        found = [one.model_dump(mode="json", by_alias=True) for one in self.targets]
        target = [one["target"] for one in found] if self.label else found[0]["target"]
        return json.dumps({**found[0], "target": target}, indent=2, ensure_ascii=False)

    def spark_client(self) -> dict[str, Any]:
        """Settings for `security.java_client`: librdkafka's, and the Java client's own."""
        own = {k: v for k, v in self.spark.options.items() if k.startswith(JAVA_CLIENT)}
        return {**self.kafka.client_settings(), **revealed(own)}

    def plaintext_logins(self) -> Iterator[tuple[list[str], str]]:
        """Find logins that others could read on the network: which key, and why it is refused."""
        if not self.kafka.allow_plaintext_login:
            for name, why in plaintext.of_kafka(self.spark_client()):
                at = ["spark", "options"] if name.startswith(JAVA_CLIENT) else ["kafka", "client"]
                yield [*at, name], f"{why}; or set [kafka] {_ALLOWED}"
        if not self.registry.allow_plaintext_login:
            for name, why in plaintext.of_registry(self.registry.url, self.registry.client()):
                yield ["registry", *name.split("/")], f"{why}; or set [registry] {_ALLOWED}"


def load(path: Path) -> Config:
    """Read a file and the environment; raise ConfigError naming file, line and reason.

    Of several targets the first is its `target`, and `targets` has all.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as exc:
        raise ConfigError(
            f"{path}: {exc.strerror}; name it with --config, or make one with "
            "`gauss-cdc services up --dir DIR`"
        ) from exc
    except ValueError as exc:  # UnicodeDecodeError is one, and so is a name with a zero byte
        raise ConfigError(f"{str(path)!r} is not a text file in UTF-8: {exc}") from exc
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(_not_toml(path, text, str(exc))) from exc
    if not isinstance(listed := raw.get("target"), list):
        return _loaded(raw, path, text)
    texts = [config_targets.alone(text, number) for number in range(len(listed))]

    def refuse(problems: Iterable[config_targets.Problem]) -> None:
        if wrong := [_place(path, texts[n], ["target", key], why) for n, key, why in problems]:
            raise ConfigError("\n".join(wrong))

    refuse(config_targets.misnamed(listed))
    found = [
        _loaded(deepcopy({**raw, "target": one}), path, own, config_targets.variable(one["name"]))
        for one, own in zip(listed, texts, strict=True)
    ]
    if not found:
        raise ConfigError(_place(path, text, ["target"], "write [[target]], and keys below it"))
    refuse(config_targets.together([one.target for one in found], found[0].serve.listen))
    first, *others = found
    return first.with_others(tuple(one.with_others() for one in others))


def _loaded(raw: dict[str, Any], path: Path, text: str, of_target: str = "") -> Config:
    """Read a file of one target; `of_target` ends the names of its secrets' variables."""
    _add_secrets(raw, path, text, of_target)
    _read_options(raw, path, text)
    try:
        config = Config.model_validate(raw)
    except ValidationError as exc:
        # Not `from exc`: it repeats the input, which may wrongly contain a secret.
        reasons = "\n".join(_explain(path, text, error) for error in exc.errors())
        raise ConfigError(reasons) from None
    wrong = [(["source", *key], why) for key, why in config.source.problems()]
    wrong += [(["serve", key], why) for key, why in config.serve.problems()]
    if config.target is not None and (listen := config.target.listen):
        served = config.listening(listen).serve
        wrong += [(["target", key], why) for key, why in served.problems() if key == "listen"]
    if wrong := [*wrong, *config.plaintext_logins()]:
        raise ConfigError("\n".join(_place(path, text, key, why) for key, why in wrong))
    if (refused := kafka_settings.problem(config.kafka.client_settings())) is not None:
        name, why = refused
        where = ["kafka", "client", *([name] if name else [])]
        if "sasl.username" in config.kafka.client and not config.kafka.password.get_secret_value():
            why += f"; the password comes from {KAFKA_PASSWORD}"
        raise ConfigError(_place(path, text, where, why))
    return config


def _not_toml(path: Path, text: str, said: str) -> str:
    """Add the place, as in all other errors; tomllib counts characters at a line's end, too."""
    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", said)
    if found is None:
        return f"{path}: not TOML: {said}"
    line = int(found[1]) if found[1] else text.rstrip().count("\n") + 1
    return f"{path}:{line}: not TOML: {said}"


def _add_secrets(raw: dict[str, Any], path: Path, text: str, of_target: str) -> None:
    for section, key, variable in (
        ("source", "password", SOURCE_PASSWORD),
        ("source", "ssl-password", SOURCE_SSL_PASSWORD),
        ("target", "password", TARGET_PASSWORD + of_target),
        ("target", "ssl-password", TARGET_SSL_PASSWORD + of_target),
        ("kafka", "password", KAFKA_PASSWORD),
        ("registry", "credentials", REGISTRY_CREDENTIALS),
        ("serve", "token", SERVE_TOKEN),
    ):
        values = raw.get(section)
        if not isinstance(values, dict):
            continue
        if key in values:
            raise ConfigError(
                f"{path}:{line_of(text, [section, key])}: {section}.{key}: "
                f"secrets must not be in the file; set {variable}"
            )
        if variable in os.environ:
            values[key] = from_environment(variable)
        elif file := values.get(f"{key}-file"):
            values[key] = _secret(file, path, text, [section, f"{key}-file"])


def _secret(file: object, path: Path, text: str, where: list[str]) -> str:
    """Read a secret from its file; errors never show its content."""
    if not isinstance(file, str):
        raise ConfigError(_place(path, text, where, "write the name of a file"))
    try:
        return from_file(Path(file))
    except ValueError as exc:
        raise ConfigError(_place(path, text, where, str(exc))) from None


# Tables of settings that are not ours: each secret in them is a reference.
_TABLES: Final = (("kafka", "client"), ("registry", "options"), ("spark", "options"))
_WAYS: Final = {
    "sasl.password": f", or set {KAFKA_PASSWORD}",
    "basic.auth.user.info": f", or set {REGISTRY_CREDENTIALS}",
    "sasl.jaas.config": "; better: sasl.mechanism, sasl.username and the password, from which "
    "`apply` makes it",
}


def _read_options(raw: dict[str, Any], path: Path, text: str) -> None:
    """Replace the references of such tables by their secrets."""
    wrong = []
    source = raw.get("source")
    plugin = source.get("options") if isinstance(source, dict) else None
    for name, value in plugin.items() if isinstance(plugin, dict) else ():
        if is_secret(name) or holds_secret(value):
            why = "options of a plugin are not secret, and the file must have none: leave it out"
            wrong.append(_place(path, text, ["source", "options", name], why))
    for where in _TABLES:
        section = raw.get(where[0])
        table = section.get(where[1]) if isinstance(section, dict) else None
        if not isinstance(table, dict):
            continue
        for name, value in table.items():
            try:
                table[name] = option(name, value, way=_WAYS.get(name, ""))
            except ValueError as error:
                wrong.append(_place(path, text, [*where, name], str(error)))
        wrong += [_place(path, text, [*where, name], why) for name, why in exposed_of(table)]
    if wrong:
        raise ConfigError("\n".join(wrong))


def revealed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with their secrets in the clear, for a client only."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in options.items()
    }


# Settings of older releases, and what to write instead.
REMOVED: Final = {
    "kafka.producer": "leave it out: librdkafka writes, with TLS and logins",
    "kafka.min-insync-replicas": "leave it out: min.insync.replicas is set at the broker, or at "
    "a topic by kafka-configs",
    "load.order": "leave it out: tables are loaded by name; `exclude` some, and include them later",
    "load.workers": "leave it out: one session reads a load, as fast as it is written",
    "source.allow-internal-options": "leave it out: such options are taken, with a warning",
    "source.hold-bytes": "leave it out: 64 MiB of a transaction wait in memory, the rest in a file",
    "source.spill-folder": "leave it out: such files are below TMPDIR",
    "source.sql-mode": "leave it out: functions are read by peek, which loses nothing",
    "target.load": "leave it out: a table that is loaded again keeps its rows until the load "
    "ends, and the target needs room for both",
    "spark.linger": "leave it out: it did nothing",
}
_WRITE = {
    "tuple_type": 'write a list, as ["..."]',
    "dict_type": "write a section in brackets, with keys below it",
    "union_tag_not_found": "write a section in brackets, with keys below it",
    "model_type": "write a section in brackets, with keys below it",
    "string_type": "write text in quotes",
}


def _explain(path: Path, text: str, error: Any) -> str:
    where = [str(part) for part in error["loc"]]
    if where[0] == "source" and where[1:2] and where[1] in SOURCES:
        del where[1]  # which of the kinds' sections it is
    reason = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        reason = REMOVED.get(".".join(where)) or _unknown(where)
    elif error["type"] == "union_tag_invalid":
        where, reason = ["source", "kind"], f"unknown kind, one of {', '.join(SOURCES)}"
    elif error["type"] == "missing":
        reason = "required, but missing"
    else:
        reason = _WRITE.get(error["type"], reason)
    return _place(path, text, where, reason)


def _unknown(where: list[str]) -> str:
    """Report an unknown key, with a suggestion and the sections that have it."""
    *sections, key = where
    models: list[type[BaseModel]] = [Config]
    for section in sections:
        fields = {field.alias or name: field for name, field in models[0].model_fields.items()}
        models = list(sections_of(fields[section].annotation)) if section in fields else []
        if not models:
            return "unknown key"
    if sections == ["source"] and (
        having := [n for n, k in SOURCES.items() if key in keys(k.section)]
    ):
        return _only_with(having)
    known = list(dict.fromkeys(key for model in models for key in keys(model)))
    inside = f"[{'.'.join(sections)}]" if sections else "the file"
    if close := get_close_matches(key.replace("_", "-").lower(), known, 1):
        return f"unknown key in {inside}; did you mean {close[0]}?"
    elsewhere = [
        f"[{name}] {key}"
        for name, field in Config.model_fields.items()
        if any(key in keys(other) for other in sections_of(field.annotation))
    ]
    if elsewhere:
        return f"unknown key in {inside}; did you mean {' or '.join(elsewhere)}?"
    shown = [name for name in known if name not in {"password", "credentials", "token"}]
    return f"unknown key in {inside}, which has {', '.join(shown)}"


def keys(model: type[BaseModel]) -> list[str]:
    """Keys of a section, as in the file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def sections_of(annotation: object) -> list[type[Section]]:
    """The section that a field holds, or one of each kind; []: a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    inner = [found for part in get_args(annotation) for found in sections_of(part)]
    return list(dict.fromkeys(inner))


def _only_with(kinds: list[str]) -> str:
    return "only with kind = " + " or ".join(f'"{kind}"' for kind in kinds)


def _place(path: Path, text: str, where: list[str], reason: str) -> str:
    return f"{path}:{line_of(text, where)}: {'.'.join(where)}: {reason}"


def line_of(text: str, where: list[str]) -> int:
    r"""Line of a key, of its section where the key is missing, else 1.

    >>> line_of("[kafka]\nprefix = 1\n", ["kafka", "prefix"])
    2
    """
    best, section = 1, []
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[([^\[\]]+)\]", line):
            section = [part.strip().strip('"') for part in match[1].split(".")]
            if section == where[: len(section)]:
                best = number
        elif (match := re.match(r'\s*("[^"]*"|[\w.-]+)\s*=', line)) and (
            [*section, match[1].strip('"')] == where[: len(section) + 1]
        ):
            return number
    return best
