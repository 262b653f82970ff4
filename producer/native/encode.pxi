# Values of rows, as `core.records.encode` writes them: what a table version and what a
# transaction makes constant, with a row between.

from cpython.list cimport PyList_GetItem
from libc.stdlib cimport calloc

from producer.core.records.reference import filled
from schemas.tables import UNCHANGED


cdef int plan_column(Column *column, said) except -1:
    """Take a column's plan, which must outlive it."""
    column.opcode = _OPCODES[said.opcode]
    column.is_nullable, column.in_old_key = said.nullable, said.in_old_key
    column.absent, column.unsent = span_of(said.absent), span_of(said.unsent)
    column.name = span_of(said.name)
    if column.opcode == OPCODE_DECIMAL:
        column.precision, column.scale = said.numbers
    elif column.opcode == OPCODE_TIMESTAMPTZ:
        (column.scale,) = said.numbers
    elif column.opcode == OPCODE_PYTHON:
        column.write = <PyObject *>said.write
    column.exact = <PyObject *>said.exact
    return 0


cdef class PlannedTable:
    """How rows of a table version are written: its `RowPlan`."""

    cdef object plan  # keeps alive what is pointed to
    cdef Span head, origin, database, table, key_only
    cdef size_t width
    cdef Column *columns

    def __cinit__(self, plan, *_):
        cdef size_t at
        self.plan = plan
        self.head, self.origin = span_of(plan.head), span_of(plan.origin)
        self.database, self.table = span_of(plan.database), span_of(plan.table)
        self.key_only = span_of(plan.key_only)
        self.width = len(plan.columns)
        self.columns = <Column *>calloc(max(self.width, <size_t>1), sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        for at in range(self.width):
            plan_column(&self.columns[at], plan.columns[at])

    def __dealloc__(self):
        free(self.columns)


# ---------------------------------------------------------------- the envelope
cdef struct Constants:
    # What all rows of a transaction share: `core.records.reference.TransactionConstants`.
    Span head, sequence, times, txid, place, tail


cdef uint8_t *put_decimal_digits(uint8_t *out, uint64_t number) noexcept nogil:
    """Write a number as text, at most 20 digits."""
    cdef uint8_t digits[20]
    cdef size_t at = 20
    while True:
        at -= 1
        digits[at] = <uint8_t>(c"0" + number % 10)
        number = number // 10
        if not number:
            break
    return put_bytes(out, digits + at, 20 - at)


cdef struct Named:
    # Columns of a row that are listed behind it, as Avro: names, or names with exact texts.
    size_t count
    Buffer items


cdef inline int add_unsent(Buffer *buffer, Named *unsent, Column *column) except -1:
    """Append what stands for a value that was not sent: unchanged TOAST."""
    unsent.count += 1
    add_span(&unsent.items, &column.name)
    return add_span(buffer, &column.unsent)


cdef int add_exact(Buffer *buffer, Named *exact, Column *column, cell) except -1:
    """Append what stands for a value that Avro cannot hold, and list its text."""
    value, entry = (<object>column.exact)(cell)
    add_bytes(buffer, PyBytes_AsString(value), PyBytes_Size(value))
    if entry:
        exact.count += 1
        add_bytes(&exact.items, PyBytes_AsString(entry), PyBytes_Size(entry))
    return 0


cdef struct Listed:
    Named exact, unsent, before_exact


cdef inline void forget_listed(Listed *listed) noexcept:
    listed.exact.count = listed.exact.items.used = 0
    listed.unsent.count = listed.unsent.items.used = 0
    listed.before_exact.count = listed.before_exact.items.used = 0


cdef inline void free_listed(Listed *listed) noexcept:
    free(listed.exact.items.start)
    free(listed.unsent.items.start)
    free(listed.before_exact.items.start)


cdef int add_named(Buffer *buffer, Named *named) except -1:
    """Append such a list; null where there is none."""
    if named == NULL or not named.count:
        return add_byte(buffer, 0)
    add_byte(buffer, 2)
    add_long(buffer, 2 * named.count)
    add_bytes(buffer, named.items.start, named.items.used)
    return add_byte(buffer, 0)


cdef int add_source(
    Buffer *buffer,
    PlannedTable table,
    Constants *constants,
    uint8_t op,
    bint is_key,
    Listed *listed,
    uint64_t lsn,
    uint64_t ordinal,
    bytes block,
) except -1:
    """Append what stands behind the rows of an event; `is_key`: its old row is a key only.

    `block`: the event's number in its transaction, as Avro; None: it has none.
    """
    cdef uint8_t digits[20]
    cdef size_t lsn_size = put_decimal_digits(digits, lsn) - digits
    add_span(buffer, &table.origin)
    add_span(buffer, &constants.head)
    add_span(buffer, &table.database)
    add_long(buffer, 2 * (constants.sequence.size + lsn_size + 2))
    add_span(buffer, &constants.sequence)
    add_bytes(buffer, digits, lsn_size)
    add_bytes(buffer, b'"]', 2)
    add_span(buffer, &constants.times)
    add_span(buffer, &table.table)
    add_span(buffer, &constants.txid)
    add_long(buffer, 2 * lsn)
    add_span(buffer, &constants.place)
    add_long(buffer, 2 * ordinal)
    add_named(buffer, &listed.exact)
    add_named(buffer, &listed.unsent)
    add_named(buffer, &listed.before_exact)
    if is_key:
        add_span(buffer, &table.key_only)
    else:
        add_byte(buffer, 0)
    if block is None:
        add_byte(buffer, 0)
    else:
        add_bytes(buffer, PyBytes_AsString(block), PyBytes_Size(block))
    add_byte(buffer, 2)
    add_byte(buffer, op)
    return add_span(buffer, &constants.tail)


# ---------------------------------------------------------------- rows that Python decoded
cdef bint add_cells(
    Buffer *buffer, PlannedTable table, cells, bint is_key, Named *unsent, Named *exact
) except -1:
    """Append a row as Avro; False: it is unusual.

    `is_key`: only columns of the old key are read.  `unsent`: NULL where all values are sent;
    `exact`: NULL where none has a text of its own.
    """
    cdef size_t at, before
    cdef Column *column
    if not isinstance(cells, list) or <size_t>len(<list>cells) != table.width:
        return False
    for at in range(table.width):
        column = &table.columns[at]
        cell = <object>PyList_GetItem(cells, at)
        if is_key and not column.in_old_key:
            add_span(buffer, &column.absent)
        elif cell is None:
            if not column.is_nullable:
                return False
            add_byte(buffer, 0)
        elif cell is UNCHANGED and unsent != NULL:
            add_unsent(buffer, unsent, column)
        elif not isinstance(cell, bytes):
            return False
        else:
            before = buffer.used
            if not add_cell(
                buffer, column, <const uint8_t *>PyBytes_AsString(cell), PyBytes_Size(cell)
            ):
                if exact == NULL:
                    return False
                buffer.used = before
                add_exact(buffer, exact, column, cell)
    return True


cdef enum:
    KEPT_ROOM = 8192  # of an encoder's buffer: a source may have thousands of tables


cdef dict _OPS = {"c": c"c", "r": c"r", "u": c"u", "d": c"d"}


cdef class CellEncoder:
    """`core.records.reference.Encode`: rows that are usual natively, the others by `slow`."""

    cdef PlannedTable _table
    cdef object _slow
    cdef Buffer _row
    cdef Listed _listed
    cdef object _known  # the transaction of the constants
    cdef tuple _kept  # keeps alive what they point to
    cdef Constants _constants

    def __init__(self, plan, slow):
        self._table, self._slow = PlannedTable(plan), slow

    def __dealloc__(self):
        free(self._row.start)
        free_listed(&self._listed)

    def encode(self, op, old_kind, before, after, tx, lsn, ordinal):
        """Return the value of a row."""
        if not self._written(op, old_kind, before, after, tx, lsn, ordinal):
            return self._slow(op, old_kind, before, after, tx, lsn, ordinal)
        value = self._row.start[:self._row.used]
        if self._row.room > KEPT_ROOM:
            free(self._row.start)
            memset(&self._row, 0, sizeof(Buffer))
        return value

    cdef bint _written(self, op, old_kind, before, after, tx, lsn, ordinal) except -1:
        """Write a row into the buffer; False: it is unusual."""
        cdef Buffer *row = &self._row
        cdef PlannedTable table = self._table
        cdef Listed *listed = &self._listed
        cdef bint is_key = False
        cdef uint64_t position = lsn
        letter = _OPS.get(op)
        if letter is None or before is None and after is None:
            return False
        if position >> 63:
            return False
        if tx is not self._known:
            self._know(tx)
        row.used = 0
        forget_listed(listed)
        add_span(row, &table.head)
        if before is None:
            add_byte(row, 0)
        else:
            is_key = old_kind == "K"
            if is_key and not table.key_only.size:
                return False
            add_byte(row, 2)
            if not add_cells(row, table, before, is_key, NULL, &listed.before_exact):
                return False
        if after is None:
            add_byte(row, 0)
        else:
            add_byte(row, 2)
            if before is not None and not is_key and UNCHANGED in after:
                after = filled(before, after)
            may_be_unsent = op == "u" and (before is None or is_key)
            if not add_cells(
                row,
                table,
                after,
                False,
                &listed.unsent if may_be_unsent else NULL,
                &listed.exact,
            ):
                return False
        block = None if tx.counted is None else tx.counted.block(table.plan.id)
        add_source(row, table, &self._constants, letter, is_key, listed, position, ordinal, block)
        return True

    cdef int _know(self, tx) except -1:
        """Take what the rows of a transaction share."""
        cdef Constants *constants = &self._constants
        self._known = None
        self._kept = tx.head, tx.sequence, tx.times, tx.txid, tx.place, tx.tail
        constants.head, constants.sequence = span_of(self._kept[0]), span_of(self._kept[1])
        constants.times, constants.txid = span_of(self._kept[2]), span_of(self._kept[3])
        constants.place, constants.tail = span_of(self._kept[4]), span_of(self._kept[5])
        self._known = tx
        return 0
