"""What the source defines by SQL of its own, and whether a target may run it.

Defaults, views, indexes, sequences, domains, comments: with `[ddl] apply = "all"`
the definition that the source's server printed is run at the target, with the
target's rights.  Any role that may create objects at the source writes it, and a
record in Kafka may hold any text.  So a definition is cut into tokens, judged and
printed again:

- it is one statement, of the stated kind;
- every function in it is one of the server's own that only compute (`_FUNCTIONS`);
- operators are not qualified, types in casts are the server's, or any type around a
  plain string constant; nothing of the catalog's tables is read.

The rest runs code of the source's users (functions, triggers, what calls
them) and is left out, unless `[ddl] code` says that this is trusted.  What is run
here is run with `search_path = pg_catalog`, so that a name in it means the server's.
"""

from __future__ import annotations

from typing import Final

from schemas import type_names
from schemas.quoting import identifier, literal
from schemas.sql_text import NotRead, Token, tokens
from schemas.system_schemas import is_system


class RunsCode(ValueError):
    """The definition would run code that is not the server's own; `str()` names it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions of pg_catalog that compute a value of their arguments, the clock or a random source, and
# touch neither files, programs, sessions, settings nor other databases, nor take SQL as text.
_FUNCTIONS: Final = _words("""
    abs acos age array_agg array_append array_cat array_length array_position array_prepend
    array_remove array_replace array_to_string array_upper array_lower ascii asin atan atan2 avg
    bit_and bit_length bit_or bool_and bool_or btrim cardinality cbrt ceil ceiling char_length
    character_length chr clock_timestamp coalesce concat concat_ws corr cos cot count covar_pop
    covar_samp cume_dist date_bin date_part date_trunc decode degrees dense_rank div encode
    every exp extract first_value floor format gcd gen_random_uuid greatest host initcap isempty
    isfinite json_agg json_array_length json_build_array json_build_object json_extract_path
    json_extract_path_text json_object_agg json_typeof jsonb_agg jsonb_array_length
    jsonb_build_array jsonb_build_object jsonb_extract_path jsonb_extract_path_text
    jsonb_object_agg jsonb_set jsonb_strip_nulls jsonb_typeof justify_days justify_hours
    justify_interval lag last_value lcm lead least left length ln log lower lower_inc lower_inf
    ltrim make_date make_interval make_time make_timestamp make_timestamptz masklen max md5 min
    mod network now nth_value ntile nullif num_nonnulls num_nulls nvl octet_length overlay
    percent_rank percentile_cont percentile_disc pi position power radians random range_merge
    rank regr_slope replace reverse right round row_number row_to_json rtrim scale sha224 sha256
    sha384 sha512 sign sin split_part sqrt starts_with statement_timestamp stddev stddev_pop
    stddev_samp string_agg string_to_array strpos substr substring sum sysdate tan text timezone
    to_char to_date to_hex to_json to_jsonb to_number to_timestamp transaction_timestamp
    translate trim trunc unnest upper upper_inc upper_inf uuid_in var_pop var_samp variance
    width_bucket
""")
_OF_DEFAULTS: Final = frozenset({"nextval"})  # moves a sequence: nothing for a view
# Words that may stand before a bracket without calling anything.
_SYNTAX: Final = _words("""
    all and any array as between by case check cast default distinct else end enum except exists
    filter from group having ilike in include intersect is join key like limit materialized not
    nulls offset on or order over partition recursive row select set similar some then to union
    unique using values when where with within
""")
_METHODS: Final = frozenset({"btree", "hash", "gist", "gin", "brin", "spgist", "ubtree", "psort"})
_SIZED: Final = _words("""
    numeric decimal dec number character char varchar varchar2 nvarchar2 bpchar bit varbit
    varying time timestamp timestamptz timetz interval float
""")
_NEVER: Final = frozenset({"into", "operator", "tablesample"})
_HEADS: Final = {
    "index": ("CREATE INDEX", "CREATE UNIQUE INDEX"),
    "view": ("CREATE VIEW", "CREATE OR REPLACE VIEW"),
    "materialized view": ("CREATE MATERIALIZED VIEW",),
    "sequence": ("CREATE SEQUENCE", "CREATE LARGE SEQUENCE"),
    "domain": ("CREATE DOMAIN",),
    "type": ("CREATE TYPE", "CREATE DOMAIN"),
}
_ONLY_COMMENTS: Final = frozenset({"table", "column", "table column"})
_KINDS: Final = frozenset({
    *(*_HEADS, *_ONLY_COMMENTS, "schema", "function", "procedure", "aggregate", "trigger"),
    *("package", "package body", "constraint", "rule", "policy", "extension"),
})  # fmt: skip
_CLOSE_TO_THE_LEFT: Final = frozenset({"(", "[", ".", "::"})
_CLOSE_TO_THE_RIGHT: Final = frozenset({")", "]", ".", "::", ",", "["})


def expression(text: str) -> str:
    r"""Return a column's default, printed again; raise RunsCode or NotRead.

    >>> expression("nextval('public.t_id_seq'::regclass)")
    "nextval('public.t_id_seq'::regclass)"
    >>> expression("'new'::public.mood"), expression("(lower('A'::text) || '-1')")
    ('\'new\'::"public"."mood"', "(lower('A'::text) || '-1')")
    >>> expression("evil()")
    Traceback (most recent call last):
    spark_consumers.dialects.definitions.RunsCode: it calls evil(), ...
    """
    words = tokens(text)
    depth = 0
    for word in words:
        depth += (word.upper in {"(", "["}) - (word.upper in {")", "]"})
        ends = word.upper == ";" or (depth == 0 and word.upper == ",")
        if depth < 0 or ends or word.upper == "SELECT":
            raise NotRead("a default that is not an expression")
    if depth or not words:
        raise NotRead("a default that is not an expression")
    return _judged(words, _FUNCTIONS | _OF_DEFAULTS)


def statement(kind: str, text: str) -> str:
    """Return the definition of an object other than a table, printed again.

    Raises RunsCode where it calls code, NotRead where it is not a plain definition of this kind.

    >>> statement("view", 'CREATE OR REPLACE VIEW public.v AS  SELECT t.a FROM public."T" t;')
    'create or replace view public.v as select t.a from public."T" t'
    >>> statement("index", "CREATE INDEX i ON public.t USING btree (public.evil(a))")
    Traceback (most recent call last):
    spark_consumers.dialects.definitions.RunsCode: it names ...
    """
    words = tokens(text)
    if words and words[-1].upper == ";":
        words.pop()
    if not words or kind not in _KINDS or any(word.upper == ";" for word in words):
        raise NotRead("not one statement")
    upper = [word.upper for word in words]
    match upper[0]:
        case "DROP" | "COMMENT" | "ALTER":
            return _plain(kind, words, upper)
        case "CREATE":
            if kind == "schema":
                return _schema(words, upper)
            if kind in _ONLY_COMMENTS:
                raise NotRead(f"a {kind} is not defined by text")
            if kind not in _HEADS:
                raise RunsCode(f"it makes a {kind}, which is code of the source's")
            if not any(upper[: len(h.split())] == h.split() for h in _HEADS[kind]):
                raise NotRead(f"no definition of a {kind}")
            if kind == "type" and "RANGE" in upper[:8]:
                raise RunsCode("it makes a type that may call functions")
            if kind == "type" and upper[1] == "TYPE" and "AS" not in upper[:8]:
                raise RunsCode("it makes a base type, whose functions are code")
            if kind == "index":
                _check_classes(words)
                return _judged(words, _FUNCTIONS, _METHODS)
            head = _header(words) if "view" in kind else 0
            if any(map(_is_reserved, words[:head])):
                raise RunsCode("it is about the server's own schema, or the ledger's")
            return _judged(words, _FUNCTIONS, skip=head)
        case _:
            raise NotRead(f"no definition of a {kind}")


def trusted(kind: str, text: str) -> str:
    """Return any definition as one statement that cannot end the transaction around it.

    Only where `[ddl] code` trusts the source: the text is run as it is.

    Raises NotRead for an unknown kind.
    """
    if kind not in _KINDS:
        raise NotRead("not a known kind of object")
    return block(f"BEGIN EXECUTE {literal(text)}; END")


def block(body: str) -> str:
    """Write an anonymous block; its mark is one that the body has not."""
    mark = "$gc$"
    while mark in body:  # a name may hold anything
        mark = f"{mark[:-1]}_$"
    return f"DO {mark}{body}{mark}"


def _plain(kind: str, words: list[Token], upper: list[str]) -> str:
    """DROP, COMMENT, and ALTER that gives another name or schema: nothing in them is computed."""
    said = kind.upper().split()
    verb = upper[0]
    head = ["COMMENT", "ON"] if verb == "COMMENT" else [verb]
    rest = upper[len(head) :]
    if kind in _ONLY_COMMENTS and verb != "COMMENT":
        raise NotRead(f"a {kind} is not defined by text")
    if rest[: len(said)] != said and not (kind == "table column" and rest[:1] == ["COLUMN"]):
        raise NotRead(f"no statement about a {kind}")
    if verb == "COMMENT":
        is_said = upper[-2:-1] == ["IS"] and (words[-1].kind == "string" or upper[-1] == "NULL")
        target, ends = words[:-2], is_said
    elif verb == "ALTER":
        is_renamed = "RENAME" in upper[-5:] and upper[-2] == "TO"
        target, ends = words[:-1], is_renamed or upper[-3:-1] == ["SET", "SCHEMA"]
    else:
        target, ends = words, True
    is_name = all(w.kind in {"name", "quoted"} or w.upper in {".", ",", "(", ")", "[", "]"}
                  or w.kind == "number" for w in target)  # fmt: skip
    if not ends or not is_name or (verb == "ALTER" and words[-1].name is None):
        raise NotRead(f"more than a name of a {kind}")
    if any(_is_reserved(word) for word in words):
        raise RunsCode("it is about the server's own schema, or the ledger's")
    if verb == "DROP" and upper[-1] == "CASCADE":
        words.pop()  # what else depends on it at the target is not the source's
    return _printed(words)


def _is_reserved(word: Token) -> bool:
    return is_system(word.name or "")


def _schema(words: list[Token], upper: list[str]) -> str:
    """Only the name: what may stand behind it are other statements, and an owner."""
    at = 5 if upper[2:5] == ["IF", "NOT", "EXISTS"] else 2
    if upper[:2] != ["CREATE", "SCHEMA"] or len(words) <= at or (name := words[at].name) is None:
        raise NotRead("no definition of a schema")
    if len(words) > at + 1 and upper[at + 1 : at + 2] != ["AUTHORIZATION"]:
        raise NotRead("more than a name of a schema")
    if _is_reserved(words[at]):
        raise RunsCode("it is about the server's own schema, or the ledger's")
    return f"CREATE SCHEMA IF NOT EXISTS {identifier(name)}"


def _check_classes(words: list[Token]) -> None:
    """Behind USING only pg_catalog's names are qualified: operator classes bring functions."""
    start = next((n for n, w in enumerate(words) if w.upper == "USING"), len(words))
    for at in range(start + 1, len(words)):
        if words[at].upper == "." and words[at - 1].name != "pg_catalog":
            is_type = any(w.upper == "::" for w in words[max(at - 2, 0) : at])
            if not is_type:
                raise RunsCode("it names an operator class or a collation that is not the server's")


def _header(words: list[Token]) -> int:
    """Count the tokens of a view before AS, where they are its name and names of columns."""
    end = next((n for n, w in enumerate(words) if w.upper == "AS"), 0)
    is_plain = all(
        w.name is not None or w.upper in {".", ",", "(", ")"} for w in words[:end]
    ) and not any(w.upper in {"WITH", "SELECT"} for w in words[:end])
    return end if is_plain else 0


def _judged(
    words: list[Token],
    functions: frozenset[str],
    methods: frozenset[str] = frozenset(),
    *,
    skip: int = 0,
) -> str:
    """Print tokens again, unless they call something unknown.

    The first `skip` of them are only names.
    """
    out: list[Token | str] = []
    at = 0
    while at < len(words):
        word = words[at]
        before = words[at - 1] if at else Token("sign", "")
        if word.upper == "::":
            kind, end = type_names.read(words, at + 1)
            if not kind.is_built_in and before.kind != "string":
                raise RunsCode(f"it casts to {kind.bare}, and the cast may be a function")
            out += ["::", str(kind)]
            at = end
            continue
        if word.kind == "name" and word.text in _NEVER:
            raise RunsCode(f"it contains {word.upper}")
        if word.name is not None and at >= skip:
            _check_name(words, at, functions, methods)
        out.append(word)
        at += 1
    return _printed(out)


def _check_name(
    words: list[Token], at: int, functions: frozenset[str], methods: frozenset[str]
) -> None:
    word = words[at]
    is_last = at + 1 < len(words) and words[at + 1].upper == "("
    schema = words[at - 2].name if at > 1 and words[at - 1].upper == "." else None
    if schema is None and at and words[at - 1].upper == ".":
        schema = "?"  # of an expression in brackets
    if not is_last:
        if _is_reserved(word) and word.text != "pg_catalog":
            raise RunsCode(f"it reads {word.text}, which is the server's own or ours")
        return
    if schema in {None, "pg_catalog"} and word.text in functions:
        return
    if schema is None and at and words[at - 1].upper == ")" and _is_names(words, at + 1):
        return  # an alias of what stands in brackets, and of its columns
    if schema is None and word.kind == "name":
        if word.text in _SYNTAX:
            return
        if word.text in methods and words[at - 1].upper == "USING":
            return
        if word.text in _SIZED and _is_size(words, at + 1):
            return
    raise RunsCode(f"it calls {word.text}(), which is not one of the server's functions that "
                   "only compute")  # fmt: skip


def _is_names(words: list[Token], at: int) -> bool:
    """Say whether brackets hold names only, as behind an alias."""
    inside = words[at + 1 :]
    end = next((n for n, w in enumerate(inside) if w.upper == ")"), 0)
    return end > 0 and all(
        (w.name is not None) if n % 2 == 0 else w.upper == "," for n, w in enumerate(inside[:end])
    )


def _is_size(words: list[Token], at: int) -> bool:
    """Say whether brackets hold numbers only, as behind a type."""
    inside = words[at + 1 : at + 5]
    end = next((n for n, w in enumerate(inside) if w.upper == ")"), 0)
    return end > 0 and all(w.kind == "number" or w.upper in {",", "-"} for w in inside[:end])


def _printed(words: list[Token] | list[Token | str]) -> str:
    """Join tokens, each quoted again; signs are separated, so that none begins a comment."""
    out = ""
    last = ""
    for word in words:
        if isinstance(word, str):
            text = shown = word
        else:
            shown = _shown(word)
            text = word.text if word.kind == "sign" else ""
        is_call = text == "(" and last == "name"
        is_close = text in _CLOSE_TO_THE_RIGHT or last in _CLOSE_TO_THE_LEFT or is_call
        out += shown if not out or is_close else f" {shown}"
        is_word = not isinstance(word, str) and word.kind in {"name", "quoted"}
        is_syntax = is_word and not isinstance(word, str) and word.text in _SYNTAX
        last = "name" if is_word and not is_syntax else text
    return out


def _shown(word: Token) -> str:
    match word.kind:
        case "string":
            return literal(word.text)
        case "quoted":
            return identifier(word.text)
        case "name":
            is_bare = word.text.isascii()
            return word.text if is_bare else identifier(word.text)
        case _:
            return word.text
