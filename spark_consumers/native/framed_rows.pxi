# Values of one writer's schema, which all begin alike, and what is in them besides the rows.

from cpython.bytes cimport PyBytes_AsStringAndSize, PyBytes_FromStringAndSize

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef bytes NO_FRAME = b"\xff"  # no value begins with it
cdef object NO_VALUE = object()


cdef struct Envelope:
    int64_t seq
    int64_t ordinal
    int64_t epoch
    int64_t committed_at  # µs since 1970
    int64_t xid
    int64_t lsn
    int64_t csn
    bint has_epoch
    bint has_time
    bint has_xid
    bint has_lsn
    bint has_csn
    bint old_lacks  # columns were not sent: `FramedRows.old_lacks` says which
    bint new_lacks
    char op


cdef class FramedRows:
    """What takes the values of one writer's schema; a `decode.rows.PackPlan` says how."""

    cdef readonly tuple columns
    cdef tuple reads, dumps, names, refusals  # of Python, by column; names are UTF-8
    cdef bytes frame
    cdef Py_ssize_t width
    cdef Cell *cells
    cdef uint8_t *old_lacks  # by column, of the value that is read
    cdef uint8_t *new_lacks
    cdef int partition  # where the value stands in Kafka that is read
    cdef int64_t offset

    def __cinit__(self, plan=None, *_):
        cdef Py_ssize_t at
        if plan is None:  # nothing is read into it
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

    def take(self, values, Py_ssize_t at):
        """Take framed values from `at` on; return the index of the first that Python must read."""
        while at < len(values):
            value = values[at]
            if not isinstance(value, bytes) or not self._take(<bytes>value):
                break
            at += 1
        return at

    cdef bint _take(self, bytes value) except -1:
        cdef char *start
        cdef Py_ssize_t size
        PyBytes_AsStringAndSize(value, &start, &size)
        return self._take_at(value, <const uint8_t *>start, size)

    cdef bint _take_at(self, bytes value, const uint8_t *start, Py_ssize_t size) except -1:
        """Append a framed value; False, and nothing is changed, where Python must read it.

        `value` is the same as an object; None: it is made where Python reads a cell.
        """
        return False

    cdef bint is_mine(self, const void *start, Py_ssize_t size) noexcept:
        """Say whether a value has the frame of these rows."""
        cdef Py_ssize_t frame = len(self.frame)
        return size >= frame and not memcmp(start, <const char *>self.frame, frame)

    cdef object _by_python(self, bytes value, Input *avro, Py_ssize_t column):
        """Read a cell by Python, and dump it; NO_VALUE where that refuses it."""
        if value is None:
            value = PyBytes_FromStringAndSize(<const char *>avro.data, avro.size)
        try:
            found, after = self.reads[column](value, avro.at)
            out = self.dumps[column](found)
        except self.refusals:
            return NO_VALUE
        if not avro.at <= after <= avro.size:
            return NO_VALUE
        avro.at = after
        return out

    cdef bint _write_cell(
        self, Text *text, bytes value, Input *avro, Py_ssize_t column, bint is_escaped
    ) except -1:
        """Write a cell's text; False for a value of no text."""
        cdef const char *start
        cdef Py_ssize_t size, at = avro.at
        cdef size_t used = text.used
        if read_text(text, avro, &self.cells[column], is_escaped):
            return True
        avro.at, text.used = at, used
        found = self._by_python(value, avro, column)
        if found is NO_VALUE:
            return False
        try:
            start = PyUnicode_AsUTF8AndSize(found, &size)
        except self.refusals:
            return False
        write_text(text, <const uint8_t *>start, size, is_escaped)
        return True

    # ---------------------------------------------------------------- an envelope
    cdef bint _read_rest(self, Input *avro, Envelope *found) except -1:
        """Read what follows the rows: `schemas.envelope` says what that is."""
        cdef int branch
        cdef const uint8_t *op
        if not (skip_string(avro) and skip_string(avro) and skip_string(avro)):
            return False  # version, connector, name
        if not skip_long(avro) or read_optional(avro) or not skip_string(avro):
            return False  # ts_ms, snapshot: its null is last
        if not (skip_string(avro) and skip_optional_string(avro)):
            return False  # db, sequence
        if not read_optional_long(avro, &found.has_time, &found.committed_at):
            return False  # ts_us
        if not skip_optional_long(avro):
            return False  # ts_ns
        if not (skip_string(avro) and skip_string(avro)):
            return False  # schema, table
        if not read_optional_long(avro, &found.has_xid, &found.xid):
            return False
        if not read_optional_long(avro, &found.has_lsn, &found.lsn):
            return False
        if not skip_optional_long(avro):
            return False  # xmin
        if not read_optional_long(avro, &found.has_csn, &found.csn):
            return False
        if not read_optional_long(avro, &found.has_epoch, &found.epoch):
            return False
        if read_optional(avro) != 1 or not read_long(avro, &found.seq):
            return False
        if read_optional(avro) != 1 or not read_long(avro, &found.ordinal):
            return False
        if not self._read_lacks(avro, found):
            return False
        branch = read_optional(avro)  # transaction
        if branch < 0:
            return False
        if branch and not (skip_string(avro) and skip_long(avro) and skip_long(avro)):
            return False
        if not read_fixed(avro, 2, &op) or op[0] != 2 or op[1] not in b"crudt":
            return False
        found.op = <char>op[1]
        for _ in range(3):  # ts_ms, ts_us, ts_ns
            if not skip_optional_long(avro):
                return False
        return avro.at == avro.size

    cdef bint _read_lacks(self, Input *avro, Envelope *found) except -1:
        """Read exact, unsent, before_exact and before_columns; exact texts are Python's."""
        cdef int branch
        if read_optional(avro):
            return False
        memset(self.new_lacks, 0, self.width)
        branch = read_optional(avro)
        if branch < 0 or (branch and not self._read_names(avro, self.new_lacks, 1)):
            return False
        found.new_lacks = branch
        if read_optional(avro):
            return False
        memset(self.old_lacks, 0, self.width)
        branch = read_optional(avro)
        if branch > 0:
            memset(self.old_lacks, 1, self.width)
        if branch < 0 or (branch and not self._read_names(avro, self.old_lacks, 0)):
            return False
        found.old_lacks = branch
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
