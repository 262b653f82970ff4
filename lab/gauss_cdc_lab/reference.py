"""The documents' tables, made from the code: `python -m gauss_cdc_lab.reference [--check]`.

Each stands between `<!-- begin: NAME -->` and `<!-- end -->`; a test runs the check.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from gauss_cdc import config
from gauss_cdc.cli import cli
from gauss_cdc.serve.alarms import ALARMS
from gauss_cdc.serve.table import METRICS, PREFIX, Measured
from producer import errors as producer_errors
from producer.acls import acls
from producer.sources.gauss.gaps import CASES, DecodingMode
from producer.sources.gauss.options import OPTIONS, Decoding, Option, Treatment, Use, Vendor
from producer.sources.gauss.options.table import OptionKind
from producer.sources.gauss.recorded import evidence_rows
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.gaps import GAPS
from producer.sources.postgres.options import PgoutputTreatment
from schemas.errors import Verdict
from schemas.tables import Column, UserType
from schemas.types import BY_OID, AvroType, SqlType, TypeOptions, extensions, type_of
from spark_consumers import errors as consumer_errors
from spark_consumers.security import TABLE as SETTINGS

ROOT: Final = Path(__file__).parents[2]
_BLOCK: Final = re.compile(r"(<!-- begin: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _table(head: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = [_row(*head), "|" + " --- |" * len(head)]
    return "\n".join([*lines, *(_row(*row) for row in rows)]) + "\n"


def _grouped(rows: Iterator[tuple[str, ...]], between: str = ", ") -> Iterator[tuple[str, ...]]:
    """Rows that differ in their first cell only, as one row with all of these."""
    found: dict[tuple[str, ...], list[str]] = {}
    for first, *others in rows:
        found.setdefault(tuple(others), []).append(first)
    return ((between.join(firsts), *others) for others, firsts in found.items())


def commands() -> str:
    """Every command with the first sentence of its help."""

    def walk(group: click.Group, path: str) -> Iterator[str]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from walk(command, f"{path}{name} ")
            else:
                yield f"- `{path}{name}`: {command.get_short_help_str(limit=200)}\n"

    return "".join(walk(cli, ""))


_SECRETS: Final = {"password", "ssl-password", "credentials", "token"}


def settings() -> str:
    """Every key of the configuration file but those of secrets."""

    def lines() -> Iterator[str]:
        for section, field in config.Config.model_fields.items():
            yield f"\n## [{section}]\n"
            models = config.sections_of(field.annotation)
            meanings = {k: v for model in models for k, v in _docstrings(model).items()}
            settings = {k: v for model in models[::-1] for k, v in model.model_fields.items()}
            for name in dict.fromkeys(name for model in models for name in model.model_fields):
                setting = settings[name]
                key = setting.alias or name
                if key.removesuffix("-file") in _SECRETS:
                    continue  # docs/security.md has them all
                if setting.is_required():
                    default = " (required)"
                else:
                    value = setting.get_default(call_default_factory=True)
                    default = f" (`{_plain(value)}`)" if value or value is False else ""
                yield f"- **{key}**{default}: {' '.join(meanings.get(name, '').split())}"

    return "\n".join([*lines(), "\n"])


def _docstrings(model: type[config.Section]) -> dict[str, str]:
    """The text below each attribute; pydantic would read its sources at every start."""
    found: dict[str, str] = {}
    for base in model.__mro__[::-1]:
        if not issubclass(base, config.Section):
            continue
        (section,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(section, ast.ClassDef)
        for before, node in itertools.pairwise(section.body):
            match before, node:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = text
    return found


def _plain(value: object) -> str:
    """Default values as in the file."""
    seconds = getattr(value, "total_seconds", None)
    if seconds is None:
        return value if isinstance(value, str) else json.dumps(value)
    total = seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if total >= size and total % size == 0:
            return f"{total / size:g}{unit}"
    return f"{total * 1000:g}ms" if total else "0s"


def options() -> str:
    """Every decoding option of openGauss and GaussDB, a table for both and one for GaussDB."""
    both = [option for option in OPTIONS if _uses(option, Vendor.OPENGAUSS)]
    only = [option for option in OPTIONS if option not in both]
    return f"{_options(both)}\nOf GaussDB alone:\n\n{_options(only)}"


def _options(found: list[Option]) -> str:
    def lines() -> Iterator[str]:
        for option in found:
            values = "" if option.kind is OptionKind.BOOLEAN else f" {option.range}"
            default = f" ({default})" if (default := _default(option)) else ""
            said = [option.meaning, *(_sentence(each) for each in _remarks(option) if each)]
            yield f"- **{option.name}**{values}{default}: {' '.join(said)}\n"

    return "".join(lines())


def pgoutput() -> str:
    """Every option of PostgreSQL's pgoutput."""

    def lines() -> Iterator[str]:
        for option in pgoutput_options.OPTIONS:
            since = f" from {option.since} on:" if option.since > 10 else ""
            default = f" ({option.default})" if option.default else ""
            said = [option.meaning]
            if option.treatment is not PgoutputTreatment.YOURS:
                said.append(_sentence(f"{option.treatment}: {option.why}"))
            yield f"- **{option.name}**{since} {option.all_values}{default}: {' '.join(said)}\n"

    return "".join(lines())


def support() -> str:
    """Which decoding modes were recorded on a real server, and what was not, by its evidence."""
    proven, found = [], dict[str, list[str]]()
    for what, seen, by in evidence_rows():
        if seen == "proven":
            proven.append(f"- {what}\n")
        else:  # `run` says the rest of a line
            found.setdefault(by, []).append(what.partition(":")[0])
    unproven = (f"- {by}: {'; '.join(whats)}.\n" for by, whats in found.items())
    return "".join([*proven, "\nUnproven, and where it comes from:\n\n", *unproven])


def _uses(option: Option, product: Vendor) -> tuple[Use, ...]:
    """Serial, parallel, SQL functions; nothing where the product does not have it."""
    uses = tuple(option.use(product, mode) for mode in Decoding)
    return () if set(uses) == {Use.REFUSED} else uses


def _default(option: Option) -> str:
    """That of serial decoding, or of the first mode that has one; behind it those that differ."""
    found = {mode: option.server_default(mode) for mode in Decoding if option.server_default(mode)}
    first = next(iter(found.values()), "")
    return "; ".join([first, *(f"{k}: {text}" for k, text in found.items() if text != first)])


# Modes that take an option, where not all do; the page says what else is done with it.
_MODES: Final[dict[tuple[Use, ...], str]] = {
    (Use.TAKEN, Use.TAKEN, Use.IDLE): "no effect in SQL functions",
    (Use.TAKEN, Use.TAKEN, Use.REFUSED): "streams only",
    (Use.REFUSED, Use.TAKEN, Use.REFUSED): "parallel decoding only",
    (Use.IDLE, Use.TAKEN, Use.IDLE): "effect in parallel decoding only",
    (Use.IDLE, Use.REFUSED, Use.TAKEN): "",  # its meaning says so
    (Use.TAKEN, Use.TAKEN, Use.TAKEN): "",
}
_DECIDES: Final = {
    Treatment.YOURS: "",
    Treatment.SENT: "always sent",
    Treatment.OURS: "set by us",
    Treatment.INTERNAL: "internal",
    Treatment.REFUSED: "refused",
}


def _remarks(option: Option) -> Iterator[str]:
    """Where it is taken, and who decides about it."""
    uses = _uses(option, Vendor.GAUSSDB)
    if option.opengauss_since:
        yield f"from openGauss {option.opengauss_since} on, not of GaussDB"
    yield _MODES[uses or _uses(option, Vendor.OPENGAUSS)]
    yield "data nodes only" if option.dn_only else ""
    yield "no effect at a coordinator" if option.dn_effect else ""
    yield ": ".join(filter(None, (_DECIDES[option.treatment], option.why)))
    yield "removes changes" if option.removes else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def losses() -> str:
    """What a stream of openGauss or GaussDB does not carry."""
    ways = {
        "GaussDB, DDL decoded": DecodingMode(Vendor.GAUSSDB, decodes_ddl=True),
        "GaussDB": DecodingMode(Vendor.GAUSSDB),
        "openGauss, DDL published": DecodingMode(Vendor.OPENGAUSS, decodes_ddl=True),
        "openGauss": DecodingMode(Vendor.OPENGAUSS),
        "openGauss, parallel": DecodingMode(Vendor.OPENGAUSS, parallel=True, style="b"),
    }

    def rows() -> Iterator[tuple[object, ...]]:
        for case in CASES:
            kinds = [case.kind(way) for way in ways.values()]
            if any(kinds):  # the others depend on options, and are listed there
                evidence, _, remedy = case.by.partition("; ")
                what = f"{case.what} ({remedy})" if evidence == "none" else case.what
                yield what, *((kind or "") for kind in kinds)

    return _table(("what", *ways), rows())


def postgres_gaps() -> str:
    """What PostgreSQL does not send, by what becomes of it."""
    found: dict[str, list[str]] = {}
    for gap in GAPS:
        how = f"{gap.with_triggers or 'exact'}* with event triggers, *{gap.inferred or 'exact'}"
        found.setdefault(f"\n*{how}* without:\n", []).append(f"- {gap.case}")
    return "".join("\n".join([how, *cases, ""]) for how, cases in found.items())


def types() -> str:
    """Every type and how it travels."""

    def rows() -> Iterator[tuple[str, ...]]:
        seen = set()
        for oid, entry in BY_OID.items():
            if entry.name in seen or entry.name.endswith("[]"):
                continue
            seen.add(entry.name)
            column = Column("c", oid)
            yield f"`{entry.name}`", f"`{_avro(entry.avro(column))}`{_choices(entry, column)}"
        for name, entry in extensions.BY_NAME.items():
            column = Column("c", 0, user_type=UserType("b", name))
            yield f"`{name}`", f"`{_avro(entry.avro(column))}`{_choices(entry, column)}"
        yield "enums", f"`{_avro(type_of(_MOOD).avro(_MOOD))}`, labels in `allowed`"
        yield "domains", "as what they are made of"
        yield "arrays of all these", "`array`, elements may be NULL"
        unknown = _avro(type_of(Column("c", 0)).avro(Column("c", 0)))
        yield "any other (composites, ranges of users)", f"`{unknown}`, or an error"

    return "".join(f"- {': '.join(row)}\n" for row in _grouped(rows()))


_MOOD: Final = Column("c", 0, user_type=UserType("e", "mood", labels=("sad", "ok")))


def _choices(entry: SqlType, column: Column) -> str:
    """What the options of [types] make of a type."""
    keys = {name.partition("-")[0]: name for name in map(_hyphened, TypeOptions.__slots__)}
    return "".join(
        f"; `{keys[option]} = {value}`: `{_avro(variant.avro(column))}`"
        for choice, variant in entry.variants.items()
        for option, _, value in [choice.partition("=")]
    )


def _hyphened(name: str) -> str:
    return name.replace("_", "-")


def _avro(avro: AvroType) -> str:
    if isinstance(avro, str):
        return avro
    plain = avro.get("logicalType") or avro["type"]
    name = avro.get("connect.name")
    return f"{plain} {name}" if name else str(plain)


_OTHERS: Final = {
    0: "done",
    1: "`check` found an error, `demo` a difference; or our fault",
    2: "`ConfigError`: bad usage or configuration",
    4: "`wait` timed out",
    5: "a file or an output cannot be read or written, or a port is in use",
    6: "`wait`: the position is held, but a table is not exact",
    7: "`verify`: rows of source and target differ",
    8: "`verify`: no row is known to differ, but a table was not compared, or the target late",
    130: "interrupted by Ctrl-C (143: by SIGTERM)",
}


def exits() -> str:
    """Every exit code with its error classes; a verdict is named where it is not to stop."""
    said: dict[int, list[str]] = {code: [meaning] for code, meaning in _OTHERS.items()}
    for module, base in (
        (producer_errors, producer_errors.CdcError),
        (consumer_errors, consumer_errors.ApplyError),
    ):
        for name, value in sorted(vars(module).items()):
            if isinstance(value, type) and issubclass(value, base) and value is not base:
                verdict = (
                    "" if value.verdict is Verdict.STOP else f" ({value.verdict.name.lower()})"
                )
                doc = (value.__doc__ or "").strip().splitlines()[0]
                said.setdefault(value.exit_code, []).append(f"`{name}`{verdict}: {doc}")
    lines = []
    for code, meanings in sorted(said.items()):
        between = "\n  - " if len(meanings) > 1 else " "
        lines.append(between.join([f"- **{code}**", *meanings]) + "\n")
    return "".join(["\n", *lines])


def metrics() -> str:
    """Every metric, by who serves it; with a link to what its alarm means."""

    def line(one: Measured) -> str:
        labels = f"{{{','.join(one.labels)}}}" if one.labels else ""
        said = f"- `{PREFIX}{one.name}{labels}`: {one.meaning}"
        if not one.raises:
            return said
        paragraph = ALARMS[one.raises].paragraph.removeprefix("docs/")
        return f"{said}. [`{one.raises}`](../{paragraph})"

    found: dict[tuple[str, ...], list[str]] = {}
    for one in METRICS.values():
        found.setdefault(one.by, []).append(line(one))
    return "".join(
        "\n".join([f"\n## {', '.join(f'`{name}`' for name in by)}\n", *lines, ""])
        for by, lines in sorted(found.items())
    )


def kafka_acls() -> str:
    """What `run` and `apply` need at the brokers, as `check` prints it."""
    return "\n".join(["```text", *(acl.command() for acl in acls("bank")), "```", ""])


def kafka_security() -> str:
    """What librdkafka's settings of security are called at the registry's client."""

    def rows() -> Iterator[tuple[str, ...]]:
        for row in SETTINGS:
            same = "the same" if row.registry == f"`{row.librdkafka}`" else row.registry
            yield f"`{row.librdkafka}`", same

    return "".join(f"- {': '.join(row)}\n" for row in _grouped(rows()) if row[1])


TABLES: Final[dict[str, Callable[[], str]]] = {
    "commands": commands,
    "settings": settings,
    "options": options,
    "pgoutput": pgoutput,
    "losses": losses,
    "postgres_gaps": postgres_gaps,
    "support": support,
    "metrics": metrics,
    "types": types,
    "exits": exits,
    "acls": kafka_acls,
    "kafka_security": kafka_security,
}


def filled(text: str) -> str:
    """Return a document with every table made from the code."""
    return _BLOCK.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


def documents() -> list[Path]:
    """Every document of the repository."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    """Fill the tables, or name the documents with stale ones."""
    stale = []
    for path in documents():
        text = path.read_text("utf-8")
        if (fresh := filled(text)) != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(fresh, "utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"{', '.join(stale)}: stale tables: python -m gauss_cdc_lab.reference")


if __name__ == "__main__":
    main()
