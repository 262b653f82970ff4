# Rows of one writer's schema as COPY text, straight from their Avro.
#
# A row's text is its cells with tabs between them and a line's end behind: exactly what COPY
# reads, where the row is whole.  A cell that was not sent stands as `\U`, which COPY never sees.

from libc.stdint cimport int32_t

import re

from schemas.tables import UNCHANGED
from spark_consumers.model import Change

cdef object ESCAPE = re.compile(r"\\(.)", re.DOTALL)
cdef dict ESCAPED = {"t": "\t", "n": "\n", "r": "\r"}

cdef enum:
    HAS_BEFORE = 1
    HAS_AFTER = 2
    OLD_LACKS = 4  # cells of the old row were not sent
    NEW_LACKS = 8


cdef struct Row:
    int64_t seq
    int64_t ordinal
    size_t before  # where the old row's text begins
    size_t after  # where it ends, and the new one's begins
    size_t end
    int32_t odd  # index of `odd`: a row that is no text; -1: none
    char op
    uint8_t flags


cdef class PackedRows(FramedRows):
    """`decode.rows.Rows`; see there.

    A task of Spark sends them as they are, or settled: only what `last_states` answers.
    """

    cdef Text text
    cdef Row *rows
    cdef size_t count, room
    cdef list odd  # of Change
    cdef tuple settled  # (key, are_known_absent, last states): the rows themselves are gone

    def __cinit__(self, *_):  # of no plan: `unpacked` knows the rest
        self.odd = []

    def __dealloc__(self):
        free(self.text.bytes)
        free(self.rows)

    def held(self):
        """Bytes of memory that rows take, without those that are objects."""
        if self.settled is not None:
            return len(self.settled[2][3]) + len(self.settled[2][5])
        return self.text.used + self.count * sizeof(Row)

    # ---------------------------------------------------------------- from process to process
    def __reduce__(self):
        cdef bytes rows = b""
        if self.settled is None and self.count:
            rows = PyBytes_FromStringAndSize(<char *>self.rows, self.count * sizeof(Row))
        return unpacked, (
            self.columns, self.count, taken(&self.text), rows, self.odd, self.settled
        )

    def settle(self, tuple key, bint are_known_absent):
        """Keep of the rows only what `last_states` answers; False: it does not, they stay."""
        states = self.last_states(key, are_known_absent)
        if states is None:
            return False
        self.settled = key, are_known_absent, states
        free(self.text.bytes)
        free(self.rows)
        memset(&self.text, 0, sizeof(Text))
        self.rows, self.room = NULL, 0
        return True

    def split(self, int64_t seq, int64_t ordinal):
        """Take away the rows behind a place, and return them; they stand in commit order."""
        cdef PackedRows behind = PackedRows()
        cdef size_t at = self.count
        self._check_there()
        behind.columns, behind.width = self.columns, self.width
        while at and is_behind(&self.rows[at - 1], seq, ordinal):
            at -= 1
        behind._take_over(self, at)
        self.count = at
        behind._own_odd(self.odd)
        self._own_odd(self.odd)
        return behind

    def absorb(self, PackedRows other):
        """Append rows of the same columns."""
        cdef size_t at
        self._check_there()
        other._check_there()
        if other.columns != self.columns:
            raise ValueError("rows of other columns")
        at = self.count
        self._take_over(other, 0)
        for at in range(at, self.count):
            if self.rows[at].odd >= 0:
                self.rows[at].odd += <int32_t>len(self.odd)
        self.odd = self.odd + other.odd

    cdef int _own_odd(self, list several) except -1:
        """Keep of rows that are no text those that are among ours."""
        cdef size_t at
        if not several:
            return 0
        self.odd = []
        for at in range(self.count):
            if self.rows[at].odd >= 0:
                self.odd.append(several[self.rows[at].odd])
                self.rows[at].odd = <int32_t>(len(self.odd) - 1)
        return 0

    cdef int _take_over(self, PackedRows other, size_t first) except -1:
        """Append copies of another one's rows from one on; their text is a part of its own."""
        cdef size_t at, start, end
        cdef Row row
        for at in range(first, other.count):
            row = other.rows[at]
            start, end = row.before, row.end
            row.before = self.text.used
            row.after = self.text.used + (row.after - start)
            row.end = self.text.used + (end - start)
            write(&self.text, other.text.bytes + start, end - start)
            self._append(&row)
        return 0

    cdef int _check_there(self) except -1:
        if self.settled is not None:
            raise RowsSettled("only the last states of a task's rows are here")
        return 0

    # ---------------------------------------------------------------- as a sequence of changes
    def __len__(self):
        return self.count

    def __getitem__(self, at):
        if isinstance(at, slice):
            self._check_there()
            return [self._change(place) for place in range(*at.indices(self.count))]
        cdef Py_ssize_t place = at
        self._check_there()
        if place < 0:
            place += self.count
        if not 0 <= place < <Py_ssize_t>self.count:
            raise IndexError(at)
        return self._change(place)

    def __iter__(self):
        cdef size_t at
        self._check_there()
        for at in range(self.count):
            yield self._change(at)

    def __eq__(self, other):
        return list(self) == list(other)

    cdef object _change(self, size_t at):
        cdef Row *row = &self.rows[at]
        if row.odd >= 0:
            return self.odd[row.odd]
        before = self._cells(row.before, row.after) if row.flags & HAS_BEFORE else None
        after = self._cells(row.after, row.end) if row.flags & HAS_AFTER else None
        return Change(row.seq, row.ordinal, chr(row.op), self.columns, before, after)

    cdef list _cells(self, size_t start, size_t end):
        if not self.width:
            return []
        line = PyBytes_FromStringAndSize(self.text.bytes + start, end - start - 1).decode()
        return [cell_of(text) for text in line.split("\t")]

    def put(self, change):
        """Append a change that Python read."""
        cdef Row row
        cdef size_t used = self.text.used
        row.seq, row.ordinal, row.op, row.odd = change.seq, change.ordinal, ord(change.op), -1
        row.flags = 0
        try:
            row.before = used
            if change.before is not None:
                row.flags |= HAS_BEFORE
                if self._put_cells(change.before):
                    row.flags |= OLD_LACKS
            row.after = self.text.used
            if change.after is not None:
                row.flags |= HAS_AFTER
                if self._put_cells(change.after):
                    row.flags |= NEW_LACKS
        except UnicodeEncodeError:  # bytes that are not text
            self.text.used = row.before = row.after = used
            row.odd = len(self.odd)
            self.odd.append(change)
        row.end = self.text.used
        self._append(&row)

    cdef bint _put_cells(self, list cells) except -1:
        """Write a row's cells; say whether some were not sent."""
        cdef const char *start
        cdef Py_ssize_t size
        cdef bint lacks = False
        if len(cells) != self.width:
            raise ValueError("a row of another number of columns")
        for at, cell in enumerate(cells):
            if at:
                write_byte(&self.text, b"\t")
            if cell is None:
                write_null(&self.text)
            elif cell is UNCHANGED:
                write(&self.text, b"\\U", 2)
                lacks = True
            else:
                start = PyUnicode_AsUTF8AndSize(cell, &size)
                write_escaped(&self.text, <const uint8_t *>start, size)
        write_byte(&self.text, b"\n")
        return lacks

    cdef int _append(self, Row *row) except -1:
        cdef size_t wanted
        cdef void *moved
        if self.count == self.room:
            wanted = max(<size_t>64, 2 * self.room)
            moved = realloc(self.rows, wanted * sizeof(Row))
            if moved == NULL:
                raise MemoryError
            self.rows, self.room = <Row *>moved, wanted
        self.rows[self.count] = row[0]
        self.count += 1
        return 0

    cdef bint _take_at(self, bytes value, const uint8_t *start, Py_ssize_t size) except -1:
        cdef Input avro
        cdef Envelope found
        cdef Row row
        cdef size_t used = self.text.used
        cdef Py_ssize_t frame = len(self.frame)
        if not self.is_mine(start, size):
            return False
        avro.data, avro.size, avro.at = start, size, frame
        if self._read_rows(value, &avro, &row, False) and self._read_rest(&avro, &found):
            if found.old_lacks or found.new_lacks:  # once more, now that it is known which
                self.text.used, avro.at = used, frame
                if not self._read_rows(value, &avro, &row, True):
                    self.text.used = used
                    return False
            row.seq, row.ordinal, row.op, row.odd = found.seq, found.ordinal, found.op, -1
            self._append(&row)
            return True
        self.text.used = used
        return False

    # ---------------------------------------------------------------- an envelope
    cdef bint _read_rows(self, bytes value, Input *avro, Row *row, bint has_masks) except -1:
        cdef int branch = read_optional(avro)
        row.flags = 0
        row.before = self.text.used
        if branch < 0:
            return False
        if branch:
            row.flags |= HAS_BEFORE
            if not self._read_row(value, avro, self.old_lacks if has_masks else NULL):
                return False
            if has_masks and self._lacks(self.old_lacks):
                row.flags |= OLD_LACKS
        row.after = self.text.used
        branch = read_optional(avro)
        if branch < 0:
            return False
        if branch:
            row.flags |= HAS_AFTER
            if not self._read_row(value, avro, self.new_lacks if has_masks else NULL):
                return False
            if has_masks and self._lacks(self.new_lacks):
                row.flags |= NEW_LACKS
        row.end = self.text.used
        return True

    cdef bint _lacks(self, uint8_t *mask) noexcept:
        cdef Py_ssize_t at
        for at in range(self.width):
            if mask[at]:
                return True
        return False

    cdef bint _read_row(self, bytes value, Input *avro, uint8_t *lacks) except -1:
        cdef Py_ssize_t column
        cdef size_t start
        cdef int branch
        for column in range(self.width):
            if column:
                write_byte(&self.text, b"\t")
            start = self.text.used
            branch = read_optional(avro) if self.cells[column].is_nullable else 1
            if branch < 0:
                return False
            if branch == 0:
                write_null(&self.text)
            elif not self._write_cell(&self.text, value, avro, column, True):
                return False
            if lacks != NULL and lacks[column]:
                self.text.used = start
                write(&self.text, b"\\U", 2)
        write_byte(&self.text, b"\n")
        return True

    # ---------------------------------------------------------------- what was filled
    def order(self):
        """Put the changes into commit order; those of one place stay in theirs."""
        cdef size_t at
        cdef Row *moved
        self._check_there()
        for at in range(1, self.count):
            if is_after(&self.rows[at - 1], &self.rows[at]):
                break
        else:
            return
        order = sorted(
            [(self.rows[at].seq, self.rows[at].ordinal, at) for at in range(self.count)]
        )
        moved = <Row *>realloc(NULL, self.count * sizeof(Row))
        if moved == NULL:
            raise MemoryError
        for at in range(self.count):
            moved[at] = self.rows[<size_t>order[at][2]]
        free(self.rows)
        self.rows, self.room = moved, self.count

    def tick(self, int64_t first, bytes places, bytearray seen):
        """Mark each change in `seen`; return the first that has no place there, or -1.

        `places`: where each commit's ordinals begin, from the commit `first` on, and where the
        last one's end, of 64 bits each.
        """
        cdef size_t at
        cdef Row *row
        cdef char *data
        cdef Py_ssize_t size, begin, end, place
        cdef int64_t commit
        PyBytes_AsStringAndSize(places, &data, &size)
        cdef Py_ssize_t commits = size // <Py_ssize_t>sizeof(int64_t) - 1
        cdef const int64_t *begins = <const int64_t *>data
        cdef Py_ssize_t most = len(seen)
        self._check_there()
        for at in range(self.count):
            row = &self.rows[at]
            if row.seq < first or row.seq - first >= commits:
                return at
            commit = row.seq - first
            begin, end = begins[commit], begins[commit + 1]
            if row.ordinal < 0 or row.ordinal >= end - begin:
                return at
            place = begin + row.ordinal
            if not 0 <= place < most or (seen[place] and row.op != b"t"):
                return at
            seen[place] = 1
        return -1

    def ordinals(self, int64_t seq):
        """Add up the ordinals, each as `complete.ordinals` does; None: a row of another commit."""
        cdef size_t at
        cdef uint64_t total = 0
        self._check_there()
        for at in range(self.count):
            if self.rows[at].seq != seq:
                return None
            total += mix(<uint64_t>self.rows[at].ordinal)
        return total

    def last_states(self, tuple key, bint are_known_absent=False):
        """Lines of a target's staging table, by the numbers of the key's columns.

        Of the last state of each key; None where rows are not whole, or do not carry it.  With
        `are_known_absent` a key that begins here was not at the target: its row is a line of the
        table itself, and nothing where it ends here, too.  That needs no key where rows only come.
        """
        if self.settled is not None:
            if self.settled[:2] != (key, are_known_absent):
                raise RowsSettled("a task's rows were settled by another key")
            return self.settled[2]
        if self.odd or not (key or are_known_absent):
            return None
        if not key:
            return self._only_new()
        return self._last_of_keys(key, are_known_absent, KeyStates())

    cdef object _last_of_keys(self, tuple key, bint are_known_absent, KeyStates states):
        cdef size_t at
        cdef Row *row
        cdef Py_ssize_t old, new
        cdef KeyState *state
        cdef bint begins, is_truncated = False
        for at in range(self.count):
            row = &self.rows[at]
            if row.op == b"t":
                states.clear()
                is_truncated = True
                continue
            old = -1
            if row.flags & HAS_BEFORE and row.op != b"c" and row.op != b"r":
                old = self._key(row.before, key, states)
                if old < 0:
                    return None
            if row.op == b"d":
                if old < 0:
                    return None
                end_state(&states.states[old])
                continue
            if row.flags & (HAS_AFTER | NEW_LACKS) != HAS_AFTER:
                return None
            new = self._key(row.after, key, states)
            if new < 0:
                return None
            state = &states.states[new]
            begins = state.where == ABSENT
            state.where = at
            if row.op == b"c" or row.op == b"r":
                if begins:
                    state.flags |= FRESH if are_known_absent else BEGUN
            elif old >= 0 and old != new:
                if begins:
                    state.flags |= BEGUN
                end_state(&states.states[old])
        return self._staged_states(states, key, is_truncated)

    cdef object _only_new(self):
        """As `last_states` of rows that only come; a TRUNCATE may stand before them."""
        cdef size_t at, count = 0
        cdef bint is_truncated = False
        cdef Row *row
        cdef Text straight
        memset(&straight, 0, sizeof(Text))
        try:
            for at in range(self.count):
                row = &self.rows[at]
                if row.op == b"t":
                    is_truncated, straight.used, count = True, 0, 0
                    continue
                if row.op != b"c" and row.op != b"r":
                    return None
                if row.flags & (HAS_AFTER | NEW_LACKS) != HAS_AFTER:
                    return None
                self._write_side(&straight, row.after, row.end)
                count += 1
            return (
                is_truncated, 0, 0, b"", count, taken(&straight), 0 if is_truncated else count
            )
        finally:
            free(straight.bytes)

    cdef object _staged_states(self, KeyStates states, tuple key, bint is_truncated):
        cdef Text out, straight
        cdef size_t at, upserts = 0, deletes = 0, fresh = 0
        cdef Py_ssize_t net = 0  # keys that begin here, less those that end
        cdef KeyState *state
        cdef Row *row
        cdef bytes head = b"\t\\N" * (len(key) + 1) + b"\t"
        memset(&out, 0, sizeof(Text))
        memset(&straight, 0, sizeof(Text))
        try:
            for at in range(states.count):
                state = &states.states[at]
                if state.where < 0:
                    continue
                row = &self.rows[state.where]
                if state.flags & FRESH:
                    self._write_side(&straight, row.after, row.end)
                    net += 1
                    fresh += 1
                    continue
                write_byte(&out, b"u")
                write(&out, head, len(head))
                self._write_side(&out, row.after, row.end)
                upserts += 1
                net += state.flags & BEGUN != 0
            for at in range(states.count):
                state = &states.states[at]
                if state.where != GONE or is_truncated:
                    continue
                write_byte(&out, b"d")
                write(&out, head, len(head))
                self._write_key(&out, &states.keys, state, key)
                deletes += 1
                net -= not state.flags & BEGUN
            return (
                is_truncated, upserts, deletes, taken(&out), fresh, taken(&straight),
                0 if is_truncated else net,
            )
        finally:
            free(out.bytes)
            free(straight.bytes)

    cdef int _write_key(self, Text *out, Text *keys, KeyState *state, tuple key) except -1:
        """Write a row of which only the key is known."""
        cdef Py_ssize_t column
        cdef size_t start, end
        for column in range(self.width):
            if column:
                write_byte(out, b"\t")
            if column not in key:
                write_null(out)
                continue
            start = state.start
            for _ in range(key.index(column)):
                while keys.bytes[start] != b"\t":
                    start += 1
                start += 1
            end = start
            while end < state.end and keys.bytes[end] != b"\t":
                end += 1
            write(out, keys.bytes + start, end - start)
        return write_byte(out, b"\n")

    cdef Py_ssize_t _key(self, size_t start, tuple key, KeyStates states) except -2:
        """The number of the state of a row's key; -1: a cell of it was not sent, or is NULL."""
        cdef Py_ssize_t column, wanted
        cdef size_t at, after, begin = states.keys.used
        cdef bint is_first = True
        for wanted in key:
            at = start
            for column in range(wanted):
                at = self._end_of_cell(at) + 1
            after = self._end_of_cell(at)
            if self._is_mark(at, after, b"U") or self._is_mark(at, after, b"N"):
                return -1
            if not is_first:
                write_byte(&states.keys, b"\t")
            is_first = False
            write(&states.keys, self.text.bytes + at, after - at)
        return states.find(begin)

    cdef size_t _end_of_cell(self, size_t at) noexcept:
        """Where the tab or the line's end behind a cell stands."""
        while self.text.bytes[at] != b"\t" and self.text.bytes[at] != b"\n":
            at += 1
        return at

    cdef bint _is_mark(self, size_t start, size_t end, char mark) noexcept:
        return (
            end - start == 2
            and self.text.bytes[start] == b"\\"
            and self.text.bytes[start + 1] == mark
        )

    cdef int _write_side(self, Text *out, size_t start, size_t end) except -1:
        return write(out, self.text.bytes + start, end - start)


def mixed(uint64_t start, uint64_t stop):
    """Add up the numbers of a range as `PackedRows.ordinals` does."""
    cdef uint64_t total = 0
    while start < stop:
        total += mix(start)
        start += 1
    return total


class RowsSettled(Exception):
    """A task sent last states, and something else is asked for."""


def unpacked(tuple columns, size_t count, bytes text, bytes rows, list odd, settled):
    """Rows as another process sent them."""
    cdef PackedRows out = PackedRows()
    cdef size_t size = len(rows)
    out.columns, out.width, out.odd, out.settled = columns, len(columns), odd, settled
    if settled is None and size != count * sizeof(Row):
        raise ValueError("rows of another release")
    if text:
        write(&out.text, <const char *>text, len(text))
    if size:
        out.rows = <Row *>realloc(NULL, size)
        if out.rows == NULL:
            raise MemoryError
        memcpy(out.rows, <const char *>rows, size)
    out.count, out.room = count, size // sizeof(Row)
    return out


cdef bint is_behind(Row *row, int64_t seq, int64_t ordinal) noexcept:
    return row.seq > seq or (row.seq == seq and row.ordinal > ordinal)


cdef bint is_after(Row *one, Row *other) noexcept:
    return one.seq > other.seq or (one.seq == other.seq and one.ordinal > other.ordinal)


cdef bytes taken(Text *text):
    return PyBytes_FromStringAndSize(text.bytes, text.used) if text.used else b""


cdef object cell_of(str text):
    """A cell of a row's text."""
    if "\\" not in text:
        return text
    if text == "\\N":
        return None
    if text == "\\U":
        return UNCHANGED
    return ESCAPE.sub(lambda match: ESCAPED.get(match[1], match[1]), text)
