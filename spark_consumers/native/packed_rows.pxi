# Rows of one writer's schema as COPY text, straight from their Avro.
#
# A row's text is its cells with tabs between them and a line's end behind: exactly what COPY
# reads, where the row is whole.  A cell that was not sent stands as `\U`, which COPY never sees.

from cpython.bytes cimport PyBytes_AsStringAndSize, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t

import re

from schemas.tables import UNCHANGED
from spark_consumers.model import Change

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef object ESCAPE = re.compile(r"\\(.)", re.DOTALL)
cdef dict ESCAPED = {"t": "\t", "n": "\n", "r": "\r"}
cdef bytes NO_FRAME = b"\xff"  # no value begins with it

cdef enum Opcode:
    PYTHON
    INT
    BOOL
    BIT
    TEXT
    BYTEA
    FLOAT8
    DECIMAL
    VARIABLE
    DATE
    MICROS
    MILLIS
    TIME
    TIME_MILLIS
    DURATION
    ZONED
    ZONED_TIME

cdef dict OPCODES = {
    "int": INT, "bool": BOOL, "bit": BIT, "text": TEXT, "bytea": BYTEA, "float8": FLOAT8,
    "decimal": DECIMAL, "variable": VARIABLE, "date": DATE, "micros": MICROS, "millis": MILLIS,
    "time": TIME, "time_millis": TIME_MILLIS, "duration": DURATION, "zoned": ZONED,
    "zoned_time": ZONED_TIME,
}

cdef enum:
    HAS_BEFORE = 1
    HAS_AFTER = 2
    OLD_LACKS = 4  # cells of the old row were not sent
    NEW_LACKS = 8


cdef struct Cell:
    Opcode opcode
    bint is_nullable
    int scale


cdef struct Row:
    int64_t seq
    int64_t ordinal
    size_t before  # where the old row's text begins
    size_t after  # where it ends, and the new one's begins
    size_t end
    int32_t odd  # index of `odd`: a row that is no text; -1: none
    char op
    uint8_t flags


cdef class PackedRows:
    """`decode.rows.Rows`; see there.

    A task of Spark sends them as they are, or settled: only what `last_states` answers.
    """

    cdef readonly tuple columns
    cdef tuple reads, dumps, names, refusals  # of Python, by column; names are UTF-8
    cdef bytes frame
    cdef Py_ssize_t width
    cdef Cell *cells
    cdef uint8_t *old_lacks  # by column, of the value that is read
    cdef uint8_t *new_lacks
    cdef Text text
    cdef Row *rows
    cdef size_t count, room
    cdef list odd  # of Change
    cdef tuple settled  # (key, are_known_absent, last states): the rows themselves are gone

    def __cinit__(self, plan=None):
        cdef Py_ssize_t at
        self.odd = []
        if plan is None:  # `unpacked` knows the rest, and nothing is read into it
            self.frame = NO_FRAME
            return
        self.columns = plan.columns
        self.width = len(plan.columns)
        self.frame, self.refusals = plan.frame, plan.refusals
        self.names = tuple([name.encode() for name in plan.columns])
        self.reads = tuple([cell.read for cell in plan.cells])
        self.dumps = tuple([cell.dump for cell in plan.cells])
        if len(plan.cells) != self.width:
            raise ValueError("a plan of another number of columns")
        self.cells = <Cell *>realloc(NULL, (self.width + 1) * sizeof(Cell))
        self.old_lacks = <uint8_t *>realloc(NULL, self.width + 1)
        self.new_lacks = <uint8_t *>realloc(NULL, self.width + 1)
        if self.cells == NULL or self.old_lacks == NULL or self.new_lacks == NULL:
            raise MemoryError
        for at in range(self.width):
            cell = plan.cells[at]
            self.cells[at].opcode = OPCODES[cell.opcode] if cell.opcode else PYTHON
            self.cells[at].is_nullable = cell.nullable
            self.cells[at].scale = cell.scale

    def __dealloc__(self):
        free(self.cells)
        free(self.old_lacks)
        free(self.new_lacks)
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

    # ---------------------------------------------------------------- filling
    def take(self, values, Py_ssize_t at):
        """Take framed values from `at` on; return the index of the first that Python must read."""
        while at < len(values):
            value = values[at]
            if not isinstance(value, bytes) or not self._take(<bytes>value):
                break
            at += 1
        return at

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

    cdef bint is_mine(self, const void *start, Py_ssize_t size) noexcept:
        """Say whether a value has the frame of these rows."""
        cdef Py_ssize_t frame = len(self.frame)
        return size >= frame and not memcmp(start, <const char *>self.frame, frame)

    cdef bint _take(self, bytes value) except -1:
        cdef char *start
        cdef Py_ssize_t size
        PyBytes_AsStringAndSize(value, &start, &size)
        return self._take_at(value, <const uint8_t *>start, size)

    cdef bint _take_at(self, bytes value, const uint8_t *start, Py_ssize_t size) except -1:
        """Append a framed value; False, and nothing is changed, where Python must read it.

        `value` is the same as an object; None: it is made where Python reads a cell.
        """
        cdef Input avro
        cdef Row row
        cdef size_t used = self.text.used
        cdef Py_ssize_t frame = len(self.frame)
        cdef bint has_masks = False
        if not self.is_mine(start, size):
            return False
        avro.data, avro.size, avro.at = start, size, frame
        row.odd = -1
        if (
            self._read_rows(value, &avro, &row, False)
            and self._read_rest(&avro, &row, &has_masks)
        ):
            if has_masks:  # once more, now that it is known what was not sent
                self.text.used, avro.at = used, frame
                if not self._read_rows(value, &avro, &row, True):
                    self.text.used = used
                    return False
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
            elif not self._read_cell(value, avro, column):
                return False
            if lacks != NULL and lacks[column]:
                self.text.used = start
                write(&self.text, b"\\U", 2)
        write_byte(&self.text, b"\n")
        return True

    cdef bint _read_rest(self, Input *avro, Row *row, bint *has_masks) except -1:
        """Read what follows the rows: `schemas.envelope` says what that is."""
        cdef int branch
        cdef const uint8_t *op
        if not (skip_string(avro) and skip_string(avro) and skip_string(avro)):
            return False  # version, connector, name
        if not skip_long(avro) or read_optional(avro) or not skip_string(avro):
            return False  # ts_ms, snapshot: its null is last
        if not (skip_string(avro) and skip_optional_string(avro)):
            return False  # db, sequence
        if not (skip_optional_long(avro) and skip_optional_long(avro)):
            return False  # ts_us, ts_ns
        if not (skip_string(avro) and skip_string(avro)):
            return False  # schema, table
        for _ in range(5):  # txId, lsn, xmin, csn, epoch
            if not skip_optional_long(avro):
                return False
        if read_optional(avro) != 1 or not read_long(avro, &row.seq):
            return False
        if read_optional(avro) != 1 or not read_long(avro, &row.ordinal):
            return False
        if not self._read_lacks(avro, has_masks):
            return False
        branch = read_optional(avro)  # transaction
        if branch < 0:
            return False
        if branch and not (skip_string(avro) and skip_long(avro) and skip_long(avro)):
            return False
        if not read_fixed(avro, 2, &op) or op[0] != 2 or op[1] not in b"crudt":
            return False
        row.op = op[1]
        for _ in range(3):  # ts_ms, ts_us, ts_ns
            if not skip_optional_long(avro):
                return False
        return avro.at == avro.size

    cdef bint _read_lacks(self, Input *avro, bint *has_masks) except -1:
        """Read exact, unsent, before_exact and before_columns; exact texts are Python's."""
        cdef int branch
        if read_optional(avro):
            return False
        memset(self.new_lacks, 0, self.width)
        branch = read_optional(avro)
        if branch < 0 or (branch and not self._read_names(avro, self.new_lacks, 1)):
            return False
        has_masks[0] = branch
        if read_optional(avro):
            return False
        memset(self.old_lacks, 0, self.width)
        branch = read_optional(avro)
        if branch > 0:
            memset(self.old_lacks, 1, self.width)
        if branch < 0 or (branch and not self._read_names(avro, self.old_lacks, 0)):
            return False
        has_masks[0] = has_masks[0] or branch
        return True

    cdef bint _read_names(self, Input *avro, uint8_t *mask, uint8_t mark) except -1:
        """Read an array of columns' names, and mark these."""
        cdef int64_t left
        cdef const uint8_t *name
        cdef Py_ssize_t size, column
        while True:
            if not read_long(avro, &left) or left < 0:
                return False
            if not left:
                return True
            while left:
                if not read_blob(avro, &name, &size):
                    return False
                column = self._place(name, size)
                if column < 0:
                    return False
                mask[column] = mark
                left -= 1

    cdef Py_ssize_t _place(self, const uint8_t *name, Py_ssize_t size) except -2:
        cdef Py_ssize_t at
        cdef bytes known
        for at in range(self.width):
            known = self.names[at]
            if len(known) == size and not memcmp(<const char *>known, name, size):
                return at
        return -1

    # ---------------------------------------------------------------- a cell
    cdef bint _read_cell(self, bytes value, Input *avro, Py_ssize_t column) except -1:
        cdef Py_ssize_t start = avro.at
        cdef size_t used = self.text.used
        if self._read_usual(avro, &self.cells[column]):
            return True
        avro.at, self.text.used = start, used
        return self._read_by_python(value, avro, column)

    cdef bint _read_usual(self, Input *avro, Cell *cell) except -1:
        """Read a cell as its opcode says; False for a value that is Python's."""
        cdef Text *text = &self.text
        cdef const uint8_t *start
        cdef Py_ssize_t size
        cdef int64_t number, scale
        cdef double real
        cdef uint64_t bits
        cdef int at
        if cell.opcode == INT:
            if not read_long(avro, &number):
                return False
            write_long(text, number)
        elif cell.opcode == TEXT:
            if not read_blob(avro, &start, &size) or not is_utf8(start, size):
                return False
            write_escaped(text, start, size)
        elif cell.opcode == DECIMAL:
            if not read_unscaled(avro, &number):
                return False
            write_scaled(text, number, cell.scale)
        elif cell.opcode == VARIABLE:
            if not read_long(avro, &scale) or not 0 <= scale <= 30:
                return False
            if not read_unscaled(avro, &number):
                return False
            write_scaled(text, number, <int>scale)
        elif cell.opcode == DATE:
            if not read_long(avro, &number) or not is_in_calendar(number):
                return False
            write_date(text, number)
        elif cell.opcode == MICROS or cell.opcode == MILLIS:
            if not read_micros(avro, cell.opcode == MILLIS, &number):
                return False
            if not is_in_calendar(day_of(number)):
                return False
            write_date(text, day_of(number))
            write_byte(text, b" ")
            write_time(text, number - day_of(number) * DAY)
        elif cell.opcode == TIME or cell.opcode == TIME_MILLIS:
            if not read_micros(avro, cell.opcode == TIME_MILLIS, &number) or number < 0:
                return False
            write_time(text, number)
        elif cell.opcode == DURATION:
            if not read_long(avro, &number) or number == -number != 0:
                return False  # the least of all numbers
            if number < 0:
                write_byte(text, b"-")
            write_time(text, <int64_t>magnitude(number))
        elif cell.opcode == ZONED:
            if not read_blob(avro, &start, &size) or size < 12 or not is_ascii(start, size):
                return False
            write_zoned(text, start, size)
        elif cell.opcode == ZONED_TIME:
            if not read_blob(avro, &start, &size) or size < 1 or not is_ascii(start, size):
                return False
            write_escaped(text, start, size - 1)
            write(text, b"+00", 3)
        elif cell.opcode == BOOL or cell.opcode == BIT:
            if not read_fixed(avro, 1, &start) or start[0] > 1:
                return False
            if cell.opcode == BOOL:
                write_byte(text, b"t" if start[0] else b"f")
            else:
                write_byte(text, b"1" if start[0] else b"0")
        elif cell.opcode == FLOAT8:
            if not read_fixed(avro, 8, &start):
                return False
            bits = 0
            for at in range(8):
                bits |= <uint64_t>start[at] << 8 * at
            memcpy(&real, &bits, 8)
            write_double(text, real)
        elif cell.opcode == BYTEA:
            if not read_blob(avro, &start, &size):
                return False
            write_hex(text, start, size)
        else:
            return False
        return True

    cdef bint _read_by_python(self, bytes value, Input *avro, Py_ssize_t column) except -1:
        cdef const char *start
        cdef Py_ssize_t size
        if value is None:
            value = PyBytes_FromStringAndSize(<const char *>avro.data, avro.size)
        try:
            found, after = self.reads[column](value, avro.at)
            text = self.dumps[column](found)
            start = PyUnicode_AsUTF8AndSize(text, &size)
        except self.refusals:
            return False
        if not avro.at <= after <= avro.size:
            return False
        avro.at = after
        write_escaped(&self.text, <const uint8_t *>start, size)
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


cdef bint read_unscaled(Input *avro, int64_t *number) noexcept:
    """Read a big-endian number of two's complement, of at most 64 bits."""
    cdef const uint8_t *start
    cdef Py_ssize_t size, at
    cdef uint64_t found
    if not read_blob(avro, &start, &size) or size > 8:
        return False
    found = <uint64_t>-1 if size and start[0] > 127 else 0
    for at in range(size):
        found = found << 8 | start[at]
    number[0] = <int64_t>found
    return True


cdef bint read_micros(Input *avro, bint are_millis, int64_t *number) noexcept:
    """Read microseconds, or milliseconds as such."""
    if not read_long(avro, number):
        return False
    if are_millis:
        if not -9_000_000_000_000_000 < number[0] < 9_000_000_000_000_000:
            return False
        number[0] *= 1000
    return True


cdef bint is_ascii(const uint8_t *start, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at
    cdef uint8_t seen = 0
    for at in range(size):
        seen |= start[at]
    return seen < 128


cdef int write_zoned(Text *text, const uint8_t *start, Py_ssize_t size) except -1:
    """Write a timestamp with time zone from ISO text in UTC: `2024-05-01T12:00:00.500Z`."""
    cdef Py_ssize_t at, end = size - 1
    write_escaped(text, start, 10)
    write_byte(text, b" ")
    for at in range(11, end):
        if start[at] == b".":
            while end > 11 and start[end - 1] == b"0":
                end -= 1
            while end > 11 and start[end - 1] == b".":
                end -= 1
            break
    write_escaped(text, start + 11, end - 11)
    return write(text, b"+00", 3)
