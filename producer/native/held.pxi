# Records of GaussDB's parallel decoding, held until their COMMIT: `producer.sources.gauss.held`
# defines what this does.
#
# A message is taken whole or not at all: one that has anything but BEGIN, rows and COMMIT in their
# places is left to Python, which says what it is.

from cpython.long cimport PyLong_AsUnsignedLongLong
from cpython.tuple cimport PyTuple_GetItem


cdef enum RecordKind:
    RECORD_BEGIN
    RECORD_ROW
    RECORD_COMMIT
    RECORD_HEARTBEAT  # of GaussDB
    RECORD_OTHER


cdef enum:
    LETTER_AT = 8  # of a record of style b, behind its LSN
    HEARTBEAT_SIZE = 25
    FLUSHED_AT = 9  # of a heartbeat
    CSN_SLACK = 1 << 16  # as in `gauss.stream`
    KEPT_HELD = 4 << 20  # bytes that stay allocated between transactions


cdef int64_t POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01 in µs since 1970


cdef struct Bound:
    # What a BEGIN or a COMMIT says.
    bint has_xid
    uint64_t xid
    uint64_t csn  # of a BEGIN
    Span time


cdef struct HeldRecord:
    uint64_t position
    size_t start  # in `arena`
    uint32_t size
    uint32_t transaction
    RecordKind kind


cdef struct HeldTransaction:
    # BEGIN and COMMIT together: `GaussStream._framed`.
    bint is_usual  # else Python is to take its BEGIN and its COMMIT
    size_t first, last  # records
    uint64_t xid, csn, commit_lsn, end_lsn
    int64_t committed_at  # µs since 2000


# ---------------------------------------------------------------- BEGIN and COMMIT
cdef bint is_printable(Span text) noexcept:
    cdef size_t at
    for at in range(text.size):
        if not 0x20 <= text.start[at] < 0x7F:
            return False
    return text.size > 0


cdef bint read_parts(Cursor *cursor, bint is_begin, Bound *bound) noexcept:
    """Read the optional parts of style b; False: one is left to Python."""
    cdef uint8_t letter
    cdef bint has_origin = False
    while cursor.at < cursor.end:
        letter = cursor.at[0]
        cursor.at += 1
        if letter == c"X" and not bound.has_xid and has(cursor, 8):
            bound.has_xid, bound.xid = True, big_endian_64(cursor.at)
            cursor.at += 8
        elif letter == c"T" and bound.time.start == NULL:
            if not take_text(cursor, &bound.time.start, &bound.time.size):
                return False
            if not is_printable(bound.time):
                return False
        elif letter == c"O" and is_begin and not has_origin and has(cursor, 4):
            has_origin = True
            cursor.at += 4
        else:
            return False
    return True


cdef bint take_word(Cursor *cursor, const char *word, size_t size) noexcept:
    if not has(cursor, size) or memcmp(cursor.at, word, size) != 0:
        return False
    cursor.at += size
    return True


cdef bint take_number(Cursor *cursor, uint64_t *number) noexcept:
    """Take 1 to 19 digits."""
    cdef const uint8_t *start = cursor.at
    number[0] = 0
    while cursor.at < cursor.end and is_digit(cursor.at[0]):
        if cursor.at - start == 19:
            return False
        number[0] = 10 * number[0] + (cursor.at[0] - c"0")
        cursor.at += 1
    return cursor.at != start


cdef bint take_hexadecimal(Cursor *cursor) noexcept:
    """Pass over 1 to 8 digits."""
    cdef const uint8_t *start = cursor.at
    while cursor.at < cursor.end and hex_digit(cursor.at[0]) >= 0:
        cursor.at += 1
    return 1 <= cursor.at - start <= 8


cdef bint read_begin_line(Cursor *cursor, Bound *bound) noexcept:
    """Read `BEGIN CSN: …` of styles t and j; False: it is none, or has parts left to Python."""
    if not take_word(cursor, b"BEGIN CSN: ", 11) or not take_number(cursor, &bound.csn):
        return False
    if not take_word(cursor, b" first_lsn: ", 12) or not take_hexadecimal(cursor):
        return False
    if not take_word(cursor, b"/", 1) or not take_hexadecimal(cursor):
        return False
    if take_word(cursor, b" xid: ", 6):
        bound.has_xid = True
        if not take_number(cursor, &bound.xid):
            return False
    if take_word(cursor, b" commit_time: ", 14):
        bound.time.start, bound.time.size = cursor.at, cursor.end - cursor.at
        cursor.at = cursor.end
    return cursor.at == cursor.end


cdef bint read_commit_line(Cursor *cursor, Bound *bound) noexcept:
    """Read `commit xid: …`, as either product writes it."""
    if take_word(cursor, b"commit", 6):
        if take_word(cursor, b" xid: ", 6):
            bound.has_xid = True
    elif take_word(cursor, b"COMMIT", 6):
        if take_word(cursor, b" XID: ", 6):
            bound.has_xid = True
    else:
        return False
    if bound.has_xid and not take_number(cursor, &bound.xid):
        return False
    if take_word(cursor, b" (at ", 5):
        if cursor.at == cursor.end or (cursor.end - 1)[0] != c")":
            return False
        bound.time.start, bound.time.size = cursor.at, cursor.end - cursor.at - 1
        cursor.at = cursor.end
    return cursor.at == cursor.end


cdef bint read_instant(Span text, int64_t *micros) noexcept:
    """Read a timestamptz as `GaussStream.instant`, µs since 2000; False: it is unusual."""
    cdef const uint8_t *zone
    cdef int64_t days, clock, offset
    cdef int hours, minutes = 0
    cdef size_t size = 19
    if text.size < 22 or text.start[10] != c" ":
        return False
    if text.start[19] == c".":
        size = 20
        while size < text.size and is_digit(text.start[size]):
            size += 1
        if not 21 <= size <= 26:
            return False
    zone = text.start + size
    size = text.size - size
    if size != 3 and size != 6:
        return False
    hours = two_digits(zone + 1)
    if size == 6:
        minutes = two_digits(zone + 4)
        if zone[3] != c":":
            return False
    if hours < 0 or minutes < 0 or zone[0] != c"+" and zone[0] != c"-":
        return False
    if not read_date(text.start, &days) or not read_clock(text.start + 11, zone - text.start - 11, &clock):
        return False
    offset = 60_000_000 * <int64_t>(60 * hours + minutes)
    micros[0] = days * 86_400_000_000 + clock - POSTGRES_EPOCH_US
    micros[0] += offset if zone[0] == c"-" else -offset
    return True


# ---------------------------------------------------------------- what is held
cdef class HeldRecords:
    """`producer.sources.gauss.held.Held`; see there."""

    cdef Style style
    cdef bint is_batch, by_csn
    cdef uint64_t newest_csn
    cdef public uint64_t last_csn  # of the newest transaction that was taken, in the order of CSNs
    cdef public uint64_t told_end  # of the log, by the newest heartbeat
    cdef size_t hold_bytes
    cdef Layouts layouts
    cdef uint8_t *arena
    cdef size_t arena_used, arena_room
    cdef HeldRecord *records
    cdef size_t record_count, record_room
    cdef HeldTransaction *transactions
    cdef size_t transaction_count, transaction_room  # whole ones
    cdef bint _is_open
    cdef size_t open_first  # record of its BEGIN; without one: how many are whole
    cdef size_t given  # records of the open one that `give_up` returned

    def __init__(self, str style not None, *, bint is_batch, bint by_csn, uint64_t newest_csn, size_t hold_bytes):
        self.layouts = Layouts(style)
        self.style, self.is_batch, self.by_csn = self.layouts.style, is_batch, by_csn
        self.newest_csn, self.hold_bytes = newest_csn, hold_bytes

    def __dealloc__(self):
        free(self.arena)
        free(self.records)
        free(self.transactions)

    def __len__(self):
        return self.open_first

    def __getitem__(self, size_t at):
        if at >= self.open_first:
            raise IndexError(at)
        return self._pair(at)

    cdef object _pair(self, size_t at):
        cdef HeldRecord *record = &self.records[at]
        return record.position, self.arena[record.start:record.start + record.size]

    def bounds(self, size_t at):
        """The first and the last record of the transaction that one is of; None: rows alone."""
        cdef HeldTransaction *of
        if at >= self.open_first or self.records[at].transaction >= self.transaction_count:
            return None
        of = &self.transactions[self.records[at].transaction]
        return of.first, of.last

    # ------------------------------------------------------------ layouts
    def knows(self, bytes record not None):
        """Say whether a row has a layout that was learnt."""
        cdef Span text = self._text(<const uint8_t *>PyBytes_AsString(record), PyBytes_Size(record))
        return self.layouts.read(text.start, text.size) != NULL

    def learn(self, layout):
        """Take a layout of rows."""
        self.layouts.learn(layout)

    def forget(self):
        """Forget all layouts."""
        self.layouts.forget()

    cdef Span _text(self, const uint8_t *record, size_t size) noexcept:
        """A row without the LSN that style b writes before it."""
        cdef size_t before = min(size, <size_t>LETTER_AT) if self.style == STYLE_B else 0
        return Span(record + before, size - before)

    # ------------------------------------------------------------ messages
    def take(self, messages, size_t at):
        """Hold messages from `at` on; return the first that is left to Python."""
        cdef list received = messages if isinstance(messages, list) else list(messages)
        cdef size_t count = len(received)
        while at < count and not self._is_full():
            message = <object>PyList_GetItem(received, at)
            payload = <object>PyTuple_GetItem(message, 2)
            if not self._message(
                PyLong_AsUnsignedLongLong(<object>PyTuple_GetItem(message, 0)),
                <const uint8_t *>PyBytes_AsString(payload),
                PyBytes_Size(payload),
            ):
                break
            at += 1
        return at

    @property
    def is_full(self):
        """Say whether the open transaction is larger than source.hold-bytes."""
        return self._is_full()

    cdef bint _is_full(self) noexcept:
        cdef size_t records, size
        if not self._is_open:
            return False
        records = self.record_count - self.open_first
        size = self.arena_used - self.records[self.open_first].start
        return size + 60 * records > self.hold_bytes

    cdef bint _message(self, uint64_t start, const uint8_t *payload, size_t size) except -1:
        """Hold a message; False: it is unusual, and nothing of it is held."""
        cdef bint is_open = self._is_open
        if not self._walk(start, payload, size, &is_open, False):
            return False
        is_open = self._is_open
        return self._walk(start, payload, size, &is_open, True)

    cdef bint _walk(
        self, uint64_t start, const uint8_t *payload, size_t size, bint *is_open, bint holds
    ) except -1:
        """Look at the records of a message, or hold them; False: it is unusual."""
        cdef Cursor cursor = Cursor(payload, payload + size)
        cdef uint32_t length
        if self.style != STYLE_B and not self.is_batch:
            return self._record(start, payload, size, is_open, holds)
        while True:
            if not has(&cursor, 4):
                return False
            length = big_endian_32(cursor.at)
            cursor.at += 4
            if not length:  # the end of a batch; one that is empty is unusual
                return cursor.at == cursor.end and size > 4
            if length <= LETTER_AT or not has(&cursor, length):
                return False
            if self.style == STYLE_B:
                start = big_endian_64(cursor.at)
                if not self._record(start, cursor.at, length, is_open, holds):
                    return False
                cursor.at += length
                if not has(&cursor, 1) or cursor.at[0] != c"P" and cursor.at[0] != c"F":
                    return False
                cursor.at += 1
                if (cursor.at - 1)[0] == c"F":
                    return cursor.at == cursor.end
            else:
                start = big_endian_64(cursor.at)
                if not self._record(start, cursor.at + 8, length - 8, is_open, holds):
                    return False
                cursor.at += length

    cdef bint _record(
        self, uint64_t position, const uint8_t *text, size_t size, bint *is_open, bint holds
    ) except -1:
        """Look at a record, or hold it; False: it is unusual, or not in its place."""
        cdef Bound bound
        cdef RecordKind kind
        if size > 0x7FFFFFFF:
            return False
        kind = self._kind(text, size)
        if kind == RECORD_HEARTBEAT:
            if holds:
                self.told_end = big_endian_64(text + size - HEARTBEAT_SIZE + FLUSHED_AT)
            return True
        if kind == RECORD_OTHER or is_open[0] == (kind == RECORD_BEGIN):
            return False
        if kind != RECORD_ROW:
            if not self._bound(kind, text, size, &bound):
                return False
            is_open[0] = kind == RECORD_BEGIN
        if not holds:
            return True
        self._hold(kind, position, text, size)
        if kind == RECORD_COMMIT:
            self._end(&bound)
        return True

    cdef RecordKind _kind(self, const uint8_t *text, size_t size) noexcept:
        if self.style == STYLE_B:
            if size <= LETTER_AT:
                return RECORD_OTHER
            if text[LETTER_AT] == c"I" or text[LETTER_AT] == c"U" or text[LETTER_AT] == c"D":
                return RECORD_ROW
            if text[LETTER_AT] == c"B":
                return RECORD_BEGIN
            if text[LETTER_AT] == c"h" and size == LETTER_AT + HEARTBEAT_SIZE:
                return RECORD_HEARTBEAT
            return RECORD_COMMIT if text[LETTER_AT] == c"C" else RECORD_OTHER
        if self.style == STYLE_T:
            if size >= 6 and memcmp(text, b"table ", 6) == 0:
                return RECORD_ROW
        elif size >= 14 and memcmp(text, b'{"table_name":', 14) == 0:
            return RECORD_ROW
        if size >= 6 and memcmp(text, b"BEGIN ", 6) == 0:
            return RECORD_BEGIN
        if size == HEARTBEAT_SIZE and text[0] == c"h":
            return RECORD_HEARTBEAT
        return RECORD_COMMIT if size and (text[0] | 32) == c"c" else RECORD_OTHER

    cdef bint _bound(
        self, RecordKind kind, const uint8_t *text, size_t size, Bound *bound
    ) noexcept:
        """Read a BEGIN or a COMMIT; False: it is unusual."""
        cdef Cursor cursor = Cursor(text, text + size)
        cdef int64_t micros
        memset(bound, 0, sizeof(Bound))
        if self.style == STYLE_B:
            cursor.at += LETTER_AT + 1
            if kind == RECORD_BEGIN:
                if not has(&cursor, 16):
                    return False
                bound.csn = big_endian_64(cursor.at)
                cursor.at += 16
            return read_parts(&cursor, kind == RECORD_BEGIN, bound)
        if kind == RECORD_BEGIN:
            if not read_begin_line(&cursor, bound):
                return False
        elif not read_commit_line(&cursor, bound):
            return False
        # A time that was cut off may look like another part: only whole ones are taken here.
        return bound.time.start == NULL or read_instant(bound.time, &micros)

    # ------------------------------------------------------------ what is held
    cdef int _hold(
        self, RecordKind kind, uint64_t position, const uint8_t *text, size_t size
    ) except -1:
        cdef HeldRecord *record
        grow(<void **>&self.records, &self.record_room, self.record_count + 1, sizeof(HeldRecord))
        grow(<void **>&self.arena, &self.arena_room, self.arena_used + size + 1, 1)
        record = &self.records[self.record_count]
        record.position, record.start, record.size = position, self.arena_used, <uint32_t>size
        record.kind, record.transaction = kind, <uint32_t>self.transaction_count
        memcpy(self.arena + self.arena_used, text, size)
        self.arena_used += size
        self.record_count += 1
        if kind == RECORD_BEGIN:
            self._is_open = True
        return 0

    cdef int _end(self, Bound *ended) except -1:
        """Make the open transaction a whole one; its COMMIT was just held."""
        cdef HeldRecord *first = &self.records[self.open_first]
        cdef HeldTransaction *made
        cdef Bound begun
        cdef uint64_t position = self.records[self.record_count - 1].position
        grow(
            <void **>&self.transactions,
            &self.transaction_room,
            self.transaction_count + 1,
            sizeof(HeldTransaction),
        )
        made = &self.transactions[self.transaction_count]
        memset(made, 0, sizeof(HeldTransaction))
        made.first, made.last = self.open_first, self.record_count - 1
        self._bound(RECORD_BEGIN, self.arena + first.start, first.size, &begun)
        made.is_usual = self._frame(made, &begun, ended, position)
        self.transaction_count += 1
        self.open_first = self.record_count
        self._is_open = False
        return 0

    cdef bint _frame(
        self, HeldTransaction *made, Bound *begun, Bound *ended, uint64_t position
    ) noexcept:
        """Combine BEGIN and COMMIT; False: Python is to do it."""
        cdef Span time = begun.time if ended.time.start == NULL else ended.time
        if begun.has_xid and ended.has_xid and begun.xid != ended.xid:
            return False
        made.xid = ended.xid if ended.has_xid else begun.xid
        made.csn = begun.csn
        if self.by_csn:
            made.commit_lsn, made.end_lsn = made.csn - 1, made.csn
        elif self.style != STYLE_B and not self.is_batch:
            made.commit_lsn, made.end_lsn = position, position + 1
        else:
            made.commit_lsn, made.end_lsn = position - 1, position
        if (made.xid | made.csn | made.commit_lsn | made.end_lsn) >> 63 or not made.end_lsn:
            return False
        if made.csn + CSN_SLACK < self.newest_csn:
            return False
        return time.start == NULL or read_instant(time, &made.committed_at)

    def drop(self):
        """Forget whole transactions, and rows that are in none."""
        cdef size_t at, gone = self.open_first, left = self.record_count - self.open_first
        cdef size_t start = self.records[gone].start if left else self.arena_used
        if left and gone:
            memmove(self.arena, self.arena + start, self.arena_used - start)
            memmove(self.records, self.records + gone, left * sizeof(HeldRecord))
            for at in range(left):
                self.records[at].start -= start
                self.records[at].transaction = 0
        self.arena_used -= start
        self.record_count, self.open_first, self.transaction_count = left, 0, 0
        self._shrink()

    cdef int _shrink(self) except -1:
        """Free what a large transaction took."""
        if not self.record_count and self.arena_room > KEPT_HELD:
            free(self.arena)
            free(self.records)
            self.arena, self.records = NULL, NULL
            self.arena_room = self.record_room = 0
        self.layouts.shrink()
        return 0

    # ------------------------------------------------------------ to Python and back
    def give_up(self, size_t most):
        """Return some records of the open transaction; none: nothing is held any more."""
        cdef size_t at, first = self.open_first + self.given
        cdef size_t end = min(self.record_count, first + most)
        given = [self._pair(at) for at in range(first, end)]
        self.given += end - first
        if not given:
            self.given = self.record_count = self.open_first = self.transaction_count = 0
            self.arena_used = 0
            self._is_open = False
            self._shrink()
        return given

    def adopt(self, list records not None):
        """Hold an open transaction, its BEGIN first; False: it is left to Python."""
        cdef bint is_open = False
        for holds in (False, True):
            is_open = False
            for position, record in records:
                if not self._record(
                    position,
                    <const uint8_t *>PyBytes_AsString(record),
                    PyBytes_Size(record),
                    &is_open,
                    holds,
                ):
                    return False
        return True

    def rows(self, list records not None):
        """Hold rows of a transaction that Python holds; nothing else is held."""
        self.drop()
        for position, record in records:
            self._hold(
                RECORD_ROW,
                position,
                <const uint8_t *>PyBytes_AsString(record),
                PyBytes_Size(record),
            )
        self.open_first = self.record_count
