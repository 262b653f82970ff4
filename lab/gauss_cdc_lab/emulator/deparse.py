"""DDL done at PostgreSQL, in the words of GaussDB's deparsing (manual, "DDL in logical decoding").

What the facade's event triggers saw of a statement becomes the document that
enable-ddl-json-format sends, and its expansion, which is sent without it.  Shapes
come from the catalog as it was right behind the statement, the rest from its text.
What the manual says is not decoded is only a place in the log, behind which rows
are lost: GRANT, types, comments, LIKE, IDENTITY, an ADD COLUMN whose default is
not immutable, temporary objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gauss_cdc_lab.emulator.quoting import quote_identifier
from schemas.tables import TableId

Document: TypeAlias = dict[str, Any]

# Table 1 of the manual: objects whose CREATE, ALTER and DROP are decoded.
_DECODED: Final = frozenset(
    {
        *("table", "index", "function", "procedure", "trigger", "sequence", "view"),
        *("materialized view", "schema", "table column", "table constraint"),
    }
)
_TEXT: Final = re.IGNORECASE | re.DOTALL
_FILLED: Final = frozenset({"CREATE TABLE AS", "SELECT INTO"})
_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$
        | --[^\n]* | /\*.*?\*/ | [(),;\[\]] | [^'"$(),;\[\]/-]+ | .""",
    re.VERBOSE | re.DOTALL,
)
_NAME: Final = r'(?:"(?:[^"]|"")+"|[\w$]+)'
_DOTTED: Final = rf"(?:{_NAME}\s*\.\s*)*{_NAME}"
_ALTER: Final = re.compile(
    rf"ALTER\s+(?:TABLE|INDEX|FUNCTION|PROCEDURE|TRIGGER|SEQUENCE|VIEW|MATERIALIZED\s+VIEW|SCHEMA)"
    rf"\s+(?P<if>IF\s+EXISTS\s+)?(?P<only>ONLY\s+)?(?P<name>{_DOTTED})"
    rf"(?P<arguments>\s*\([^()]*\))?(?P<on>\s+ON\s+{_DOTTED})?\s*\*?\s*(?P<rest>.*)",
    _TEXT,
)
_RENAME: Final = re.compile(
    rf"RENAME\s+(?:(?P<constraint>CONSTRAINT\s+)|COLUMN\s+)?(?:(?P<old>(?!TO\b){_NAME})\s+)?"
    rf"TO\s+(?P<new>{_NAME})",
    re.IGNORECASE,
)
_SET_SCHEMA: Final = re.compile(rf"SET\s+SCHEMA\s+(?P<new>{_NAME})", re.IGNORECASE)
_ADD: Final = re.compile(
    rf"ADD\s+(?:COLUMN\s+)?(?P<if>IF\s+NOT\s+EXISTS\s+)?(?P<name>{_NAME})\s+(?P<rest>.*)",
    _TEXT,
)
_ADD_CONSTRAINT: Final = re.compile(rf"ADD\s+CONSTRAINT\s+(?P<name>{_NAME})\b.*", _TEXT)
_DROP: Final = re.compile(
    rf"DROP\s+(?P<constraint>CONSTRAINT\s+)?(?:COLUMN\s+)?(?P<if>IF\s+EXISTS\s+)?(?P<name>{_NAME})"
    r"(?P<cascade>\s+CASCADE)?(?:\s+RESTRICT)?",
    re.IGNORECASE,
)
_COLUMN: Final = re.compile(
    rf"ALTER\s+(?:COLUMN\s+)?(?P<name>{_NAME})\s+(?P<what>(?:SET\s+DATA\s+)?TYPE|SET\s+DEFAULT|"
    r"DROP\s+DEFAULT|SET\s+NOT\s+NULL|DROP\s+NOT\s+NULL)\b\s*(?P<rest>.*)",
    _TEXT,
)
_USING: Final = re.compile(r"\bUSING\s+(.*)", _TEXT)
_LIKE: Final = re.compile(r"[(,]\s*LIKE\b", re.IGNORECASE)
_NO_COLUMN: Final = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE")
_ALTERED: Final = "ALTER %{objtype}s %{if_exists}s %{only}s %{identity}D %{subcmds:, }s"
_PERSISTENCE: Final = {"p": "", "u": "UNLOGGED"}


@dataclass(frozen=True, slots=True)
class DeparsedCommand:
    """A statement; without `document` only its place is known."""

    document: Document | None
    filled: TableId | None = None  # a table that CREATE TABLE AS made: its rows are not decoded

    @property
    def content(self) -> bytes | None:
        """The document as it is sent, without blanks."""
        if self.document is None:
            return None
        text = json.dumps(self.document, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogateescape")

    @property
    def sql(self) -> bytes | None:
        """Its expansion."""
        if self.document is None:
            return None
        return expanded(self.document).encode("utf-8", "surrogateescape")


def deparsed(content: bytes) -> DeparsedCommand | None:
    """Read what the event triggers saw; None where nothing was done (IF EXISTS)."""
    seen = json.loads(content.decode("utf-8", "surrogateescape"))
    tag, commands, dropped = seen["tag"], seen["commands"], seen["dropped"]
    if tag.startswith("DROP "):
        return DeparsedCommand(_dropped(tag, seen["text"], dropped)) if dropped else None
    if not commands:
        return None
    command = next((c for c in commands if c["tag"] == tag), commands[0])
    if command["kind"] not in _DECODED or command["schema"] == "pg_temp":
        return DeparsedCommand(None)
    texts = [text for text in _cut(seen["text"], ";") if _is_of(text, tag)]
    shape = command["definition"] or {}
    if tag in _FILLED:
        return DeparsedCommand(_table(shape), TableId(shape["schema"], shape["name"]))
    if tag == "CREATE TABLE":
        # One of several statements sent at once: the one that names the table.
        text = next((t for t in texts if shape["name"] in t), seen["text"])
        if _LIKE.search(text) or any(c["is_identity"] for c in shape["columns"]):
            return DeparsedCommand(None)
        return DeparsedCommand(_table(shape))
    if tag.startswith("CREATE "):
        return DeparsedCommand(_created(command, shape, texts))
    if tag.startswith("ALTER "):
        return DeparsedCommand(_altered(command, shape, texts))
    return DeparsedCommand(None)


def expanded(document: Mapping[str, Any]) -> str:
    """The SQL of one of our documents.

    >>> expanded({"fmt": "%{a}I %{b:, }s", "a": "A", "b": [{"fmt": "x%%"}, "y"]})
    '"A" x%, y'
    """

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value, convert = document[found["name"]], found["convert"]
        if found["separator"] is None:
            return _converted(value, convert) or ""
        parts = (_converted(each, convert) for each in value)
        return found["separator"].join(part for part in parts if part is not None)

    return re.sub(
        r"%%|%\{(?P<name>\w+)(?::(?P<separator>[^}]*))?\}(?P<convert>[IDsTL])",
        replaced,
        document["fmt"],
    )


def _converted(value: Any, convert: str) -> str | None:
    match convert:
        case "I":
            return quote_identifier(value)
        case "D":
            return ".".join(quote_identifier(value[k]) for k in ("schema_name", "object_name"))
        case "T":
            schema, name = value["schema_name"], value["type_name"]
            head = f"{quote_identifier(schema)}.{quote_identifier(name)}" if schema else name
            return f"{head}{value['typmod']}{'[]' if value['typarray'] else ''}"
        case "L":
            return f"'{value}'"  # ours need no more
    if isinstance(value, str):
        return value
    return expanded(value) if value.get("present", True) else None


# ---- statements in a text


def _cut(text: str, separator: str) -> list[str]:
    parts, depth = [""], 0
    for match in _TOKEN.finditer(text):
        word = match[0]
        depth += (word in {"(", "["}) - (word in {")", "]"})
        if word == separator and not depth:
            parts.append("")
        else:
            parts[-1] += " " if word.startswith(("--", "/*")) else word
    return [part.strip() for part in parts if part.strip()]


def _is_of(text: str, tag: str) -> bool:
    verb, _, kind = tag.partition(" ")
    pattern = rf"{verb}\b.*?\b{kind.replace(' ', chr(92) + 's+')}\b"
    return re.match(pattern, text, _TEXT) is not None


def _plain(name: str) -> str:
    """The name that a word of SQL means."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


# ---- parts of documents


def _identity(of: Mapping[str, Any]) -> Document:
    return {"object_name": of["name"], "schema_name": of["schema"]}


def _type(said: Mapping[str, Any]) -> Document:
    return {
        "typmod": said["modifier"],
        "typarray": said["array"],
        "type_name": said["name"],
        "schema_name": said["schema"],
    }


def _column(column: Mapping[str, Any]) -> Document:
    document: Document = {
        "fmt": "%{name}I %{column_type}T",
        "name": column["name"],
        "column_type": _type(column["type"]),
    }
    if column["is_generated"]:
        document["fmt"] += " %{generated_column}s"
        document["generated_column"] = {
            "fmt": "GENERATED ALWAYS AS (%{generation_expr}s) STORED",
            "generation_expr": column["default"],
        }
    elif column["default"] is not None:
        document["fmt"] += " %{default}s"
        document["default"] = {"fmt": "DEFAULT %{default}s", "default": column["default"]}
    if column["not_null"]:
        document["fmt"] += " %{not_null}s"
        document["not_null"] = "NOT NULL"
    return document


def _constraint(constraint: Mapping[str, str]) -> Document:
    return {"fmt": "CONSTRAINT %{name}I %{definition}s", **constraint}


def _option(name: str, value: str) -> Document:
    label = {"fmt": "%{label}I", "label": name}
    return {"fmt": "%{label}s = %{value}L", "label": label, "value": value}


def _table(shape: Mapping[str, Any]) -> Document | None:
    if shape["persistence"] not in _PERSISTENCE:
        return None  # temporary
    elements = [_column(column) for column in shape["columns"]]
    elements += [_constraint(constraint) for constraint in shape["constraints"]]
    document: Document = {
        "fmt": "CREATE %{persistence}s TABLE %{if_not_exists}s %{identity}D %{table_elements}s"
        " %{with_clause}s %{compression}s",
        "identity": _identity(shape),
        "compression": "NOCOMPRESS",
        "persistence": _PERSISTENCE[shape["persistence"]],
        "with_clause": {
            "fmt": "WITH (%{with:, }s)",
            "with": [_option("orientation", "row"), _option("compression", "no")],
        },
        "if_not_exists": "",
        "table_elements": {"fmt": "(%{elements:, }s)", "elements": elements},
    }
    if shape["partition_by"] is not None:
        document["fmt"] += " %{partition_by}s"
        document["partition_by"] = f"PARTITION BY {shape['partition_by']}"
    return document


def _created(
    command: Mapping[str, Any], shape: Mapping[str, Any], texts: list[str]
) -> Document | None:
    text = texts[0] if texts else ""
    replaces = "OR REPLACE" if re.match(r"CREATE\s+OR\s+REPLACE\b", text, re.IGNORECASE) else ""
    kind, identity = command["kind"], command["identity"]
    match kind:
        case "index":
            return {
                "fmt": "CREATE %{unique}s INDEX %{concurrently}s %{name}I ON %{table}D"
                " USING %{index_am}s %{definition}s",
                "name": shape["name"],
                "table": _identity(shape["table"]),
                "unique": "UNIQUE" if shape["unique"] else "",
                "concurrently": "",
                "index_am": shape["method"],
                "definition": shape["rest"],
            }
        case "view" | "materialized view":
            return {
                "fmt": f"CREATE %{{or_replace}}s {kind.upper()} %{{identity}}s AS %{{query}}s",
                "or_replace": replaces,
                "identity": identity,
                "query": shape["text"].rstrip(";"),
            }
        case "function" | "procedure" | "trigger":
            return {"fmt": "%{definition}s", "definition": shape["text"]}
        case "schema":
            return {"fmt": "CREATE SCHEMA %{name}s", "name": identity}
        case "sequence":
            found = re.search(rf"SEQUENCE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_DOTTED}(.*)", text, _TEXT)
            rest = found[1].strip() if found is not None else ""
            return {
                "fmt": "CREATE %{persistence}s SEQUENCE %{identity}s %{definition: }s",
                "persistence": "",
                "identity": identity,
                "definition": [rest] if rest else [],
            }
    return None


def _dropped(tag: str, text: str, dropped: list[dict[str, Any]]) -> Document | None:
    kind = tag.removeprefix("DROP ").lower()
    if kind not in _DECODED:
        return None
    if (root := dropped[0]["partition_of"]) is not None:
        # A table to PostgreSQL; to GaussDB a part of its own.
        parts = sorted(each["name"] for each in dropped if each["partition_of"] == root)
        return {
            "fmt": _ALTERED,
            "objtype": "TABLE",
            "identity": _identity(root),
            "if_exists": "",
            "only": "",
            "subcmds": [
                {"fmt": "DROP PARTITION %{name}I", "type": "drop partition", "name": part}
                for part in parts
            ],
        }
    said = next((part for part in _cut(text, ";") if _is_of(part, tag)), "")
    return {
        "fmt": "DROP %{objtype}s %{concurrently}s %{if_exists}s %{objidentity}s %{cascade}s",
        "objtype": kind,
        "concurrently": "",
        "if_exists": "IF EXISTS" if re.search(r"\bIF\s+EXISTS\b", said, re.IGNORECASE) else "",
        "objidentity": ", ".join(each["identity"] for each in dropped),
        "cascade": "CASCADE" if re.search(r"\bCASCADE\s*$", said, re.IGNORECASE) else "",
    }


# ---- ALTER


def _altered(
    command: Mapping[str, Any], shape: Mapping[str, Any], texts: list[str]
) -> Document | None:
    found = [match for text in texts if (match := _ALTER.fullmatch(text)) is not None]
    if not found:
        return None
    named = shape.get("name")
    # The table has its new name by now: a statement that renames it names another.
    said = next((match for match in found if _last(match["name"]) == named), found[0])
    kind = command["kind"]
    objtype = "TABLE" if kind.startswith("table ") else kind.upper()
    if objtype != "TABLE":
        name = said["name"]
        if kind == "trigger":
            name += f" ON {command['identity'].partition(' on ')[2]}"
        elif command["schema"] and len(_PARTS.findall(name)) == 1:
            name = f"{quote_identifier(command['schema'])}.{name}"
        return {
            "fmt": "ALTER %{objtype}s %{identity}s %{rest}s",
            "objtype": objtype,
            "identity": f"{name}{said['arguments'] or ''}",
            "rest": said["rest"],
        }
    schema, rest = command["schema"], said["rest"].strip()
    identity = {"object_name": _last(said["name"]), "schema_name": schema}
    head = {"objtype": objtype, "identity": identity}
    if (match := _RENAME.fullmatch(rest)) is not None:
        return head | _renamed(match)
    if (match := _SET_SCHEMA.fullmatch(rest)) is not None:
        old = _PARTS.findall(said["name"])
        identity["schema_name"] = _plain(old[-2]) if len(old) > 1 else "public"
        text = ".".join(quote_identifier(identity[k]) for k in ("schema_name", "object_name"))
        return {
            "fmt": "ALTER %{objtype}s %{identity}s SET SCHEMA %{newschema}I",
            "objtype": objtype,
            "identity": text,
            "newschema": _plain(match["new"]),
        }
    commands = list(_subcommands(rest, shape))
    if None in commands:
        return None  # one that is not deparsed takes all with it
    return {
        "fmt": _ALTERED,
        **head,
        "if_exists": "IF EXISTS" if said["if"] else "",
        "only": "ONLY" if said["only"] else "",
        "subcmds": commands,
    }


_PARTS: Final = re.compile(_NAME)


def _last(dotted: str) -> str:
    return _plain(_PARTS.findall(dotted)[-1])


def _renamed(match: re.Match[str]) -> Document:
    new = {"newname": _plain(match["new"])}
    if match["old"] is None:
        fmt = "ALTER %{objtype}s %{if_exists}s %{identity}D RENAME TO %{newname}I"
        return {"fmt": fmt, "if_exists": "", **new}
    old = _plain(match["old"])
    if match["constraint"]:
        fmt = "ALTER TABLE %{identity}D RENAME CONSTRAINT %{oldname}I TO %{newname}I"
        return {"fmt": fmt, "oldname": old, **new}
    fmt = "ALTER %{objtype}s %{identity}D RENAME COLUMN %{colname}I TO %{newname}I"
    return {"fmt": fmt, "colname": old, **new}


def _subcommands(text: str, shape: Mapping[str, Any]) -> Iterator[Document | None]:
    """What an ALTER TABLE does; None for what is not deparsed."""
    columns = {column["name"]: column for column in shape["columns"]}
    constraints = {constraint["name"]: constraint for constraint in shape["constraints"]}
    for part in _cut(text, ","):
        match = _ADD_CONSTRAINT.fullmatch(part)
        if match is not None and (made := constraints.get(_plain(match["name"]))) is not None:
            yield {
                "fmt": "ADD CONSTRAINT %{name}I %{definition}s",
                "type": "add constraint",
                **made,
            }
            continue
        match = _ADD.fullmatch(part)
        if match is not None and match["name"].upper() not in _NO_COLUMN:
            yield _added(match, columns.get(_plain(match["name"])))
            continue
        match = _DROP.fullmatch(part)
        if match is not None:
            yield _drop(match)
            continue
        match = _COLUMN.fullmatch(part)
        yield _changed(match, columns) if match is not None else {"fmt": "%{text}s", "text": part}


def _added(match: re.Match[str], column: Mapping[str, Any] | None) -> Document | None:
    if column is None or column["is_identity"] or column["is_mutable"]:
        return None
    inline = re.search(r"\b(PRIMARY\s+KEY|UNIQUE|CHECK|REFERENCES)\b", match["rest"], re.IGNORECASE)
    if inline is not None:
        return {"fmt": "%{text}s", "text": match[0]}
    return {
        "fmt": "ADD %{objtype}s %{if_not_exists}s %{definition}s %{cascade}s",
        "type": "add column",
        "objtype": "COLUMN",
        "if_not_exists": "IF NOT EXISTS" if match["if"] else "",
        "definition": _column(column),
        "cascade": "",
    }


def _drop(match: re.Match[str]) -> Document:
    cascade = "CASCADE" if match["cascade"] else ""
    condition = {"if_exists": "IF EXISTS" if match["if"] else "", "cascade": cascade}
    if match["constraint"]:
        return {
            "fmt": "DROP CONSTRAINT %{if_exists}s %{constraint}I %{cascade}s",
            "type": "drop constraint",
            "constraint": _plain(match["name"]),
            **condition,
        }
    return {
        "fmt": "DROP %{objtype}s %{if_exists}s %{column}I %{cascade}s",
        "type": "drop column",
        "objtype": "COLUMN",
        "column": _plain(match["name"]),
        **condition,
    }


def _changed(match: re.Match[str], columns: Mapping[str, Any]) -> Document | None:
    name, what = _plain(match["name"]), " ".join(match["what"].upper().split())
    column = columns.get(name)
    if column is None:
        return {"fmt": "%{text}s", "text": match[0]}
    head = {"column": name}
    if what.endswith("TYPE"):
        using = _USING.search(match["rest"])
        clause: Document = {"fmt": "USING %{expression}s", "present": False}
        if using is not None:
            clause = {"fmt": "USING %{expression}s", "expression": using[1]}
        return {
            "fmt": "ALTER %{objtype}s %{column}I SET DATA TYPE %{datatype}T %{using}s",
            "type": "alter column type",
            "objtype": "COLUMN",
            "datatype": _type(column["type"]),
            "using": clause,
            **head,
        }
    if what == "SET DEFAULT":
        fmt = "ALTER COLUMN %{column}I SET DEFAULT %{definition}s"
        return {"fmt": fmt, "type": "set default", "definition": column["default"], **head}
    return {"fmt": f"ALTER COLUMN %{{column}}I {what}", "type": what.lower(), **head}
