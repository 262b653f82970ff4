# Rows of one writer's schema as values of Python: the native twin of the reader's `ValueDecoder`.

from operator import attrgetter

cdef object VALUES_ORDER = attrgetter("seq", "ordinal")
cdef Py_ssize_t VALUES_WEIGH = 8  # times their bytes in Avro, as objects of Python


cdef class ValueRows(FramedRows):
    """Changes as a service gets them; of a cell `dump` makes the value, or is None."""

    cdef list changes
    cdef object make  # (epoch, seq, ordinal, op, before, after, unsent) -> change
    cdef Py_ssize_t bytes  # of values

    def __cinit__(self, plan, make):
        self.changes, self.make = [], make

    def __len__(self):
        return len(self.changes)

    def __getitem__(self, at):
        return self.changes[at]

    def __iter__(self):
        return iter(self.changes)

    def put(self, change):
        """Append a change that Python read."""
        self.changes.append(change)

    def order(self):
        """Put the changes into commit order; those of one place stay in theirs."""
        self.changes.sort(key=VALUES_ORDER)

    def held(self):
        """Bytes of memory that the values take, about."""
        return VALUES_WEIGH * self.bytes

    cdef bint _take_at(self, bytes value, const uint8_t *start, Py_ssize_t size) except -1:
        cdef Input avro
        cdef Envelope found
        cdef int branch
        cdef object before = None, after = None
        cdef tuple unsent = ()
        if not self.is_mine(start, size):
            return False
        avro.data, avro.size, avro.at = start, size, len(self.frame)
        branch = read_optional(&avro)
        if branch < 0:
            return False
        if branch and (before := self._row(value, &avro)) is None:
            return False
        branch = read_optional(&avro)
        if branch < 0:
            return False
        if branch and (after := self._row(value, &avro)) is None:
            return False
        if not self._read_rest(&avro, &found) or not found.has_epoch:
            return False
        if found.old_lacks and before is not None:
            self._without(before, self.old_lacks)
        if found.new_lacks:
            unsent = self._marked(self.new_lacks)
            if after is not None:
                self._without(after, self.new_lacks)
        self.changes.append(
            self.make(found.epoch, found.seq, found.ordinal, chr(found.op), before, after, unsent)
        )
        self.bytes += size
        return True

    cdef dict _row(self, bytes value, Input *avro):
        """Read a row; None: Python must read it."""
        cdef Py_ssize_t column
        cdef int branch
        cdef dict row = {}
        for column in range(self.width):
            if self.cells[column].is_nullable:
                branch = read_optional(avro)
                if branch < 0:
                    return None
                if not branch:
                    row[self.columns[column]] = None
                    continue
            cell = self._cell(value, avro, column)
            if cell is NO_VALUE:
                return None
            row[self.columns[column]] = cell
        return row

    cdef object _cell(self, bytes value, Input *avro, Py_ssize_t column):
        cdef const uint8_t *start
        cdef Py_ssize_t size
        cdef int64_t number
        cdef double real
        cdef Opcode opcode = self.cells[column].opcode
        if opcode == INT:
            if not read_long(avro, &number):
                return NO_VALUE
            cell = number
        elif opcode == TEXT or opcode == BYTEA:
            if not read_blob(avro, &start, &size):
                return NO_VALUE
            if opcode == BYTEA:
                cell = PyBytes_FromStringAndSize(<const char *>start, size)
            else:
                try:
                    cell = PyUnicode_DecodeUTF8(<const char *>start, size, NULL)
                except UnicodeDecodeError:
                    return NO_VALUE
        elif opcode == BOOL:
            if not read_fixed(avro, 1, &start) or start[0] > 1:
                return NO_VALUE
            cell = start[0] == 1
        elif opcode == FLOAT8:
            if not read_double(avro, &real):
                return NO_VALUE
            cell = real
        else:
            return self._by_python(value, avro, column)
        dump = self.dumps[column]
        if dump is None:
            return cell
        try:
            return dump(cell)
        except self.refusals:
            return NO_VALUE

    cdef tuple _marked(self, const uint8_t *mask):
        cdef Py_ssize_t column
        return tuple([self.columns[column] for column in range(self.width) if mask[column]])

    cdef int _without(self, dict row, const uint8_t *mask) except -1:
        """Take away what was not sent."""
        cdef Py_ssize_t column
        for column in range(self.width):
            if mask[column]:
                del row[self.columns[column]]
        return 0
