# A change of a row as spans of what was received: its value, its key and its place.
#
# Who reads a format fills a `Change`; the records are the same for all formats.

from libc.string cimport memchr

from binascii import crc32


# ---------------------------------------------------------------- reading
cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef inline bint has(Cursor *cursor, size_t size) noexcept:
    """Say whether so many bytes are left."""
    return <size_t>(cursor.end - cursor.at) >= size


cdef inline uint32_t big_endian_16(const uint8_t *at) noexcept:
    return <uint32_t>at[0] << 8 | at[1]


cdef inline uint32_t big_endian_32(const uint8_t *at) noexcept:
    return big_endian_16(at) << 16 | big_endian_16(at + 2)


cdef inline uint64_t big_endian_64(const uint8_t *at) noexcept:
    return <uint64_t>big_endian_32(at) << 32 | big_endian_32(at + 4)


cdef inline bint take_text(Cursor *cursor, const uint8_t **text, size_t *size) noexcept:
    """Take length and bytes of a cell; False: it ends behind the message."""
    if not has(cursor, 4):
        return False
    size[0] = big_endian_32(cursor.at)
    cursor.at += 4
    if not has(cursor, size[0]):
        return False
    text[0] = cursor.at
    cursor.at += size[0]
    return True


# ---------------------------------------------------------------- cells
cdef enum CellKind:
    CELL_TEXT
    CELL_NULL
    CELL_UNSENT  # unchanged TOAST


cdef struct Cell:
    CellKind kind
    const uint8_t *text
    size_t size


cdef struct Change:
    uint8_t op  # c, u or d
    uint8_t old_kind  # O: the whole old row, K: its key, 0: none
    Cell *old  # as many as the table has columns; of a key, those of `in_old_key` are read
    Cell *new  # NULL: none


# ---------------------------------------------------------------- the value
cdef bint add_row(
    Buffer *buffer, PlannedTable table, Cell *cells, bint is_key, Named *unsent
) except -1:
    """Append a row as Avro, as `add_cells` does."""
    cdef size_t at
    cdef Column *column
    cdef Cell *cell
    for at in range(table.width):
        column = &table.columns[at]
        cell = &cells[at]
        if is_key and not column.in_old_key:
            add_span(buffer, &column.absent)
        elif cell.kind == CELL_TEXT:
            if not add_cell(buffer, column, cell.text, cell.size):
                return False
        elif cell.kind == CELL_NULL and column.is_nullable:
            add_byte(buffer, 0)
        elif cell.kind == CELL_UNSENT and unsent != NULL:
            add_unsent(buffer, unsent, column)
        else:
            return False
    return True


cdef bint add_change(
    Buffer *buffer,
    Listed *listed,
    PlannedTable table,
    Constants *constants,
    Change *change,
    uint64_t lsn,
    uint64_t ordinal,
) except -1:
    """Append the value of a row; False: it is unusual."""
    cdef bint is_key = change.old_kind == c"K", may_be_unsent
    if is_key and not table.key_only.size:
        return False
    forget_listed(listed)
    add_span(buffer, &table.head)
    if not change.old_kind:
        add_byte(buffer, 0)
    else:
        add_byte(buffer, 2)
        if not add_row(buffer, table, change.old, is_key, NULL):
            return False
    if change.new == NULL:
        add_byte(buffer, 0)
    else:
        add_byte(buffer, 2)
        # A whole old row has what was not sent in the new one: Python puts it there.
        may_be_unsent = change.op == c"u" and change.old_kind != c"O"
        if not add_row(buffer, table, change.new, False, &listed.unsent if may_be_unsent else NULL):
            return False
    add_source(buffer, table, constants, change.op, is_key, listed, lsn, ordinal, None)
    return True


# ---------------------------------------------------------------- key and place
cdef enum Spelling:
    SPELLING_SENT  # as it was sent
    SPELLING_NUMERIC  # no zeros behind the fraction
    SPELLING_CHARACTER  # no blanks behind


cdef dict _SPELLINGS = {
    "": SPELLING_SENT,
    "numeric": SPELLING_NUMERIC,
    "character": SPELLING_CHARACTER,
}


cdef struct KeyColumn:
    size_t at
    Spelling spelling
    Column column


cdef class ByKey:
    """What a row's primary key decides: `core.records.row_plan.KeyPlan`."""

    cdef object plan  # keeps alive what is pointed to
    cdef size_t count
    cdef KeyColumn *columns
    cdef bint is_keyed, has_tombstones
    cdef Span head
    cdef uint32_t partitions  # 0: all rows are in one

    def __cinit__(self, plan, size_t width):
        cdef size_t at
        cdef KeyColumn *column
        self.plan, self.count = plan, len(plan.columns)
        self.is_keyed, self.has_tombstones = plan.head is not None, plan.tombstones
        self.partitions = plan.partitions
        if self.is_keyed:
            self.head = span_of(plan.head)
        self.columns = <KeyColumn *>calloc(max(self.count, <size_t>1), sizeof(KeyColumn))
        if self.columns == NULL:
            raise MemoryError
        for at in range(self.count):
            column = &self.columns[at]
            said = plan.columns[at]
            if said.at >= width:
                raise IndexError(said.at)
            column.at, column.spelling = said.at, _SPELLINGS[said.spelling]
            plan_column(&column.column, said.plan)

    def __dealloc__(self):
        free(self.columns)


cdef void respell(Cell *cell, Spelling spelling) noexcept:
    """Make the texts of one value one text; see `core.records.encode.compile_key_texts`."""
    cdef size_t size = cell.size
    if spelling == SPELLING_CHARACTER:
        while size and cell.text[size - 1] == c" ":
            size -= 1
        cell.size = size
    elif spelling == SPELLING_NUMERIC and size and memchr(cell.text, c".", size) != NULL:
        while size and cell.text[size - 1] == c"0":
            size -= 1
        while size and cell.text[size - 1] == c".":
            size -= 1
        if size and is_digit(cell.text[size - 1]):
            cell.size = size
        else:  # openGauss writes `.0`
            cell.text, cell.size = b"0", 1


cdef bint add_key(Buffer *key, Buffer *texts, ByKey by, Change *change) except -1:
    """Fill the record key and what the partition is of; False: Python is to do it.

    A key that changed is two records, and one that is NULL or was not sent is none.
    """
    cdef Cell *cells = change.new if change.new != NULL else change.old
    cdef Cell *was
    cdef Cell cell
    cdef size_t at
    cdef KeyColumn *column
    key.used = texts.used = 0
    if by.is_keyed:
        add_span(key, &by.head)
    for at in range(by.count):
        column = &by.columns[at]
        cell = cells[column.at]
        if cell.kind != CELL_TEXT:
            return False
        if change.op == c"u" and change.old_kind:
            was = &change.old[column.at]
            if was.kind != CELL_TEXT or was.size != cell.size:
                return False
            if memcmp(was.text, cell.text, cell.size) != 0:
                return False
        respell(&cell, column.spelling)
        if by.is_keyed and not add_cell(key, &column.column, cell.text, cell.size):
            return False
        if by.partitions:
            if at:
                add_byte(texts, 0)
            add_bytes(texts, cell.text, cell.size)
    return True


cdef class BoundTable(PlannedTable):
    """A relation whose rows the walker takes, and where they go."""

    cdef object key  # of all rows, or None
    cdef str topic
    cdef int32_t place  # of all rows
    cdef size_t key_size
    cdef uint64_t key_stamp  # the batch of `key_index`
    cdef int32_t key_index
    cdef ByKey by_key  # None: all rows have one key and one place
    cdef list places  # by partition; None: it was not used yet

    def __cinit__(self, plan, int32_t place, key, topic=None, by_key=None):
        self.place, self.key, self.topic = place, key, topic
        self.key_size = 0 if key is None else len(key)
        if by_key is not None:
            self.by_key = ByKey(by_key, self.width)
            self.places = [None] * self.by_key.partitions


cdef int32_t place_of(BoundTable table, Places places, Buffer *texts) except -1:
    """The place of a row whose key has these texts, as `core.router.partition_of` says."""
    cdef uint32_t hashed
    if not table.by_key.partitions:
        return table.place
    hashed = crc32(texts.start[:texts.used])
    partition = hashed % table.by_key.partitions
    place = table.places[partition]
    if place is None:
        place = table.places[partition] = places.number(table.topic, partition)
    return place
