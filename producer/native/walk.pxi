# The walker: messages of pgoutput, or what is held of GaussDB's, to finished records, as
# `core.stream.walk` describes it.
#
# A row is written into a buffer of its own first: where it turns out to be unusual, nothing of
# it is left behind.  A read that would go behind the end of a message is unusual, too.

from producer.core.events import Walked
from producer.core.stream.walk import Lent, Stage, Walk

cdef enum:
    STAGE_NONE = 0  # `core.stream.walk.Stage`
    STAGE_BEGUN = 1
    STAGE_NUMBERED = 2
    STAGE_SKIPPED = 3

cdef enum:
    BEGIN_SIZE = 21  # tag, commit LSN, time, xid
    COMMIT_SIZE = 26  # tag, flags, commit LSN, end LSN, time
    ROW_HEAD = 6  # tag, relation, kind of the first tuple
    FULL = 4 << 20  # bytes of a batch that end a call
    KNOWN_TABLES = 64  # a power of two
    CONSTANTS_ROOM = 192  # 17 + 25 + 22 + 8 + 35 + 33 at most

cdef int64_t MOST_MICROS = 9_223_372_036_854_775  # of a time that is also written in ns


# ---------------------------------------------------------------- rows of any table
cdef bint pass_tuple(Cursor *cursor) noexcept:
    """Pass over a tuple of any table."""
    cdef uint32_t at, width
    cdef uint8_t kind
    cdef const uint8_t *text
    cdef size_t size
    if not has(cursor, 2):
        return False
    width = big_endian_16(cursor.at)
    cursor.at += 2
    for at in range(width):
        if not has(cursor, 1):
            return False
        kind = cursor.at[0]
        cursor.at += 1
        if kind == c"t":
            if not take_text(cursor, &text, &size):
                return False
        elif kind != c"n" and kind != c"u":
            return False
    return True


cdef bint is_row(const uint8_t *payload, size_t size) noexcept:
    """Say whether a message is a whole insert, update or delete."""
    cdef Cursor cursor = Cursor(payload + ROW_HEAD, payload + size)
    cdef uint8_t tag, kind
    if size < ROW_HEAD:
        return False
    tag, kind = payload[0], payload[5]
    if tag == c"I":
        if kind != c"N":
            return False
    elif tag == c"D":
        if kind != c"K" and kind != c"O":
            return False
    elif tag == c"U":
        if kind == c"K" or kind == c"O":
            if not pass_tuple(&cursor) or not has(&cursor, 1):
                return False
            kind = cursor.at[0]
            cursor.at += 1
        if kind != c"N":
            return False
    else:
        return False
    return pass_tuple(&cursor) and cursor.at == cursor.end


# ---------------------------------------------------------------- rows of pgoutput
cdef bint read_tuple(Cursor *cursor, size_t width, Cell *cells) noexcept:
    """Read a tuple of so many columns; False: it is none."""
    cdef size_t at
    cdef uint8_t kind
    if not has(cursor, 2) or big_endian_16(cursor.at) != width:
        return False
    cursor.at += 2
    for at in range(width):
        if not has(cursor, 1):
            return False
        kind = cursor.at[0]
        cursor.at += 1
        if kind == c"t":
            cells[at].kind = CELL_TEXT
            if not take_text(cursor, &cells[at].text, &cells[at].size):
                return False
        elif kind == c"n":
            cells[at].kind = CELL_NULL
        elif kind == c"u":
            cells[at].kind = CELL_UNSENT
        else:
            return False
    return True


cdef bint read_change(Cursor *cursor, uint8_t tag, size_t width, Change *change) noexcept:
    """Read a row from behind its relation; False: it is none of so many columns."""
    cdef uint8_t kind
    if not has(cursor, 1):
        return False
    kind = cursor.at[0]
    cursor.at += 1
    if kind == c"K" or kind == c"O":
        if tag == c"I" or not read_tuple(cursor, width, change.old):
            return False
        change.old_kind = kind
        if tag == c"U":
            if not has(cursor, 1):
                return False
            kind = cursor.at[0]
            cursor.at += 1
    else:
        change.old_kind = 0
    if tag == c"D":
        change.op, change.new = c"d", NULL
        return change.old_kind != 0 and cursor.at == cursor.end
    change.op = c"c" if tag == c"I" else c"u"
    return kind == c"N" and read_tuple(cursor, width, change.new) and cursor.at == cursor.end


# ---------------------------------------------------------------- what a transaction's rows share
cdef struct OpenTransaction:
    int stage
    uint64_t seq  # of the newest transaction that has a number
    uint64_t ordinal
    int64_t now_us
    uint64_t commit_lsn, csn
    int64_t committed_at  # µs since 2000
    uint64_t xid
    bint is_plain


cdef uint8_t *put_three_times(uint8_t *out, int64_t micros) noexcept:
    """Write ts_ms, ts_us and ts_ns, each of which may be null."""
    out[0] = 2
    out = put_long(out + 1, micros // 1000)
    out[0] = 2
    out = put_long(out + 1, micros)
    out[0] = 2
    return put_long(out + 1, 1000 * micros)


cdef inline uint8_t *put_end(Span *span, const uint8_t *start, uint8_t *end) noexcept:
    """Note what was written from `start` on; what follows begins at its end."""
    span.start, span.size = start, end - start
    return end


cdef bint make_constants(
    Constants *constants,
    uint8_t *room,
    OpenTransaction *tx,
    uint64_t seq,
    int64_t now_us,
    uint64_t epoch,
) noexcept:
    """Write into `room` what rows of a transaction share; False: its times are too far."""
    cdef int64_t at
    cdef uint8_t *start = room
    cdef uint8_t *out
    if (tx.xid | tx.csn) >> 63:
        return False
    if not -2 * MOST_MICROS < tx.committed_at < 2 * MOST_MICROS:
        return False
    at = tx.committed_at + POSTGRES_EPOCH_US
    if not -MOST_MICROS <= at <= MOST_MICROS or not -MOST_MICROS <= now_us <= MOST_MICROS:
        return False

    out = put_long(start, at // 1000)  # rounds down, as Python does
    out = put_bytes(out, b"\x00\x0afalse", 7)  # source.snapshot, of two types
    start = put_end(&constants.head, start, out)

    out = put_bytes(start, b'["', 2)
    out = put_decimal_digits(out, tx.commit_lsn)
    out = put_bytes(out, b'","', 3)
    start = put_end(&constants.sequence, start, out)

    start[0] = 2
    out = put_long(start + 1, at)
    out[0] = 2
    out = put_long(out + 1, 1000 * at)
    start = put_end(&constants.times, start, out)

    start[0] = 2
    out = put_varint(start + 1, 2 * tx.xid)
    out[0] = 2  # an LSN follows
    start = put_end(&constants.txid, start, out + 1)

    start[0], start[1] = 0, 2  # xmin, which is null
    out = put_varint(start + 2, 2 * tx.csn)
    out[0] = 2
    out = put_varint(out + 1, 2 * epoch)
    out[0] = 2
    out = put_varint(out + 1, 2 * seq)
    out[0] = 2  # an ordinal follows
    start = put_end(&constants.place, start, out + 1)

    put_end(&constants.tail, start, put_three_times(start, now_us))
    return True


# ---------------------------------------------------------------- the walker
cdef struct KnownTable:
    uint32_t relation
    PyObject *table  # of `_tables`; NULL: none


cdef struct CountAt:
    uint64_t stamp  # of the transaction in a batch
    size_t index  # of `counts`


cdef struct LastCommit:
    # How much of a batch stands before it.
    size_t rows, arena, transactions, counts, size
    size_t commits, all_rows
    uint64_t end_lsn
    int64_t committed_at


cdef class Walker:
    """`core.stream.walk.Walker`; see there."""

    cdef readonly Places places
    cdef uint64_t epoch, resume
    cdef size_t max_row_bytes
    cdef dict _tables  # relation -> BoundTable
    cdef KnownTable known[KNOWN_TABLES]
    cdef CountAt *count_at  # by number of a place
    cdef size_t count_room
    cdef Buffer row, key, texts
    cdef Listed listed
    cdef Cell *old_cells
    cdef Cell *new_cells
    cdef size_t old_room, new_room
    cdef size_t key_size  # of the written row
    cdef OpenTransaction open
    cdef Constants constants  # which point to:
    cdef uint8_t constants_room[CONSTANTS_ROOM]
    cdef bint has_constants  # they are those of the open transaction
    cdef bint is_entered  # the open transaction is the last one of the batch
    cdef uint64_t stamps
    cdef uint64_t batch_stamp, transaction_stamp
    cdef Batch batch
    cdef LastCommit whole
    cdef uint64_t position, passed
    cdef list begun

    def __init__(self, Places places, *, uint64_t epoch, uint64_t resume, size_t max_row_bytes):
        self.places, self.epoch, self.resume = places, epoch, resume
        self.max_row_bytes = min(max_row_bytes, <size_t>0xFFFFFFFF)  # as sizes of a batch are
        self._tables = {}

    def __dealloc__(self):
        free(self.row.start)
        free(self.key.start)
        free(self.texts.start)
        free_listed(&self.listed)
        free(self.old_cells)
        free(self.new_cells)
        free(self.count_at)

    def bind(self, uint32_t relation, plan, *, str topic, int32_t partition, bytes key, by_key=None):
        """Take rows of a relation from here on."""
        cdef BoundTable table
        self.forget(relation)
        place = self.places.number(topic, partition)
        table = BoundTable(plan, place, key, topic, by_key)
        self._tables[relation] = table
        self._reserve_places()
        self._reserve_cells(table.width)

    def forget(self, uint32_t relation):
        """Stop at rows of a relation: it is to be bound first, or always to be left to Python."""
        cdef KnownTable *known = &self.known[relation & (KNOWN_TABLES - 1)]
        known.table = NULL
        self._tables.pop(relation, None)

    cdef int _reserve_places(self) except -1:
        cdef size_t had = self.count_room, wanted = len(self.places.names)
        grow(<void **>&self.count_at, &self.count_room, wanted, sizeof(CountAt))
        memset(self.count_at + had, 0, (self.count_room - had) * sizeof(CountAt))
        return 0

    cdef int _reserve_cells(self, size_t width) except -1:
        grow(<void **>&self.old_cells, &self.old_room, width, sizeof(Cell))
        grow(<void **>&self.new_cells, &self.new_room, width, sizeof(Cell))
        return 0

    def walk(self, messages, size_t at, open_, *, int64_t now_us, size_t max_rows):
        """Take messages from `at` on."""
        cdef HeldRecords held = messages if isinstance(messages, HeldRecords) else None
        cdef list received = None
        cdef size_t size = len(messages)
        if held is None:
            received = messages if isinstance(messages, list) else list(messages)
        self._take(open_)
        while at < size:
            if self.batch.row_count >= max_rows or self.batch.arena_used >= FULL:
                break
            if held is not None:
                if not self._held(held, at, now_us):
                    break
            elif not self._step(<object>PyList_GetItem(received, at), now_us):
                break
            at += 1
        walked = self._walked()
        return Walk(at, walked, self._given_back(), self.position, self.begun, self.passed)

    cdef int _take(self, open_) except -1:
        """Begin a call."""
        cdef OpenTransaction *tx = &self.open
        tx.stage, tx.seq, tx.ordinal = open_.stage, open_.seq, open_.ordinal
        tx.now_us, tx.commit_lsn = open_.now_us, open_.commit_lsn
        tx.csn = tx.commit_lsn if open_.csn is None else open_.csn
        tx.committed_at, tx.xid, tx.is_plain = open_.committed_at, open_.xid, open_.is_plain
        self.has_constants = False
        self.position, self.passed, self.begun = 0, 0, []
        self._begin_batch()
        memset(&self.whole, 0, sizeof(LastCommit))
        return 0

    cdef int _begin_batch(self) except -1:
        self.batch = Batch(self.places, self.epoch)
        self.stamps += 1
        self.batch_stamp = self.stamps
        self.is_entered = False
        return 0

    cdef object _given_back(self):
        """The numbers of the open transaction."""
        cdef OpenTransaction *tx = &self.open
        if tx.stage == STAGE_NONE:
            return Lent(Stage.NONE, tx.seq, 0, 0)
        return Lent(
            Stage(tx.stage),
            tx.seq,
            tx.ordinal,
            tx.now_us,
            tx.commit_lsn,
            tx.committed_at,
            tx.xid,
            tx.is_plain,
            None if tx.csn == tx.commit_lsn else tx.csn,
        )

    # ------------------------------------------------------------ one message
    cdef bint _step(self, object message, int64_t now_us) except -1:
        """Take a message; False: it is unusual."""
        cdef object payload = <object>PyTuple_GetItem(message, 2)
        cdef const uint8_t *text = <const uint8_t *>PyBytes_AsString(payload)
        cdef size_t size = PyBytes_Size(payload)
        cdef uint64_t lsn
        if not size:
            return False
        if text[0] == c"B":
            return self._begin(text, size)
        if text[0] == c"C":
            return self._commit(text, size)
        if text[0] != c"I" and text[0] != c"U" and text[0] != c"D":
            return False
        if self.open.stage == STAGE_SKIPPED:
            return is_row(text, size)
        if self.open.stage == STAGE_NONE:
            return False
        lsn = PyLong_AsUnsignedLongLong(<object>PyTuple_GetItem(message, 0))
        return self._row(text, size, lsn, now_us)

    cdef bint _begin(self, const uint8_t *text, size_t size) except -1:
        cdef OpenTransaction *tx = &self.open
        cdef uint64_t commit_lsn
        if tx.stage != STAGE_NONE or size != BEGIN_SIZE:
            return False
        commit_lsn = big_endian_64(text + 1)
        if commit_lsn < self.resume or commit_lsn >> 63:
            return False
        tx.commit_lsn = tx.csn = commit_lsn  # PostgreSQL has no CSN
        tx.committed_at = <int64_t>big_endian_64(text + 9)
        tx.xid = big_endian_32(text + 17)
        self._open_transaction()
        self.begun.append(tx.xid)
        return True

    cdef int _open_transaction(self) except -1:
        cdef OpenTransaction *tx = &self.open
        tx.stage, tx.ordinal, tx.now_us, tx.is_plain = STAGE_BEGUN, 0, 0, True
        self.has_constants = self.is_entered = False
        return 0

    cdef bint _commit(self, const uint8_t *text, size_t size) except -1:
        if size != COMMIT_SIZE or text[1]:  # flags, of which there are none
            return False
        return self._close_transaction(big_endian_64(text + 10))

    cdef bint _close_transaction(self, uint64_t end_lsn) except -1:
        """Take a COMMIT; False: it is unusual."""
        cdef OpenTransaction *tx = &self.open
        cdef Transaction *entry
        if end_lsn >> 63:
            return False
        if tx.stage == STAGE_BEGUN:
            self.position = max(self.position, end_lsn)
        elif tx.stage == STAGE_NUMBERED:
            if not tx.is_plain or not end_lsn:
                return False
            self._enter()
            entry = &self.batch.transactions_[self.batch.transaction_count - 1]
            entry.end_lsn, entry.rows = end_lsn, tx.ordinal
            self._end(entry)
        elif tx.stage == STAGE_SKIPPED:
            self.passed = end_lsn
        else:
            return False
        tx.stage = STAGE_NONE
        return True

    cdef int _end(self, Transaction *entry) except -1:
        """Note how much of the batch is of transactions that ended."""
        cdef LastCommit *whole = &self.whole
        whole.rows, whole.arena = self.batch.row_count, self.batch.arena_used
        whole.transactions = self.batch.transaction_count
        whole.counts, whole.size = self.batch.count_count, self.batch.size
        whole.commits += 1
        whole.all_rows += entry.rows
        whole.end_lsn, whole.committed_at = entry.end_lsn, entry.committed_at
        return 0

    cdef bint _row(
        self, const uint8_t *text, size_t size, uint64_t lsn, int64_t now_us
    ) except -1:
        """Write a row of the open transaction, which gets its number with its first one."""
        cdef Cursor cursor
        cdef Change change
        cdef PyObject *found
        if size < ROW_HEAD:
            return False
        found = self._table(big_endian_32(text + 1))
        if found == NULL:
            return False
        cursor.at, cursor.end = text + 5, text + size
        change.old, change.new = self.old_cells, self.new_cells
        if not read_change(&cursor, text[0], (<BoundTable>found).width, &change):
            return False
        return self._write(<BoundTable>found, &change, lsn, now_us)

    # ------------------------------------------------------------ a record that is held
    cdef bint _held(self, HeldRecords held, size_t at, int64_t now_us) except -1:
        """Take a record; False: it is unusual."""
        cdef OpenTransaction *tx = &self.open
        cdef HeldRecord *record = &held.records[at]
        cdef HeldTransaction *of
        if record.kind == RECORD_ROW:
            if tx.stage != STAGE_BEGUN and tx.stage != STAGE_NUMBERED:
                return False
            return self._named_row(held, record, now_us)
        of = &held.transactions[record.transaction]
        if not of.is_usual:
            return False
        if record.kind == RECORD_COMMIT:
            return self._close_transaction(of.end_lsn)
        if tx.stage != STAGE_NONE or of.commit_lsn < self.resume:
            return False
        if held.by_csn:  # Python says what is wrong
            if of.csn <= held.last_csn:
                return False
            held.last_csn = of.csn
        tx.commit_lsn, tx.csn, tx.xid = of.commit_lsn, of.csn, of.xid
        tx.committed_at = of.committed_at
        self._open_transaction()
        return True

    cdef bint _named_row(self, HeldRecords held, HeldRecord *record, int64_t now_us) except -1:
        cdef Span text = held._text(held.arena + record.start, record.size)
        cdef PyObject *found = held.layouts.read(text.start, text.size)
        cdef PyObject *bound
        cdef Layout layout
        cdef Change change
        if found == NULL:
            return False
        layout = <Layout>found
        if not layout.relation:  # of a table that is not captured
            return True
        bound = self._table(layout.relation)
        if bound == NULL or (<BoundTable>bound).width != layout.width:
            return False
        change.op, change.old_kind = layout.op, layout.old_kind
        change.old = held.layouts.old
        change.new = NULL if layout.op == c"d" else held.layouts.new
        return self._write(<BoundTable>bound, &change, record.position, now_us)

    cdef bint _write(
        self, BoundTable table, Change *change, uint64_t lsn, int64_t now_us
    ) except -1:
        """Write the records of a change; False: it is unusual, and nothing was done."""
        cdef OpenTransaction *tx = &self.open
        cdef bint is_first = tx.stage == STAGE_BEGUN
        cdef uint64_t seq = tx.seq + is_first
        cdef int32_t place = table.place, key
        if lsn >> 63:
            return False
        if not self.has_constants:
            if not is_first:
                now_us = tx.now_us
            if not make_constants(
                &self.constants, self.constants_room, tx, seq, now_us, self.epoch
            ):
                return False
            self.has_constants = True
        self.row.used = 0
        if not add_change(
            &self.row, &self.listed, table, &self.constants, change, lsn, tx.ordinal
        ):
            return False
        if self.row.used > self.max_row_bytes:
            return False
        if table.by_key is not None:
            if not add_key(&self.key, &self.texts, table.by_key, change):
                return False
            place = place_of(table, self.places, &self.texts)
            self._reserve_places()
        if is_first:
            tx.stage, tx.seq, tx.now_us = STAGE_NUMBERED, seq, now_us
        self._enter()
        key = self._key_of(table)
        self._add(place, key, &self.row, lsn)
        if table.by_key is not None and table.by_key.has_tombstones and change.op == c"d":
            self._add(place, key, NULL, lsn)
        tx.ordinal += 1
        return True

    cdef PyObject *_table(self, uint32_t relation) except? NULL:
        """The table of a relation, or NULL."""
        cdef KnownTable *known = &self.known[relation & (KNOWN_TABLES - 1)]
        if known.table != NULL and known.relation == relation:
            return known.table
        table = self._tables.get(relation)
        if table is None:
            return NULL
        known.relation, known.table = relation, <PyObject *>table  # which `_tables` keeps alive
        return known.table

    # ------------------------------------------------------------ the batch
    cdef int _enter(self) except -1:
        """Make the open transaction the last one of the batch."""
        cdef Batch batch = self.batch
        cdef OpenTransaction *tx = &self.open
        cdef Transaction *entry
        if self.is_entered:
            return 0
        grow(
            <void **>&batch.transactions_,
            &batch.transaction_room,
            batch.transaction_count + 1,
            sizeof(Transaction),
        )
        entry = &batch.transactions_[batch.transaction_count]
        memset(entry, 0, sizeof(Transaction))
        entry.seq, entry.xid = tx.seq, tx.xid
        entry.csn, entry.commit_start = tx.csn, tx.commit_lsn
        entry.committed_at = tx.committed_at + POSTGRES_EPOCH_US
        entry.first_count = <uint32_t>batch.count_count
        batch.transaction_count += 1
        self.stamps += 1
        self.transaction_stamp = self.stamps
        self.is_entered = True
        return 0

    cdef int32_t _key_of(self, BoundTable table) except -1:
        """The index of the written row's key among those of the batch."""
        cdef Batch batch = self.batch
        if table.by_key is not None and table.by_key.is_keyed:
            self.key_size = self.key.used
            batch.keys.append(self.key.start[:self.key.used])
            return <int32_t>len(batch.keys) - 1
        self.key_size = table.key_size
        if table.key_stamp != self.batch_stamp:
            table.key_stamp, table.key_index = self.batch_stamp, <int32_t>len(batch.keys)
            batch.keys.append(table.key)
        return table.key_index

    cdef int _add(self, int32_t place, int32_t key, Buffer *value, uint64_t lsn) except -1:
        """Put a record into the batch; `value`: NULL makes a tombstone."""
        cdef Batch batch = self.batch
        self._count(place)
        batch.append(
            <uint32_t>(batch.transaction_count - 1),
            place,
            key,
            NULL if value == NULL else value.start,
            0 if value == NULL else value.used,
            self.open.ordinal,
            lsn,
        )
        batch.rows[batch.row_count - 1].is_tombstone = value == NULL
        batch.size += self.key_size
        return 0

    cdef int _count(self, int32_t place) except -1:
        """Count a record of the open transaction."""
        cdef Batch batch = self.batch
        cdef CountAt *known = &self.count_at[place]
        if known.stamp != self.transaction_stamp:
            grow(<void **>&batch.counts, &batch.count_room, batch.count_count + 1, sizeof(Count))
            known.stamp, known.index = self.transaction_stamp, batch.count_count
            batch.counts[known.index] = Count(place, 0)
            batch.count_count += 1
            batch.transactions_[batch.transaction_count - 1].number_of_counts += 1
        batch.counts[known.index].records += 1
        return 0

    # ------------------------------------------------------------ results
    cdef list _walked(self):
        """The batches of a call: up to its last COMMIT, and behind it."""
        cdef LastCommit *whole = &self.whole
        cdef Batch batch = self.batch
        cdef Batch rest
        self.batch = None
        if not whole.commits:
            return [Walked(batch, 0, 0, 0, 0)] if batch.row_count else []
        out = [
            Walked(batch, whole.commits, whole.all_rows, whole.end_lsn, whole.committed_at)
        ]
        if batch.row_count > whole.rows:
            rest = self._cut(batch)
            out.append(Walked(rest, 0, 0, 0, 0))
        return out

    cdef Batch _cut(self, Batch batch):
        """Take the rows of the open transaction out of a batch."""
        cdef LastCommit *whole = &self.whole
        cdef Batch rest = Batch(batch.places, batch.epoch)
        cdef size_t at, rows = batch.row_count - whole.rows
        cdef size_t counts = batch.count_count - whole.counts
        cdef size_t arena = batch.arena_used - whole.arena
        grow(<void **>&rest.arena, &rest.arena_room, arena, 1)
        grow(<void **>&rest.rows, &rest.row_room, rows, sizeof(Row))
        grow(<void **>&rest.counts, &rest.count_room, counts, sizeof(Count))
        grow(<void **>&rest.transactions_, &rest.transaction_room, 1, sizeof(Transaction))
        memcpy(rest.arena, batch.arena + whole.arena, arena)
        memcpy(rest.rows, batch.rows + whole.rows, rows * sizeof(Row))
        memcpy(rest.counts, batch.counts + whole.counts, counts * sizeof(Count))
        rest.transactions_[0] = batch.transactions_[whole.transactions]
        rest.transactions_[0].first_count = 0
        for at in range(rows):
            rest.rows[at].value -= whole.arena
            rest.rows[at].transaction = 0
        rest.keys = batch.keys
        rest.arena_used, rest.row_count, rest.count_count = arena, rows, counts
        rest.transaction_count = 1
        rest.size = batch.size - whole.size
        batch.arena_used, batch.row_count = whole.arena, whole.rows
        batch.count_count, batch.transaction_count = whole.counts, whole.transactions
        batch.size = whole.size
        return rest
