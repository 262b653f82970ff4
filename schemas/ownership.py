"""Which objects of our schema a half may use: those in which nobody else's code can run.

Who may CREATE in a database can make schema `gauss_cdc`, or what stands in it, before us.  A
statement of ours that meets a view, a trigger, a rule, a policy, a default, a domain, an expression
of an index or of statistics there, or is carried on to a table that references ours, runs functions
with our rights.  So each half looks at its objects at each connection, and uses none that is not
ours:

    an ordinary table, with nothing of all that; the table and its schema belong to the role
    itself, to the database's owner, or to a superuser

An owner can add code at any time, so the owner is what counts; the rest is what a former owner,
or somebody with a right on the table, may have left.
"""
# ruff: noqa: S608  names are our own, and quoted

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from schemas.quoting import constant, identifier, one_of
from schemas.system_schemas import OWN_SCHEMA

Ask: TypeAlias = Callable[[str], Sequence[Sequence[str | None]]]
"""Runs one statement in a session whose `search_path` is ours; rows of text."""


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Tables of ours: by their names, or by how their names begin."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...] = ()  # with columns of the target's types


REQUESTS: Final = OwnTables(("snapshot_requests",))
MARKS: Final = OwnTables(("snapshot_marks",))
TRIGGERS: Final = OwnTables((
    "ddl_log", "ddl_publication", "ddl_tables", "ddl_partitions", "ddl_rewrites", "ddl_spared",
    "ddl_generated",
))  # fmt: skip
LEDGER: Final = OwnTables(
    ("ledger", "tables", "loads", "shadows", "conflicts", "lease", "shapes"),
    ("stage_", "shadow_"),
)


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """An object of our schema that is not ours."""

    name: str  # "": the schema
    why: str
    way_out: str

    def __str__(self) -> str:
        place = f"{OWN_SCHEMA}.{self.name}" if self.name else f"schema {OWN_SCHEMA}"
        return f"{place} is not ours: {self.why}"


@dataclass(frozen=True, slots=True)
class OwnSchema:
    """What a server has of our tables."""

    oids: Mapping[str, int]  # of those that are there
    foreign: tuple[ForeignObject, ...]


def look(ask: Ask, wanted: OwnTables, *, superusers: bool = False, role: str = "") -> OwnSchema:
    """Look at our schema, and at those of the tables that are there.

    `superusers`: only these may own them, since what runs there has the rights of one.
    `role`: whom we work for, if that is not who asks; it may own them, too.
    """
    rows = ask(_question(wanted, _SUPERUSERS if superusers else _owners(role)))
    facts = [_Fact(*(cell or "" for cell in row)) for row in rows]
    return OwnSchema(
        {fact.table: int(fact.what) for fact in facts if fact.kind == "there"},
        tuple(_judged(facts, wanted)),
    )


def guard(name: str, oid: int) -> str:
    """Write what stands before a statement on a table: it fails where that was replaced since.

    The server then misses a relation, whose name says why.
    """
    table = f"{OWN_SCHEMA}.{name}"
    return (
        f"LOCK TABLE {table} IN ACCESS SHARE MODE;"
        f" SELECT (CASE '{table}'::pg_catalog.regclass::pg_catalog.oid WHEN {oid:d} THEN '{table}'"
        f" ELSE '\"{table} as it was\"' END)::pg_catalog.regclass; "
    )


def is_trusted(owner: str) -> str:
    """Write the test of SQL that an owner, an expression of type oid, is one of these."""
    return f"EXISTS (SELECT 1 FROM pg_catalog.pg_roles r WHERE r.oid = {owner} AND ({_OWNERS}))"


# ---- the question, in SQL of PostgreSQL 9.2, which openGauss comes from; an empty text, which some
# of its databases take for NULL, is neither said nor compared

# 6171 is pg_database_owner, whose one member is the owner.  A system administrator of openGauss
# has no rolsuper, and PostgreSQL no rolsystemadmin; texts in a row have their quotes escaped.
_SUPERUSERS: Final = (
    "r.rolsuper OR pg_catalog.row_to_json(r)::text LIKE '%\"rolsystemadmin\":true%'"
)
_OWNERS: Final = (
    f"{_SUPERUSERS} OR r.rolname = current_user OR r.oid = 6171 OR r.oid = (SELECT d.datdba"
    " FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())"
)
_QUESTION: Final = """
WITH home AS (
    SELECT n.oid, n.nspowner, n.nspacl FROM pg_catalog.pg_namespace n WHERE n.nspname = '{schema}'
), own AS (
    SELECT c.oid, c.relname::text AS name, c.relowner, c.relacl, c.relkind,
           pg_catalog.row_to_json(c)::text AS said
    FROM pg_catalog.pg_class c JOIN home n ON n.oid = c.relnamespace WHERE {wanted}
), granted AS (
    SELECT true AS is_home, NULL::text AS name,
           (pg_catalog.aclexplode(n.nspacl)).privilege_type AS privilege,
           (pg_catalog.aclexplode(n.nspacl)).grantee AS grantee FROM home n
    UNION ALL
    SELECT false, c.name, (pg_catalog.aclexplode(c.relacl)).privilege_type,
           (pg_catalog.aclexplode(c.relacl)).grantee FROM own c
    UNION
    SELECT false, c.name, (pg_catalog.aclexplode(a.attacl)).privilege_type,
           (pg_catalog.aclexplode(a.attacl)).grantee
    FROM own c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid WHERE a.attnum > 0
), trusted AS (
    SELECT r.oid FROM pg_catalog.pg_roles r WHERE ({trusted}) AND r.oid IN (
        SELECT n.nspowner FROM home n UNION ALL SELECT c.relowner FROM own c
        UNION ALL SELECT g.grantee FROM granted g)
), others AS (
    SELECT g.* FROM granted g WHERE g.grantee NOT IN (SELECT t.oid FROM trusted t)
)
SELECT NULL::text AS name, 'role' AS kind, current_user::text AS what, NULL::text AS detail
UNION ALL SELECT NULL, 'schema', pg_catalog.pg_get_userbyid(n.nspowner)::text, NULL
    FROM home n WHERE n.nspowner NOT IN (SELECT t.oid FROM trusted t)
UNION ALL SELECT c.name, 'there', c.oid::text, NULL FROM own c
UNION ALL SELECT c.name, 'owner', pg_catalog.pg_get_userbyid(c.relowner)::text, NULL
    FROM own c WHERE c.relowner NOT IN (SELECT t.oid FROM trusted t)
UNION ALL SELECT c.name, 'no table', NULL, NULL FROM own c WHERE c.relkind <> 'r'
    OR c.said LIKE '%"parttype":"%' AND c.said NOT LIKE '%"parttype":"n"%'
UNION ALL SELECT c.name, 'trigger', t.tgname::text, NULL FROM own c
    JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid WHERE NOT t.tgisinternal
UNION ALL SELECT c.name, 'rule', r.rulename::text, NULL FROM own c
    JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid WHERE c.relkind = 'r'
UNION ALL SELECT c.name, 'policies', NULL, NULL FROM own c
    WHERE c.said LIKE '%"relrowsecurity":true%' OR c.said LIKE '%"enable_rowsecurity=true"%'
UNION ALL SELECT c.name, 'heir', i.inhrelid::pg_catalog.regclass::text,
                 i.inhparent::pg_catalog.regclass::text
    FROM own c JOIN pg_catalog.pg_inherits i ON c.oid IN (i.inhrelid, i.inhparent)
UNION ALL SELECT c.name, 'default', a.attname::text, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
    FROM own c JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid
    JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
UNION ALL SELECT c.name, 'type', a.attname::text, NULL
    FROM own c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE a.attnum > 0 AND NOT a.attisdropped AND n.nspname <> 'pg_catalog'
UNION ALL SELECT c.name, 'index', i.indexrelid::pg_catalog.regclass::text, NULL FROM own c
    JOIN pg_catalog.pg_index i ON i.indrelid = c.oid
    WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL
UNION ALL SELECT c.name, 'constraint', k.conname::text, NULL FROM own c
    JOIN pg_catalog.pg_constraint k ON k.conrelid = c.oid WHERE k.contype NOT IN ('p', 'u', 'n')
UNION ALL SELECT c.name, 'reference', k.conname::text, k.conrelid::pg_catalog.regclass::text
    FROM own c JOIN pg_catalog.pg_constraint k ON k.confrelid = c.oid
    WHERE k.contype = 'f' AND k.conrelid <> c.oid
UNION ALL SELECT c.name, 'statistics', NULL, NULL FROM own c WHERE EXISTS (
    SELECT 1 FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_class k ON k.oid = d.classid AND k.relname = 'pg_statistic_ext'
    WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = c.oid)
UNION ALL SELECT o.name, 'right', CASE WHEN o.grantee <> 0
                 THEN pg_catalog.pg_get_userbyid(o.grantee)::text END, o.privilege
    FROM others o WHERE NOT o.is_home
    AND o.privilege IN ('TRIGGER', 'REFERENCES', 'ALTER', 'DROP', 'INDEX')
    AND EXISTS (SELECT 1 FROM others s WHERE s.is_home AND s.privilege = 'USAGE')
"""


def _owners(role: str) -> str:
    return f"{_OWNERS} OR r.rolname = {constant(role)}" if role else _OWNERS


def _question(wanted: OwnTables, trusted: str) -> str:
    names = [f"c.relname IN {one_of(wanted.names)}"]
    names += [  # not their indexes
        f"c.relkind NOT IN ('i', 'I') AND pg_catalog.strpos(c.relname::text, '{begin}') = 1"
        for begin in wanted.prefixes
    ]
    return _QUESTION.format(
        trusted=trusted,
        schema=OWN_SCHEMA,
        wanted=f"({' OR '.join(names)})",
    )


# ---- the judgement


class _Fact(NamedTuple):
    table: str
    kind: str
    what: str
    detail: str


# Why each is not ours, and the way out; the worst first.
_WORDS: Final = {
    "schema": (
        "it belongs to {what}, who can put code into it that runs with our rights",
        "ALTER SCHEMA {schema} OWNER TO {me} if all in it can be trusted, else drop and make it",
    ),
    "owner": (
        "it belongs to {what}, whose code would run with our rights",
        "ALTER TABLE {table} OWNER TO {me} if it can be trusted, else drop it",
    ),
    "no table": ("it is not an ordinary table", "look at it, and drop it"),
    "trigger": ("it has trigger {what}", "DROP TRIGGER {name} ON {table}"),
    "rule": ("it has rule {what}", "DROP RULE {name} ON {table}"),
    "policies": ("it has row security", "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"),
    "heir": ("{what} inherits from {detail}", "ALTER TABLE {what} NO INHERIT {detail}"),
    "default": (
        "column {what} has an expression that is not ours",
        "ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT, or drop the column",
    ),
    "type": (
        "column {what} has a type that is not the server's",
        "ALTER TABLE {table} DROP COLUMN {name}, or drop the table",
    ),
    "index": ("index {what} has an expression", "DROP INDEX {what}"),
    "constraint": (
        "it has a constraint that is not ours, {what}",
        "ALTER TABLE {table} DROP CONSTRAINT {name}",
    ),
    # Who references it may have rows deleted with ours: triggers behind that run with our rights.
    "reference": (
        "{detail} references it",
        "ALTER TABLE {detail} DROP CONSTRAINT {name}",
    ),
    # Their expressions are evaluated by who plans a query.
    "statistics": (
        "it has statistics that are not ours",
        "DROP STATISTICS, of which psql's \\d {table} says the name",
    ),
    "right": (
        "{who} may put code into it, by the right {detail}",
        "REVOKE {detail} ON {table} FROM {who}",
    ),
}
# What runs no function of others: a constant, the next number of a sequence of ours, what the
# server computes from nothing.  Names of others' functions and types come with a schema.
_OWN_DEFAULT: Final = re.compile(
    r"(?:'[^'\\]*'|\(?-?\d+\)?|true|false|[A-Z_]+|\"?[a-z_]+\"?\(\)"
    rf"|nextval\('{OWN_SCHEMA}\.[a-z_]+'::regclass\))(?:::[a-z ]+)?"
)


def _judged(facts: Iterable[_Fact], wanted: OwnTables) -> Iterator[ForeignObject]:
    order = [*_WORDS]
    found = [fact for fact in facts if fact.kind in _WORDS and not _is_own(fact, wanted)]
    me = next(identifier(fact.what) for fact in facts if fact.kind == "role")
    for fact in sorted(found, key=lambda f: (f.table, order.index(f.kind), f)):
        name = identifier(fact.what) if fact.what else ""
        words = {
            "what": fact.what, "detail": fact.detail, "name": name, "who": name or "PUBLIC",
            "me": me, "schema": OWN_SCHEMA, "table": f"{OWN_SCHEMA}.{_quoted(fact.table)}",
        }  # fmt: skip
        why, way_out = (text.format(**words) for text in _WORDS[fact.kind])
        yield ForeignObject(fact.table, why, way_out)


def _quoted(name: str) -> str:
    return name if re.fullmatch("[a-z_0-9]*", name) else identifier(name)


def _is_own(fact: _Fact, wanted: OwnTables) -> bool:
    match fact.kind:
        case "default":
            return _OWN_DEFAULT.fullmatch(fact.detail) is not None
        case "type":
            return fact.table.startswith(wanted.prefixes)
        case "policies":  # without one: nobody but its owner can write records
            return fact.table == "ddl_log"
        case _:
            return False
