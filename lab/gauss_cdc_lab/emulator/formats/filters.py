"""What options keep from a stream: lists of tables and users, origins, generated columns."""

from __future__ import annotations

from gauss_cdc_lab.emulator.model import Mode, Row, Transaction


class Filter:
    """The filtering options of one mode; the answers for tables are kept."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._listed: dict[tuple[str, str], bool] = {}

    def foreign(self, transaction: Transaction) -> bool:
        """Whether only-local leaves it out, since it came by replication."""
        return self._mode.only_local and transaction.origin_id != 0

    def excluded(self, transaction: Transaction) -> bool:
        """Whether its user is one whose changes are not wanted (GaussDB)."""
        return transaction.user in self._mode.exclude_users

    def listed(self, row: Row) -> bool:
        """Whether white-table-list lets the table pass; `*` is a wildcard for a whole part."""
        table = (row.schema, row.table)
        listed = self._listed.get(table)
        if listed is None:
            listed = self._listed[table] = not self._mode.white_table_list or any(
                schema in {"*", row.schema} and name in {"*", row.table}
                for schema, name in self._mode.white_table_list
            )
        return listed

    def without_generated(self, row: Row) -> Row:
        """The row less its new generated columns, if so asked; old ones always go along."""
        if not self._mode.skip_generated_columns or row.new is None:
            return row
        return row._replace(new=[field for field in row.new if not field.generated])
