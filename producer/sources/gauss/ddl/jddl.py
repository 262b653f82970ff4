"""Parses deparsed DDL of both products, in either form.

The structure of a document is used directly: identity, columns, types,
constraints, subcommands, each by its keys in either spelling.  A part with unknown
keys is parsed from its own SQL.  So a text that is not SQL (openGauss prints a
default that holds a quote unescaped) affects only its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from producer.core.statements.sql_words import Words, cut
from producer.sources.gauss.ddl import tddl
from producer.sources.gauss.ddl.columns import constraint, partitioning, type_spec
from producer.sources.gauss.ddl.format import (
    Object,
    dotted,
    expand,
    fragment,
    is_present,
    parse,
    type_text,
)
from producer.sources.gauss.ddl.model import (
    Action,
    AddColumn,
    AddConstraint,
    AlterType,
    ColumnSpec,
    Constraint,
    DropColumn,
    DropConstraint,
    Name,
    OnPartition,
    RenameColumn,
    SetDefault,
    SetNotNull,
    Statement,
    Unread,
)
from producer.sources.gauss.ddl.quoting import quote_identifier
from producer.sources.gauss.decoders.messages import Ddl

_TYPE_KEYS: Final = ("coltype", "column_type", "datatype", "data_type", "type_name")
_ELEMENT_KEYS: Final = ("elements", "table_elements")


def read(ddl: Ddl) -> Statement | None:
    """Read a decoder's message; None for one that only announces a statement.

    Raises DdlMalformed for an invalid document.
    """
    if ddl.form == "TDDL":
        return tddl.statement(ddl.content)
    if not ddl.content.startswith("{"):  # "Drop table command start"
        return None
    return statement(parse(ddl.content), ddl.sql)


def statement(document: Object, sql: str | None = None) -> Statement:
    """Read a document; `sql` is the server's own expansion, where it sends one."""
    canonical = expand(document)
    parsed = tddl.statement(canonical)
    if sql is not None:
        parsed = replace(parsed, sql=sql)
    name = _identity(document)
    if name is not None and parsed.kind != "column" and (len(parsed.names) == 1 or parsed.unread):
        parsed = replace(parsed, names=(name,))
    if parsed.tag == "CREATE TABLE":
        return _table(document, parsed)
    if parsed.tag == "ALTER TABLE" and isinstance(document.get("subcmds"), list):
        return _altered(document["subcmds"], parsed)
    renamed = _renamed_column(document)
    return parsed if renamed is None else replace(parsed, actions=(renamed,), unread=())


def _identity(document: Object) -> Name | None:
    said = document.get("identity")
    return Name(*dotted(said)) if isinstance(said, dict) and is_present(said) else None


def _renamed_column(document: Object) -> RenameColumn | None:
    old, new = document.get("colname"), document.get("newname")
    return RenameColumn(old, new) if isinstance(old, str) and isinstance(new, str) else None


# ---- CREATE TABLE


def _table(document: Object, parsed: Statement) -> Statement:
    elements = _elements(document)
    if elements is None:
        return parsed
    columns: list[ColumnSpec] = []
    constraints: list[Constraint] = []
    unread: list[str] = []
    for element in elements:
        if not is_present(element):
            continue
        made, within, problem = _element(element)
        columns += [made] if made is not None else []
        constraints += within
        unread += [problem] if problem else []
    divided = parsed.partitioning
    if isinstance(said := document.get("partition_by"), (str, dict)):
        divided = partitioning(Words(fragment(said))) or divided
    return replace(
        parsed,
        columns=tuple(columns),
        constraints=tuple(constraints),
        partitioning=divided,
        unread=tuple(unread),
    )


def _elements(document: Object) -> list[Any] | None:
    said: Any = document.get("table_elements")
    if isinstance(said, dict) and is_present(said):
        said = next((said[key] for key in _ELEMENT_KEYS if key in said), None)
    return said if isinstance(said, list) else None


def _element(element: Any) -> tuple[ColumnSpec | None, list[Constraint], str]:
    text = fragment(element)
    if isinstance(element, dict):
        if (made := _column(element)) is not None:
            return made[0], made[1], ""
        definition = element.get("definition")
        if isinstance(definition, str) and isinstance(element.get("name"), str):
            found = constraint(Words(definition))
            if found is not None:
                return None, [replace(found, name=element["name"], text=text)], ""
    return tddl.table_element(Words(text))


def _column(element: Object) -> tuple[ColumnSpec, list[Constraint]] | None:
    """Read a column by its keys; clauses that have none by its text."""
    name = element.get("name", element.get("column"))
    said = next((element[key] for key in _TYPE_KEYS if isinstance(element.get(key), dict)), None)
    if not isinstance(name, str) or said is None:
        return None
    spec = type_spec(type_text(said))
    if spec is None:
        return None
    default = _clause(element, "default")
    # The clauses are read without the default, which may not be SQL.
    plain = dict(element)
    if default is not None:
        plain["default"] = ""
    read_, within, _ = tddl.table_element(Words(fragment(plain)))
    made = read_ if read_ is not None else ColumnSpec(name, spec)
    if made.name != name or default is None:
        made = replace(made, name=name)
    generated = element.get("generated_column")
    return (
        replace(
            made,
            type=spec,
            default=default if default is not None else made.default,
            generated=_clause(generated, "generation_expr")
            if isinstance(generated, dict) and is_present(generated)
            else made.generated,
        ),
        within,
    )


def _clause(of: Object, key: str) -> str | None:
    """The text of a clause: a string, or an object that holds it under the same key."""
    said = of.get(key)
    if isinstance(said, dict):
        if not is_present(said):
            return None
        return fragment(said).removeprefix("DEFAULT ").strip() or None
    if not isinstance(said, str):
        return None
    if f"%{{{key}}}L" in _fmt(of):
        return expand({"fmt": "%{said}L", "said": said})
    return said.removeprefix("DEFAULT ") or None


def _fmt(of: Object) -> str:
    said = of.get("fmt")
    return said if isinstance(said, str) else ""


# ---- ALTER TABLE


def _altered(subcmds: list[Any], parsed: Statement) -> Statement:
    actions: list[Action] = []
    for command in subcmds:
        if is_present(command):
            actions += _actions(command, parsed.names[0] if parsed.names else Name(None, ""))
    unread = tuple(action.text for action in actions if isinstance(action, Unread))
    return replace(parsed, actions=tuple(actions), unread=unread)


def _actions(command: Any, table: Name) -> Iterator[Action]:
    by_keys = None
    if isinstance(command, dict) and isinstance(parsed := command.get("type"), str):
        by_keys = _on_partition if parsed.endswith("partition") else _BY_TYPE.get(parsed)
    found = by_keys(command) if by_keys is not None else None
    if found is not None:
        yield from found
    else:
        yield from tddl.table_actions(Words(fragment(command)), table)


def _add_column(command: Object) -> list[Action] | None:
    definition = command.get("definition")
    if not isinstance(definition, dict):
        return None
    made = _column(definition)
    if made is None:
        return None
    # The new column's position is separate from its definition.
    [added, *_] = tddl.table_actions(
        Words(fragment({**command, "definition": f"{quote_identifier(made[0].name)} x"})),
        Name(None, ""),
    )
    if not isinstance(added, AddColumn):
        return None
    spec = replace(made[0], place=added.column.place)
    return [AddColumn(spec, added.if_not_exists), *map(AddConstraint, made[1])]


def _drop_column(command: Object) -> list[Action] | None:
    name = command.get("column")
    return [DropColumn(name, bool(command.get("if_exists")))] if isinstance(name, str) else None


def _alter_type(command: Object) -> list[Action] | None:
    name = command.get("column")
    said = next((command[key] for key in _TYPE_KEYS if isinstance(command.get(key), dict)), None)
    spec = type_spec(type_text(said)) if said is not None else None
    if not isinstance(name, str) or spec is None:
        return None
    using = command.get("using")
    if not isinstance(using, dict) or not is_present(using):
        return [AlterType(name, spec)]
    return [AlterType(name, spec, _clause(using, "expression"))]


def _default(command: Object) -> list[Action] | None:
    name = command.get("column")
    if not isinstance(name, str):
        return None
    text = fragment(command)
    if "DROP" in text.upper().split():
        return [SetDefault(name, None)]
    said = next((command[k] for k in ("definition", "default", "expr") if k in command), None)
    return [SetDefault(name, said)] if isinstance(said, str) else None


def _not_null(not_null: bool) -> Callable[[Object], list[Action] | None]:  # noqa: FBT001
    def read_(command: Object) -> list[Action] | None:
        name = command.get("column")
        return [SetNotNull(name, not_null)] if isinstance(name, str) else None

    return read_


def _add_constraint(command: Object) -> list[Action] | None:
    definition, name = command.get("definition"), command.get("name")
    found = constraint(Words(definition)) if isinstance(definition, str) else None
    if found is None or not isinstance(name, str):
        return None
    text = f"CONSTRAINT {quote_identifier(name)} {definition}"
    return [AddConstraint(replace(found, name=name, text=text))]


def _drop_constraint(command: Object) -> list[Action] | None:
    name = command.get("constraint")
    return [DropConstraint(name)] if isinstance(name, str) else None


def _on_partition(command: Object) -> list[Action] | None:
    """Read an action on partitions; openGauss prints most of their names without quotes."""
    text = fragment(command)
    named = command.get("name_list", [command.get("name", command.get("partition"))])
    names = tuple(name for name in named if isinstance(name, str))
    if not names and not any(word.upper == "FOR" for word in cut(text)):
        return None
    return [OnPartition(str(command["type"]).split()[0], names, text)]


_BY_TYPE: Final[dict[str, Callable[[Object], list[Action] | None]]] = {
    "add column": _add_column,
    "drop column": _drop_column,
    "alter column type": _alter_type,
    "column default": _default,
    "set default": _default,
    "drop default": _default,
    "set not null": _not_null(True),  # noqa: FBT003
    "drop not null": _not_null(False),  # noqa: FBT003
    "add constraint": _add_constraint,
    "drop constraint": _drop_constraint,
    "drop primary key": lambda _: [DropConstraint(None)],
}
