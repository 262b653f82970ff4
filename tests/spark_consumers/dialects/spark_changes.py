"""Schema changes, and Spark's statements for them."""

from dataclasses import replace

from schemas.control import Moved, Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.dialects.spark import with_texts

T = TableSchema(
    TableId("public", "t"),
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("a", 1043, 24, "character varying(20)"),
        Column("n", 1700, 655366, "numeric(10,2)"),
    ),
    key=("id",),
)


def with_columns(*columns: Column, of: TableSchema = T) -> TableSchema:
    return replace(of, columns=columns)


def change(before: TableSchema | None, after: TableSchema | None, **more: object) -> SchemaChange:
    return SchemaChange(
        *(1, 1, 0, 7, 7, 7, Origin.DEPARSED, "ALTER TABLE", before, after),
        **more,  # type: ignore[arg-type]
    )


ID, A, N = T.columns
EVERYTHING = with_columns(
    ID,
    Column("i2", 21), Column("i8", 20), Column("f4", 700), Column("f8", 701), Column("b", 16),
    Column("free", 1700), Column("big", 1700, (39 << 16) + 4), Column("t", 25),
    Column("by", 17), Column("d", 1082), Column("ts", 1114), Column("ts3", 1114, 3),
    Column("tz", 1184), Column("ti", 1083), Column("iv", 1186), Column("j", 3802),
    Column("u", 2950), Column("bit", 1560, 1), Column("ia", 1007), Column("na", 1231, 655366),
    Column("p", 600), Column("raw", 86), Column("`x`", 25),
)  # fmt: skip

CREATED = (
    "CREATE TABLE IF NOT EXISTS `public`.`t` (`id` INT NOT NULL, `i2` SMALLINT, `i8` BIGINT,"
    " `f4` FLOAT, `f8` DOUBLE, `b` BOOLEAN, `free` STRING, `big` STRING, `t` STRING, `by` BINARY,"
    " `d` DATE, `ts` TIMESTAMP_NTZ, `ts3` TIMESTAMP_NTZ, `tz` TIMESTAMP, `ti` STRING, `iv` STRING,"
    " `j` STRING, `u` STRING, `bit` STRING, `ia` ARRAY<INT>, `na` ARRAY<DECIMAL(10,2)>,"
    " `p` STRUCT<x:DOUBLE,y:DOUBLE>, `raw` BINARY, ```x``` STRING)"
)

EXAMPLES: dict[str, tuple[SchemaChange, list[str]]] = {
    "create": (
        change(None, EVERYTHING),
        ["CREATE SCHEMA IF NOT EXISTS `public`", CREATED],
    ),
    "drop": (change(T, None), ["DROP TABLE IF EXISTS `public`.`t`"]),
    "another object": (change(None, None, kind="view"), []),
    "nothing": (change(T, T), []),
    "rename table": (
        change(T, replace(T, id=TableId("other", "u"))),
        [
            "CREATE SCHEMA IF NOT EXISTS `other`",
            "ALTER TABLE `public`.`t` RENAME TO `other`.`u`",
        ],
    ),
    "rename column": (
        change(T, with_columns(ID, replace(A, name="z"), N), renamed={"a": "z"}),
        ["ALTER TABLE `public`.`t` RENAME COLUMN `a` TO `z`"],
    ),
    "perhaps a rename": (
        replace(change(T, with_columns(ID, replace(A, name="z"), N)), origin=Origin.INFERRED),
        [
            "ALTER TABLE `public`.`t` DROP COLUMN `a`",
            "ALTER TABLE `public`.`t` ADD COLUMNS (`z` STRING)",
        ],
    ),
    "drop column": (
        change(T, with_columns(ID, N)),
        ["ALTER TABLE `public`.`t` DROP COLUMN `a`"],
    ),
    "add column": (
        change(T, with_columns(*T.columns, Column("c", 20))),
        ["ALTER TABLE `public`.`t` ADD COLUMNS (`c` BIGINT)"],
    ),
    "add column with a value": (
        change(T, with_columns(*T.columns, Column("c", 1700, 655366, missing="0.5"))),
        [
            "ALTER TABLE `public`.`t` ADD COLUMNS (`c` DECIMAL(10,2))",
            "UPDATE `public`.`t` SET `c` = CAST('0.50' AS DECIMAL(10,2))",
        ],
    ),
    "add column with a text": (
        change(T, with_columns(*T.columns, Column("c", 25, missing="it's \\ a"))),
        [
            "ALTER TABLE `public`.`t` ADD COLUMNS (`c` STRING)",
            "UPDATE `public`.`t` SET `c` = 'it\\'s \\\\ a'",
        ],
    ),
    "add column with a padded text": (
        change(T, with_columns(*T.columns, Column("c", 1042, 7, missing="x"))),
        [
            "ALTER TABLE `public`.`t` ADD COLUMNS (`c` STRING)",
            "UPDATE `public`.`t` SET `c` = 'x  '",
        ],
    ),
    "add column with bytes": (
        change(T, with_columns(*T.columns, Column("c", 17, missing="\\xCAfe"))),
        [
            "ALTER TABLE `public`.`t` ADD COLUMNS (`c` BINARY)",
            "UPDATE `public`.`t` SET `c` = X'cafe'",
        ],
    ),
    "add column with a value that Spark has not": (
        replace(
            change(T, with_columns(*T.columns, Column("c", 1082, missing="infinity"))),
            origin=Origin.INFERRED,
        ),
        [
            "ALTER TABLE `public`.`t` ADD COLUMNS (`c` DATE)",
            "UPDATE `public`.`t` SET `c` = NULL, _exact = "
            + with_texts("_exact", {"c": "infinity"}),
        ],
    ),
    "make a column anew": (
        change(T, T, values={"a": "new"}),
        [
            "ALTER TABLE `public`.`t` DROP COLUMN `a`",
            "ALTER TABLE `public`.`t` ADD COLUMNS (`a` STRING)",
        ],
    ),
    "widen": (
        change(
            T,
            with_columns(
                replace(ID, type_oid=20),
                replace(A, type_oid=25, type_mod=-1),
                replace(N, type_mod=(12 << 16 | 2) + 4),
            ),
        ),
        [
            "ALTER TABLE `public`.`t` ALTER COLUMN `id` TYPE BIGINT",
            "ALTER TABLE `public`.`t` ALTER COLUMN `n` TYPE DECIMAL(12,2)",
        ],
    ),
    "another key": (
        change(T, replace(with_columns(replace(ID, nullable=True), A, N), key=())),
        ["ALTER TABLE `public`.`t` ALTER COLUMN `id` DROP NOT NULL"],
    ),
    "move all rows": (
        change(T, T, moved=Moved("move", TableId("public", "p"))),
        [
            "INSERT INTO `public`.`t` (`id`, `a`, `n`) SELECT `id`, `a`, `n` FROM `public`.`p`",
            "DELETE FROM `public`.`p`",
        ],
    ),
}
