"""How a column's values were converted, as far as the text that the server was given tells."""

import pytest

from producer.sources.postgres.triggers.using import converted

T, C = "t", "a"


@pytest.mark.parametrize(
    ("sql", "how"),
    [
        ("ALTER TABLE t ALTER a TYPE bigint", ""),
        ("alter table if exists only public.t alter column a set data type bigint;", ""),
        ('ALTER TABLE "t" ALTER "a" TYPE bigint', ""),
        ("ALTER TABLE t ADD COLUMN b int, ALTER a TYPE bigint, DROP c", ""),
        ("ALTER TABLE t ALTER a TYPE bigint USING a::bigint", "explicit"),
        ("ALTER TABLE t ALTER a TYPE bigint USING (a::bigint)", "explicit"),
        ("ALTER TABLE t ALTER a TYPE bigint USING CAST(a AS bigint)", "explicit"),
        ("ALTER TABLE t ALTER a TYPE numeric(9,2) USING a::numeric(9,2)", "explicit"),
        ("ALTER TABLE t ALTER a TYPE bigint USING b::bigint", "lost"),
        ("ALTER TABLE t ALTER a TYPE bigint USING a::text::bigint", "lost"),
        ("ALTER TABLE t ALTER a TYPE bigint USING f(a, 1)", "lost"),
        ("ALTER TABLE t ALTER a TYPE bigint USING a::bigint + 1", "lost"),
        ("UPDATE t SET a = 1; ALTER TABLE t ALTER a TYPE bigint; SELECT 1", ""),
        ("-- USING a * 2\nALTER TABLE t ALTER a TYPE bigint /* USING 3 */", "lost"),
        ("SELECT 'ALTER TABLE t ALTER a TYPE bigint USING 1'", None),
        ("DO $$ BEGIN ALTER TABLE t ALTER a TYPE bigint; END $$", "lost"),
        ("DO $x$ BEGIN EXECUTE 'ALTER TABLE t ALTER a TYPE bigint'; END $x$", "lost"),
        ("SELECT '\\'';ALTER TABLE t ALTER a TYPE bigint USING a*2;--'", "lost"),
        ('ALTER TABLE t ALTER a TYPE bigint; ALTER TABLE t ALTER "é" TYPE int', "lost"),
        ("ALTER TABLE t * ALTER a TYPE bigint USING a * 2", "lost"),
        ("ALTER TABLE t ALTER U&\"!0061\" UESCAPE '!' TYPE bigint USING a * 2", "lost"),
        ("ALTER TABLE other ALTER a TYPE bigint", "lost"),
        ("ALTER TABLE t ALTER b TYPE bigint", None),
        ("ALTER TABLE t ALTER CONSTRAINT a DEFERRABLE", None),
        ("SELECT f()", None),
        ("", None),
        ("CREATE INDEX ON t USING btree (a); ALTER TABLE t ALTER a TYPE bigint", ""),
    ],
)
def test_only_a_plain_cast_can_be_repeated(sql, how) -> None:
    assert converted(sql, T, C, "bigint") == how


def test_of_two_conversions_the_one_with_the_type_counts() -> None:
    sql = "ALTER TABLE t ALTER a TYPE varchar(9); ALTER TABLE t ALTER a TYPE text USING upper(a)"

    assert converted(sql, T, C, "character varying(9)") == ""
    assert converted(sql, T, C, "text") == "lost"
    assert converted(sql, T, C, "integer") == "lost"
