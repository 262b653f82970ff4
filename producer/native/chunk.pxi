# The records of one chunk of a load: `core.records.chunk.Chunk`; `PlainChunk` defines what it does.
#
# All rows have one transaction and one position, so that a value is three constants with the
# row and its ordinal between them.  A row that is unusual is left to Python, which puts it.

from producer.core.loads.copy_lines import CopyLines


cdef class NativeChunk:
    """`core.records.chunk.Chunk`; see there."""

    cdef Places _places
    cdef BoundTable _table
    cdef str _topic
    cdef uint64_t _epoch, _seq, _point, _csn
    cdef size_t _max_row_bytes
    cdef tuple _frame  # keeps alive what is pointed to
    cdef Span _before, _between, _behind  # a row, and its ordinal
    cdef bytes _newest_key  # the last one of the batch
    cdef Batch _batch
    cdef Buffer _row
    cdef Buffer _cell  # one that was written with escapes

    def __init__(
        self,
        Places places not None,
        plan,
        frame,
        *,
        str topic not None,
        int32_t partition,
        bytes key not None,
        uint64_t epoch,
        uint64_t seq,
        uint64_t point,
        uint64_t csn,
        size_t max_row_bytes,
    ):
        """`frame`: what stands before a row, between it and its ordinal, and behind."""
        self._places, self._topic = places, topic
        self._table = BoundTable(plan, places.number(topic, partition), key)
        self._frame = frame
        self._before, self._between = span_of(frame[0]), span_of(frame[1])
        self._behind = span_of(frame[2])
        self._epoch, self._seq, self._point, self._csn = epoch, seq, point, csn
        self._max_row_bytes = min(max_row_bytes, <size_t>0xFFFFFFFF)  # as sizes of a batch are
        self._begin()

    def __dealloc__(self):
        free(self._row.start)
        free(self._cell.start)

    @property
    def size(self):
        """Bytes of keys and values."""
        return self._batch.size

    def __len__(self):
        return self._batch.row_count

    def put(self, int32_t partition, bytes key not None, bytes value not None, uint64_t ordinal):
        """Add a record."""
        self._row.used = 0
        add_bytes(&self._row, <const void *>PyBytes_AsString(value), PyBytes_Size(value))
        self._add(self._places.number(self._topic, partition), key, ordinal)

    def take(self, rows, size_t at, size_t end, uint64_t ordinal):
        """Add rows from `at` on, before `end`; return the first that was left."""
        cdef bint are_lines = isinstance(rows, CopyLines)
        cdef list sources = rows.lines if are_lines else list(rows)
        end = min(end, <size_t>len(sources))
        if not self._table.width:
            return at
        while at < end:
            source = sources[at]
            self._row.used = 0
            add_span(&self._row, &self._before)
            if are_lines:
                if not self._add_line(source):
                    break
            elif not add_cells(&self._row, self._table, source, False, NULL, NULL):
                break
            add_span(&self._row, &self._between)
            add_long(&self._row, 2 * ordinal)
            add_span(&self._row, &self._behind)
            if self._row.used > self._max_row_bytes:
                break
            self._add(self._table.place, self._table.key, ordinal)
            ordinal += 1
            at += 1
        return at

    def finish(self):
        """Return the records; what follows is of the next chunk."""
        batch = self._batch
        self._begin()
        return batch

    cdef int _begin(self) except -1:
        cdef Batch batch = Batch(self._places, self._epoch)
        grow(<void **>&batch.transactions_, &batch.transaction_room, 1, sizeof(Transaction))
        memset(batch.transactions_, 0, sizeof(Transaction))
        batch.transactions_[0].seq = self._seq
        batch.transactions_[0].csn = self._csn
        batch.transactions_[0].commit_start = self._point
        batch.transaction_count = 1
        self._batch = batch
        return 0

    # ------------------------------------------------------------ a row
    cdef bint _add_line(self, bytes line) except -1:
        """Append the cells of a line; False: one is unusual, or there are more or fewer."""
        cdef const uint8_t *text = <const uint8_t *>PyBytes_AsString(line)
        cdef const uint8_t *end = text + PyBytes_Size(line)
        cdef const uint8_t *after
        cdef size_t at, last = self._table.width - 1
        for at in range(self._table.width):
            after = <const uint8_t *>memchr(text, c"\t", end - text)
            if (after == NULL) != (at == last):
                return False
            if after == NULL:
                after = end
            if not self._add_field(at, text, after - text):
                return False
            text = after + 1
        return True

    cdef bint _add_field(self, size_t at, const uint8_t *text, size_t size) except -1:
        cdef const void *escape = memchr(text, c"\\", size) if size else NULL
        if escape == NULL:
            return add_cell(&self._row, &self._table.columns[at], text, size)
        if size == 2 and text[0] == c"\\" and text[1] == c"N":
            return self._add_null(at)
        if not self._unescape(text, size):
            return False
        return add_cell(
            &self._row, &self._table.columns[at], self._cell.start, self._cell.used
        )

    cdef bint _add_null(self, size_t at) except -1:
        if not self._table.columns[at].is_nullable:
            return False
        add_byte(&self._row, 0)
        return True

    cdef bint _unescape(self, const uint8_t *text, size_t size) except -1:
        """Fill `_cell`; False: the last character is a lone escape."""
        cdef size_t at = 0
        cdef uint8_t character
        self._cell.used = 0
        make_room(&self._cell, size)
        while at < size:
            character = text[at]
            at += 1
            if character == c"\\":
                if at == size:
                    return False
                character = unescaped(text[at])
                at += 1
            self._cell.start[self._cell.used] = character
            self._cell.used += 1
        return True

    # ------------------------------------------------------------ the batch
    cdef int _add(self, int32_t place, bytes key, uint64_t ordinal) except -1:
        """Put the written row into the batch."""
        cdef Batch batch = self._batch
        if not batch.keys or self._newest_key is not key:
            batch.keys.append(key)
            self._newest_key = key
        batch.append(
            0, place, len(batch.keys) - 1, self._row.start, self._row.used, ordinal, self._point
        )
        return batch.count(0, place)


cdef inline uint8_t unescaped(uint8_t character) noexcept:
    """The character that a backslash and this one stand for."""
    if character == c"n":
        return c"\n"
    if character == c"t":
        return c"\t"
    if character == c"r":
        return c"\r"
    if character == c"b":
        return 8
    if character == c"f":
        return 12
    if character == c"v":
        return 11
    return character
