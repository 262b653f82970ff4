"""What a catalog's rows amount to."""

import pytest

from producer.core.catalog_rows import PlainIndex, table_schema, user_types
from schemas.tables import Column, ReplicaIdentity, TableId, Unique

ID = TableId("public", "t")
COLUMNS = [Column("v", 25), Column("id", 23, nullable=False), Column("code", 25, nullable=False)]
PRIMARY = PlainIndex("t_pkey", ("id",), is_primary=True, is_unique=True, is_identity=False)
CODE = PlainIndex("t_code", ("code",), is_primary=False, is_unique=True, is_identity=True)


@pytest.mark.parametrize(
    ("identity", "indexes", "key", "unique", "carried"),
    [
        (ReplicaIdentity.DEFAULT, [PRIMARY, CODE], ("id",), ["t_code"], ("id",)),
        (ReplicaIdentity.FULL, [PRIMARY, CODE], ("id",), ["t_code"], ("v", "id", "code")),
        (ReplicaIdentity.NOTHING, [PRIMARY, CODE], ("id",), ["t_code"], ()),
        # The stream names rows by the index alone, whatever the primary key is.
        (ReplicaIdentity.INDEX, [PRIMARY, CODE], ("code",), [], ("code",)),
        (ReplicaIdentity.INDEX, [CODE], ("code",), [], ("code",)),
        (ReplicaIdentity.DEFAULT, [CODE], (), ["t_code"], ()),
    ],
)
def test_the_key_is_what_names_a_row_in_the_stream(
    identity: ReplicaIdentity,
    indexes: list[PlainIndex],
    key: tuple[str, ...],
    unique: list[str],
    carried: tuple[str, ...],
) -> None:
    shape = table_schema(ID, identity, COLUMNS, indexes)

    assert (shape.key, shape.identity_columns) == (key, carried)
    assert shape.unique == tuple(Unique(name, ("code",)) for name in unique)


def test_types_of_thousands_of_types_are_described_all_the_same() -> None:
    """Any role may create a domain over a domain …, or a composite of two of the one before."""
    domains = {
        20_000 + n: ("d", f"d{n}", f"d{n - 1}", 19_999 + n, -1, ",", ()) for n in range(3000)
    }
    pairs = {
        30_000 + n: ("c", f"c{n}", "", 0, -1, ",", (f"1:{29_999 + n}:-1", f"2:{29_999 + n}:-1"))
        for n in range(1, 300)
    }
    first = {30_000: ("c", "c0", "", 0, -1, ",", ("1:23:-1",))}
    altered = {30_000: ("c", "c0", "", 0, -1, ",", ("1:20:-1",))}

    found = user_types(domains | pairs | first, [22_999, 30_020])
    after = user_types(domains | pairs | altered, [22_999, 30_020])

    depth, at = 0, found[22_999]
    while at.of is not None:
        depth, at = depth + 1, at.of
    assert depth < 100
    assert at.kind == "b"
    assert len(found[30_020].labels) < 5000
    assert found[22_999] == after[22_999]
    assert found[30_020] != after[30_020]  # what changed far below is noticed
