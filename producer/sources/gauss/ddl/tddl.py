r"""Parses DDL as SQL text.

For the canonical text of deparsing, where every name is qualified and each clause
has one form.  Tables are read in full, of other objects their kind and name.  No
SQL parser that we know reads it: of 21 documented statements sqlglot 30 rejects
four and returns six unparsed, the manual's CREATE TABLE (`NOCOMPRESS`) among them.

>>> statement("ALTER TABLE  public.t DROP COLUMN  e ").actions
(DropColumn(name='e', if_exists=False),)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from producer.core.statements.sql_words import Words, cut, statements
from producer.sources.gauss.ddl.columns import (
    column,
    constraint,
    partitioning,
    plain_columns,
    take_type,
)
from producer.sources.gauss.ddl.model import (
    Action,
    AddColumn,
    AddConstraint,
    AlterType,
    Aside,
    ChangeColumn,
    ColumnSpec,
    Constraint,
    DropColumn,
    DropConstraint,
    Index,
    Name,
    OnPartition,
    Partitioning,
    Rename,
    RenameColumn,
    SetDefault,
    SetIdentity,
    SetNotNull,
    Statement,
    Unread,
)

# Objects by the words that name them, longest first.
_OBJECTS: Final = (
    *("MATERIALIZED VIEW", "PACKAGE BODY", "FOREIGN TABLE", "FOREIGN DATA WRAPPER"),
    *("TEXT SEARCH CONFIGURATION", "TEXT SEARCH DICTIONARY", "EVENT TRIGGER", "OPERATOR CLASS"),
    *("USER MAPPING", "DATA SOURCE", "OPERATOR FAMILY", "ACCESS METHOD"),
    *("TABLE", "INDEX", "FUNCTION", "PROCEDURE", "TRIGGER", "SEQUENCE", "VIEW", "PACKAGE"),
    *("SCHEMA", "TYPE", "DOMAIN", "AGGREGATE", "CAST", "COLLATION", "CONVERSION", "EXTENSION"),
    *("LANGUAGE", "OPERATOR", "RULE", "SYNONYM", "SERVER", "TABLESPACE", "DATABASE", "ROLE"),
    *("USER", "GROUP", "EVENT", "DIRECTORY", "COLUMN", "CONSTRAINT", "POLICY", "PUBLICATION"),
    *("SUBSCRIPTION", "CONVERSION", "MODEL"),
)
_BEFORE_OBJECT: Final = (
    *("UNIQUE", "LARGE", "GLOBAL", "LOCAL", "TEMPORARY", "TEMP", "UNLOGGED", "DEFINER"),
    *("CONSTRAINT", "FORCE", "RECURSIVE", "INCREMENTAL", "EDITIONABLE", "NONEDITIONABLE"),
)
_PARTITION_VERBS: Final = (
    *("ADD", "DROP", "TRUNCATE", "EXCHANGE", "SPLIT", "MERGE", "MOVE", "RENAME", "RESET"),
    *("REORGANIZE", "COALESCE", "ANALYZE", "REBUILD", "REPAIR", "CHECK", "OPTIMIZE", "REMOVE"),
    *("DISCARD", "IMPORT", "MODIFY"),
)
# Of ALTER TABLE: actions that no copy follows.
_ASIDE: Final = (
    *("OWNER", "RESET", "CLUSTER", "INHERIT", "NO", "OF", "ENABLE", "DISABLE", "COMPRESS"),
    *("NOCOMPRESS", "COMMENT", "ENGINE", "ILM", "VALIDATE", "AUTO_INCREMENT", "GSIWAITALL"),
    *("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "FORCE", "DISTRIBUTE", "DELETE", "UPDATE"),
    "NOT",  # NOT OF
)
_COLUMN_ASIDE: Final = ("STATISTICS", "STORAGE", "COMPRESSION", "(")


def statement(sql: str) -> Statement:
    """Read one statement; parts that cannot be read are in `unread`."""
    words = Words(sql, next(statements(cut(sql))))  # what follows it is not read anyway
    read = _VERBS.get(words.look().upper)
    if read is None:
        return Statement("", "", (), sql, unread=(sql,))
    words.step()
    return read(words, sql)


# Objects whose name has no schema of its own: that of their table.
_OF_TABLE: Final = frozenset({"TRIGGER", "RULE", "POLICY", "CONSTRAINT"})
_WITH_ARGUMENTS: Final = frozenset({"FUNCTION", "PROCEDURE", "AGGREGATE"})


def _object(words: Words) -> str:
    words.take("LARGE")
    return next((name for name in _OBJECTS if words.take(*name.split())), "")


def _within(words: Words, name: Name) -> Name:
    """The name of a trigger and the like, with the schema of the table it is on."""
    while words and not words.is_next("ON"):
        words.step()
    words.take("ON")
    words.take("DOMAIN")
    table = words.dotted()
    return Name(table[-2], name.name) if len(table) > 1 else name


def _skip_arguments(words: Words, kind: str) -> None:
    if kind in _WITH_ARGUMENTS:
        words.brackets()


def _name(parts: tuple[str, ...]) -> Name:
    """The last two parts; a name of one part has no schema."""
    return Name(parts[-2] if len(parts) > 1 else None, parts[-1])


def _unknown(verb: str, sql: str) -> Statement:
    return Statement(verb, "", (), sql, unread=(sql,))


# ---- CREATE


def _create(words: Words, sql: str) -> Statement:
    words.take("OR", "REPLACE")
    flags: set[str] = set()
    while word := words.take_any(*_BEFORE_OBJECT):
        flags.add(word)
        if word == "DEFINER":
            words.take("=")
            words.step()
            words.take("SQL", "SECURITY") and words.step()
    kind = _object(words)
    if not kind:
        return _unknown("CREATE", sql)
    persistence = "t" if flags & {"TEMPORARY", "TEMP"} else "u" if "UNLOGGED" in flags else "p"
    if kind == "INDEX":
        return _create_index(words, sql, is_unique="UNIQUE" in flags)
    conditional = words.take("IF", "NOT", "EXISTS")
    if kind == "SCHEMA" and words.look().text == '""':
        words.step()  # openGauss, for one that is named after its owner
    names = () if kind == "SCHEMA" and words.is_next("AUTHORIZATION") else words.dotted()
    if kind == "SCHEMA" and words.take("AUTHORIZATION") and not names:
        names = words.dotted()
    if not names:
        return _unknown(f"CREATE {kind}", sql)
    lower, name = kind.lower(), _name(names)
    if kind in _OF_TABLE and len(names) == 1:
        name = _within(words, name)
    if kind != "TABLE":
        return Statement(
            f"CREATE {kind}", lower, (name,), sql, conditional=conditional, persistence=persistence
        )
    columns: list[ColumnSpec] = []
    constraints: list[Constraint] = []
    unread: list[str] = []
    elements = words.brackets()
    for element in elements.parts() if elements is not None else ():
        made, within, problem = table_element(element)
        columns += [made] if made is not None else []
        constraints += within
        unread += [problem] if problem else []
    options, divided = _table_rest(words)
    return Statement(
        "CREATE TABLE",
        lower,
        (name,),
        sql,
        columns=tuple(columns),
        constraints=tuple(constraints),
        partitioning=divided,
        options=options,
        persistence=persistence,
        conditional=conditional,
        unread=tuple(unread),
    )


def table_element(words: Words) -> tuple[ColumnSpec | None, list[Constraint], str]:
    """Read an element of a table: a column, a constraint, or the text that is neither."""
    text = words.left
    for keyword in ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE", "PARTIAL"):
        # A column may have such a name, if it is not a reserved word.
        if words.is_next(keyword):
            found = constraint(words)
            return (None, [found], "") if found is not None else (None, [], text)
    if words.take_any("LIKE", "INDEX", "KEY"):
        return None, [], ""
    made, within = column(words)
    return made, within, "" if made is not None else text


def _table_rest(words: Words) -> tuple[dict[str, str], Partitioning | None]:
    options: dict[str, str] = {}
    while words:
        if words.is_next("PARTITION", "BY"):
            return options, partitioning(words)
        if words.take("WITH") and (inside := words.brackets()) is not None:
            options |= dict(_options(inside))
        else:
            words.step()
    return options, None


def _options(words: Words) -> Iterator[tuple[str, str]]:
    for part in words.parts():
        name = part.identifier()
        if name is not None and part.take("="):
            text = part.rest()
            yield name, text[1:-1] if text.startswith("'") else text


def _create_index(words: Words, sql: str, *, is_unique: bool) -> Statement:
    words.take("CONCURRENTLY")
    conditional = words.take("IF", "NOT", "EXISTS")
    names = () if words.is_next("ON") else words.dotted()
    if not words.take("ON"):
        return _unknown("CREATE INDEX", sql)
    words.take("ONLY")
    table = words.dotted()
    if not table:
        return _unknown("CREATE INDEX", sql)
    if words.take("USING"):
        words.identifier()
    inside = words.brackets()
    columns = plain_columns(inside) if inside is not None else None
    while words:
        if words.step().upper == "WHERE":
            columns = None  # of some rows only
    on = _name(table)
    name = Name(on.schema, names[-1]) if names else None
    return Statement(
        "CREATE INDEX",
        "index",
        (name,) if name is not None else (),
        sql,
        index=Index(on, is_unique, columns),
        conditional=conditional,
    )


# ---- ALTER


def _alter(words: Words, sql: str) -> Statement:
    kind = _object(words)
    if not kind:
        return _unknown("ALTER", sql)
    conditional = words.take("IF", "EXISTS")
    words.take("ONLY")
    names = words.dotted()
    if not names:
        return _unknown(f"ALTER {kind}", sql)
    words.take("*")
    _skip_arguments(words, kind)
    name = _name(names)
    if kind in _OF_TABLE and len(names) == 1:
        name = _within(words, name)
    actions: list[Action] = []
    if kind in {"TABLE", "FOREIGN TABLE"}:
        actions += table_actions(words, name)
    elif words.take("RENAME", "TO"):
        new = words.identifier()
        actions = [Rename(name, Name(name.schema, new)) if new else Unread(sql)]
    elif words.take("SET", "SCHEMA"):
        new = words.identifier()
        actions = [Rename(name, Name(new, name.name)) if new else Unread(sql)]
    return Statement(
        f"ALTER {kind}",
        kind.lower(),
        (name,),
        sql,
        actions=tuple(actions),
        conditional=conditional,
        unread=tuple(a.text for a in actions if isinstance(a, Unread)),
    )


def table_actions(words: Words, table: Name) -> Iterator[Action]:
    """Read the actions of an ALTER TABLE."""
    if words.is_next("MERGE"):  # PARTITIONS a, b INTO PARTITION c
        yield from _action(words, table) or [Unread(words.left)]
        return
    before: Action | None = None
    for part in words.parts():
        text = part.left
        found = _action(part, table)
        if found is None and isinstance(before, OnPartition) and (name := Words(text).identifier()):
            found = [OnPartition(before.does, (name,), text)]  # TRUNCATE PARTITION a, b
        yield from found or [Unread(text)]
        before = found[-1] if found else None


def _action(words: Words, table: Name) -> list[Action] | None:
    verb, text = words.look().upper, words.left
    if verb in _PARTITION_VERBS and words.look(1).upper in {
        *("PARTITION", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS", "PARTITIONING"),
    }:
        return [_on_partition(words, verb, text)]
    read = _ACTIONS.get(verb)
    if read is not None:
        words.step()
        return read(words, table, text)
    return [Aside(text)] if verb in _ASIDE else None


def _on_partition(words: Words, verb: str, text: str) -> OnPartition:
    words.step()
    words.step()
    words.take("IF", "EXISTS")
    names: list[str] = []
    if (inside := words.brackets()) is not None:  # EXCHANGE PARTITION (p) WITH TABLE t
        return OnPartition(verb.lower(), plain_columns(inside) or (), text)
    if words.take("FOR"):
        return OnPartition(verb.lower(), (), text)
    while (name := words.identifier()) is not None:
        names.append(name)
        if not words.take(","):
            break
    return OnPartition(verb.lower(), tuple(names), text)


def _add(words: Words, table: Name, text: str) -> list[Action] | None:
    del table
    if words.is_next("CONSTRAINT") or words.look().upper in {
        *("PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE"),
    }:
        found = constraint(words)
        return None if found is None else [AddConstraint(found)]
    if words.look().upper in {"INDEX", "KEY", "FULLTEXT"}:
        return [Aside(text)]
    if words.is_next("STATISTICS") and words.look(1).text == "(":
        return [Aside(text)]
    words.take("COLUMN")
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    if words.look().text == "(":  # B and A compatibility: several at once
        inside = words.brackets()
        out: list[Action] = []
        for part in inside.parts() if inside is not None else ():
            made, within = column(part)
            if made is None:
                return None
            out += [AddColumn(made, if_not_exists), *map(AddConstraint, within)]
        return out
    made, within = column(words)
    if made is None:
        return None
    return [AddColumn(made, if_not_exists), *map(AddConstraint, within)]


def _drop(words: Words, table: Name, text: str) -> list[Action] | None:
    del table
    if words.take("PRIMARY", "KEY"):
        return [DropConstraint(None)]
    if words.take("FOREIGN", "KEY") or words.take("CHECK"):
        return [Aside(text)]
    if words.take("CONSTRAINT") or words.take("INDEX") or words.take("KEY"):
        words.take("IF", "EXISTS")
        name = words.identifier()
        return None if name is None else [DropConstraint(name)]
    words.take("COLUMN")
    if_exists = words.take("IF", "EXISTS")
    name = words.identifier()
    return None if name is None else [DropColumn(name, if_exists)]


def _alter_column(words: Words, table: Name, text: str) -> list[Action] | None:
    del table
    if words.take_any("INDEX", "CONSTRAINT"):
        return [Aside(text)]
    words.take("COLUMN")
    name = words.identifier()
    if name is None:
        return None
    if words.take("SET", "DATA", "TYPE") or words.take("TYPE"):
        spec = take_type(words)
        if spec is None:
            return None
        if words.take("COLLATE"):
            words.dotted()
        using = words.rest() if words.take("USING") else None
        return [AlterType(name, spec, using)]
    if words.take("SET", "DEFAULT"):
        return [SetDefault(name, words.rest())]
    if words.take("DROP", "DEFAULT"):
        return [SetDefault(name, None)]
    if words.take("SET", "NOT", "NULL"):
        return [SetNotNull(name, not_null=True)]
    if words.take("DROP", "NOT", "NULL"):
        return [SetNotNull(name, not_null=False)]
    words.take_any("SET", "RESET", "ADD", "DROP")
    return [Aside(text)] if words.take_any(*_COLUMN_ASIDE) else None


def _modify(words: Words, table: Name, text: str) -> list[Action] | None:
    del table, text
    words.take("COLUMN")
    if words.look().text == "(":  # A compatibility: several at once
        inside = words.brackets()
        out: list[Action] = []
        for part in inside.parts() if inside is not None else ():
            name = part.look().identifier
            if name is None:
                return None
            made = _modified(part, name)
            if made is None:
                return None
            out += made
        return out
    name = words.look().identifier
    return None if name is None else _modified(words, name)


def _change(words: Words, table: Name, text: str) -> list[Action] | None:
    del table, text
    words.take("COLUMN")
    name = words.identifier()
    return None if name is None else _modified(words, name)


def _modified(words: Words, name: str) -> list[Action] | None:
    for keywords, not_null in ((("NOT", "NULL"), True), (("NULL",), False)):
        if all(words.look(n + 1).upper == keyword for n, keyword in enumerate(keywords)):
            return [SetNotNull(name, not_null=not_null)]
    made, within = column(words)
    if made is None:
        return None
    return [ChangeColumn(name, made), *map(AddConstraint, within)]


def _rename(words: Words, table: Name, text: str) -> list[Action] | None:
    if words.take("CONSTRAINT") or words.take("INDEX"):
        return [Aside(text)]
    if words.take("TO") or words.take("AS"):
        parts = words.dotted()
        return [Rename(table, Name(table.schema, parts[-1]))] if parts else None
    words.take("COLUMN")
    old = words.identifier()
    if old is None or not words.take("TO"):
        return None
    new = words.identifier()
    return None if new is None else [RenameColumn(old, new)]


def _set(words: Words, table: Name, text: str) -> list[Action] | None:
    if words.take("SCHEMA"):
        new = words.identifier()
        return None if new is None else [Rename(table, Name(new, table.name))]
    is_aside = words.look().text == "(" or words.take_any(
        *("TABLESPACE", "WITHOUT", "WITH", "COMPRESS", "NOCOMPRESS", "STATISTICS", "COMPATIBLE"),
    )
    return [Aside(text)] if is_aside else None


def _replica(words: Words, table: Name, text: str) -> list[Action] | None:
    del table, text
    if not words.take("IDENTITY"):
        return None
    letter = {"DEFAULT": "d", "FULL": "f", "NOTHING": "n"}.get(words.look().upper)
    if letter is not None:
        return [SetIdentity(letter)]
    if words.take("USING", "INDEX") and (index := words.identifier()) is not None:
        return [SetIdentity("i", index)]
    return None


_ACTIONS: Final[dict[str, Callable[[Words, Name, str], list[Action] | None]]] = {
    "ADD": _add,
    "DROP": _drop,
    "ALTER": _alter_column,
    "MODIFY": _modify,
    "CHANGE": _change,
    "RENAME": _rename,
    "SET": _set,
    "REPLICA": _replica,
}


# ---- the others


def _drop_object(words: Words, sql: str) -> Statement:
    kind = _object(words)
    if not kind:
        return _unknown("DROP", sql)
    words.take("CONCURRENTLY")
    conditional = words.take("IF", "EXISTS")
    names: list[Name] = []
    cascade = False
    for part in words.parts():
        parts = part.dotted()
        if parts:
            name = _name(parts)
            is_within = kind in _OF_TABLE and len(parts) == 1
            names.append(_within(part, name) if is_within else name)
        part.brackets()  # arguments of a function
        cascade = cascade or part.take("CASCADE")
    if not names:
        return _unknown(f"DROP {kind}", sql)
    return Statement(
        f"DROP {kind}",
        kind.lower(),
        tuple(names),
        sql,
        conditional=conditional,
        cascade=cascade,
    )


def _comment(words: Words, sql: str) -> Statement:
    if not words.take("ON") or not (kind := _object(words)):
        return _unknown("COMMENT", sql)
    parts = words.dotted()
    if not parts:
        return _unknown("COMMENT", sql)
    if kind == "COLUMN" and len(parts) > 1:
        return Statement("COMMENT", "column", (_name(parts[:-1]),), sql, column=parts[-1])
    name = _name(parts)
    if kind in _OF_TABLE and len(parts) == 1:
        name = _within(words, name)
    return Statement("COMMENT", kind.lower(), (name,), sql)


def _reindex(words: Words, sql: str) -> Statement:
    kind = _object(words)
    parts = words.dotted()
    names = (_name(parts),) if parts else ()
    return Statement("REINDEX", kind.lower() or "index", names, sql)


def _rename_tables(words: Words, sql: str) -> Statement:
    """RENAME TABLE a TO b, c TO d (B compatibility)."""
    if not words.take("TABLE"):
        return _unknown("RENAME", sql)
    actions: list[Action] = []
    for part in words.parts():
        old, has_to, new = part.dotted(), part.take("TO"), part.dotted()
        if old and has_to and new:
            was = _name(old)
            actions.append(Rename(was, Name(new[-2] if len(new) > 1 else was.schema, new[-1])))
        else:
            actions.append(Unread(sql))
    names = tuple(a.old for a in actions if isinstance(a, Rename))
    unread = tuple(a.text for a in actions if isinstance(a, Unread))
    return Statement("ALTER TABLE", "table", names, sql, actions=tuple(actions), unread=unread)


def _truncate(words: Words, sql: str) -> Statement:
    words.take("TABLE")
    words.take("ONLY")
    names = tuple(_name(parts) for part in words.parts() if (parts := part.dotted()))
    return Statement("TRUNCATE TABLE", "table", names, sql)


def _update(words: Words, sql: str) -> Statement:
    """OpenGauss: how a new column's older rows got values that no default shows."""
    words.take("ONLY")
    parts = words.dotted()
    return Statement("UPDATE", "table", (_name(parts),), sql) if parts else _unknown("UPDATE", sql)


def _by_first_word(tag: str) -> Callable[[Words, str], Statement]:
    """Read GRANT, REVOKE and other statements without an object that we follow."""

    def read(words: Words, sql: str) -> Statement:
        del words
        return Statement(tag, "", (), sql)

    return read


_VERBS: Final[dict[str, Callable[[Words, str], Statement]]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop_object,
    "COMMENT": _comment,
    "REINDEX": _reindex,
    "RENAME": _rename_tables,
    "TRUNCATE": _truncate,
    "UPDATE": _update,
    "GRANT": _by_first_word("GRANT"),
    "REVOKE": _by_first_word("REVOKE"),
    "REFRESH": _by_first_word("REFRESH MATERIALIZED VIEW"),
}
