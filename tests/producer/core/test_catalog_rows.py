"""What a catalog's rows amount to."""

import pytest

from producer.core.catalog_rows import Index, table_schema
from schemas.tables import Column, ReplicaIdentity, TableId, Unique

ID = TableId("public", "t")
COLUMNS = [Column("v", 25), Column("id", 23, nullable=False), Column("code", 25, nullable=False)]
PRIMARY = Index("t_pkey", ("id",), is_primary=True, is_unique=True, is_identity=False)
CODE = Index("t_code", ("code",), is_primary=False, is_unique=True, is_identity=True)


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
    indexes: list[Index],
    key: tuple[str, ...],
    unique: list[str],
    carried: tuple[str, ...],
) -> None:
    shape = table_schema(ID, identity, COLUMNS, indexes)

    assert (shape.key, shape.identity_columns) == (key, carried)
    assert shape.unique == tuple(Unique(name, ("code",)) for name in unique)
