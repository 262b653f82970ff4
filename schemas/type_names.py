"""Names of types, parsed and printed again.

A column's type comes as text, as format_type() prints it, in a record that
anybody may have written.  It is parsed into schema, name, modifiers and depth of
arrays; what a statement gets is printed from these.  Words that stand without
quotes are of this module, never of the text.

>>> str(parse('character varying(20)[]')), str(parse('public.Mood'))
('character varying(20)[]', '"public"."mood"')
>>> str(parse('timestamp(3) with time zone')), str(parse('"S".geometry(Point,4326)'))
('timestamp(3) with time zone', '"S"."geometry"("point",4326)')
>>> parse('int4 OWNER TO mallory')
Traceback (most recent call last):
schemas.sql_text.NotRead: words after a type
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from schemas.quoting import identifier
from schemas.sql_text import NotRead, Token, tokens

# Names of several words, and those that are keywords: "integer" in quotes is not a type.
_LONG: Final = (
    ("double", "precision"),
    ("character", "varying"),
    ("national", "character", "varying"),
    ("national", "character"),
    ("bit", "varying"),
)
_KEYWORDS: Final = frozenset({
    *("smallint", "integer", "int", "bigint", "tinyint", "real", "float", "decimal", "dec"),
    *("numeric", "boolean", "bit", "character", "char", "varchar", "nchar", "nvarchar"),
    *("nvarchar2", "varchar2", "number", "binary_integer", "binary_double", "raw"),
    *("time", "timestamp", "interval", "smalldatetime"),
})  # fmt: skip
# Of the server's own schema, with nothing to quote in them; their quotes would be noise.
_PLAIN: Final = frozenset({
    *("text", "date", "uuid", "json", "jsonb", "xml", "bytea", "money", "name", "oid", "xid"),
    *("xid8", "cid", "tid", "inet", "cidr", "macaddr", "macaddr8", "point", "line", "lseg"),
    *("box", "path", "polygon", "circle", "tsvector", "tsquery", "pg_lsn", "pg_snapshot"),
    *("txid_snapshot", "timestamptz", "timetz", "int2", "int4", "int8", "float4", "float8"),
    *("bool", "bpchar", "varbit", "jsonpath", "int4range", "int8range", "numrange", "tsrange"),
    *("tstzrange", "daterange", "int4multirange", "int8multirange", "nummultirange"),
    *("tsmultirange", "tstzmultirange", "datemultirange", "clob", "blob", "reltime", "abstime"),
    *("tinterval", "hash16", "hash32", "byteawithoutorderwithequalcol", "int1", "int16"),
    *("regclass", "regproc", "regprocedure", "regoper", "regoperator", "regtype", "regconfig"),
    *("regdictionary", "regrole", "regnamespace", "regcollation", "refcursor", "int2vector"),
    *("oidvector", "aclitem"),
})  # fmt: skip
_ZONED: Final = frozenset({"time", "timestamp"})
_FIELDS: Final = frozenset({"year", "month", "day", "hour", "minute", "second", "to"})
_DEEPEST: Final = 6  # MAXDIM of the server
_MOST_MODIFIERS: Final = 8
_LONGEST: Final = 2_000  # characters of a type's name with everything around it


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type: `str()` is SQL that names it and nothing else."""

    name: str  # as the catalog has it, or the keywords
    schema: str | None = None
    modifiers: tuple[str, ...] = ()  # numbers, and names where a type has such
    behind: str = ""  # "with time zone", or the fields of an interval
    depth: int = 0  # of an array
    is_keyword: bool = False

    def __str__(self) -> str:
        shown = ",".join(m if _is_number(m) else identifier(m) for m in self.modifiers)
        inside = f"({shown})" if shown else ""
        if self.name == "interval" and self.is_keyword:
            rest = (f" {self.behind}" if self.behind else "") + inside
        else:
            rest = inside + (f" {self.behind}" if self.behind else "")
        return self.bare + rest + "[]" * self.depth

    @property
    def bare(self) -> str:
        """The name alone, without modifiers and brackets."""
        if self.schema is not None:
            return f"{identifier(self.schema)}.{identifier(self.name)}"
        return self.name if self.is_keyword else identifier(self.name)

    @property
    def element(self) -> TypeName:
        """The type of an array's elements."""
        return replace(self, depth=0)

    @property
    def is_built_in(self) -> bool:
        """Say whether it is a type of the server, by its name."""
        return self.is_keyword or self.schema == "pg_catalog"


def parse(text: str) -> TypeName:
    """Read a type's name; raise NotRead where the text is anything else."""
    if len(text) > _LONGEST:
        raise NotRead("a type's name is too long")
    words = tokens(text)
    found, end = read(words, 0)
    if end != len(words):
        raise NotRead("words after a type")
    return found


def written(text: str) -> str:
    """Return the type's name, quoted again; raise NotRead."""
    return str(parse(text))


def read(words: list[Token], at: int) -> tuple[TypeName, int]:
    """Read the type that stands at a place among tokens, and where it ends; raise NotRead."""
    found, at = _name(words, at)
    modifiers, at = _modifiers(words, at)
    behind = ""
    if found.is_keyword and found.name in _ZONED and _upper(words, at) in {"WITH", "WITHOUT"}:
        if [_upper(words, at + 1), _upper(words, at + 2)] != ["TIME", "ZONE"]:
            raise NotRead("words after a type")
        behind, at = f"{words[at].text} time zone", at + 3
    elif found.is_keyword and found.name == "interval":
        fields = []
        while at < len(words) and words[at].kind == "name" and words[at].text in _FIELDS:
            fields.append(words[at].text)
            at += 1
        behind = " ".join(fields)
        if fields and not modifiers:
            modifiers, at = _modifiers(words, at)
        elif fields and modifiers:
            raise NotRead("words after a type")
    depth = 0
    while _upper(words, at) == "[":
        # A size says nothing: the server keeps none.
        is_sized = at + 1 < len(words) and words[at + 1].kind == "number"
        if _upper(words, at + 1 + is_sized) != "]":
            raise NotRead("an unterminated bracket")
        depth, at = depth + 1, at + 2 + is_sized
    if depth > _DEEPEST:
        raise NotRead("an array of too many dimensions")
    return replace(found, modifiers=modifiers, behind=behind, depth=depth), at


def _name(words: list[Token], at: int) -> tuple[TypeName, int]:
    for names in _LONG:
        if tuple(w.text for w in words[at : at + len(names)] if w.kind == "name") == names:
            return TypeName(" ".join(names), is_keyword=True), at + len(names)
    if at >= len(words) or (name := words[at].name) is None:
        raise NotRead("not a type name")
    if _upper(words, at + 1) == ".":
        inner = words[at + 2].name if at + 2 < len(words) else None
        if inner is None or _upper(words, at + 3) == ".":
            raise NotRead("a type name with more than two parts")
        return TypeName(inner, name), at + 3
    is_keyword = words[at].kind == "name" and name in _KEYWORDS | _PLAIN
    return TypeName(name, is_keyword=is_keyword), at + 1


def _modifiers(words: list[Token], at: int) -> tuple[tuple[str, ...], int]:
    """Read `(10,-2)` or `(Point,4326)`, if it stands there."""
    found: list[str] = []
    if _upper(words, at) != "(":
        return (), at
    at += 1
    while at < len(words) and len(found) < _MOST_MODIFIERS:
        sign = ""
        if words[at].text == "-" and words[at].kind == "sign":
            sign, at = "-", at + 1
        if at < len(words) and words[at].kind == "number" and words[at].text.isdecimal():
            found.append(sign + words[at].text)
        elif at < len(words) and not sign and (name := words[at].name) is not None:
            found.append(name)
        else:
            break
        at += 1
        if _upper(words, at) == ")":
            return tuple(found), at + 1
        if _upper(words, at) != ",":
            break
        at += 1
    raise NotRead("type modifiers that are not numbers or names")


def _upper(words: list[Token], at: int) -> str:
    return words[at].upper if at < len(words) else ""


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal()
