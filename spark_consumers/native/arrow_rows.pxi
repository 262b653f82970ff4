# Changes as columns of Arrow, straight from their Avro: what `source.rows.ChangeRows` adds, a row for
# each image of a row, or `pairs.PairRows`, a row for each change.
#
# A column is Arrow's buffers in the making; pyarrow is not linked, it is given their bytes.  What has
# no layout here is a list of objects.  A record is read at the rows behind the last whole one: where
# it cannot be read to its end, nothing of it counts.

from libc.stdint cimport int8_t, int16_t
from libc.stdlib cimport calloc

cdef enum Layout:
    OBJECTS
    INT8
    INT16
    INT32
    INT64
    FLOAT32
    FLOAT64
    BITS
    DECIMAL128
    BYTES  # of any length, behind offsets

cdef dict LAYOUTS = {
    "": OBJECTS, "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64, "float32": FLOAT32,
    "float64": FLOAT64, "bits": BITS, "decimal128": DECIMAL128, "bytes": BYTES,
}

cdef enum Native:
    AS_PYTHON
    AS_INT
    AS_FLOAT4
    AS_FLOAT8
    AS_BOOL
    AS_DECIMAL
    AS_MILLIS
    AS_ZONED
    AS_BYTES
    AS_TEXT
    PAST_LONG  # of columns that nobody wants
    PAST_STRING
    PAST_BYTES
    PAST_1
    PAST_4
    PAST_8

cdef dict NATIVES = {
    "": AS_PYTHON, "int": AS_INT, "float4": AS_FLOAT4, "float8": AS_FLOAT8, "bool": AS_BOOL,
    "decimal": AS_DECIMAL, "millis": AS_MILLIS, "zoned": AS_ZONED, "bytes": AS_BYTES,
    "text": AS_TEXT,
}
cdef dict PAST = {
    "int": PAST_LONG, "long": PAST_LONG, "string": PAST_STRING, "bytes": PAST_BYTES,
    "boolean": PAST_1, "float": PAST_4, "double": PAST_8,
}

cdef enum Kind:  # `source.rows.KINDS`
    INSERT
    PREIMAGE
    POSTIMAGE
    DELETE
    TRUNCATE

cdef enum:
    # Columns of ours, behind those of the table: `source.batches` names them.
    KIND = 0
    VERSION
    TIME_OF_COMMIT
    ORDINAL
    UNSENT

cdef enum:
    # The same where a change is one row, behind those of the new image: `pairs` names them.
    HAS_NEW = 0  # of the old image it is the only one
    OP
    PAIR_NUMBERS  # `PairRows._put_numbers` has their order
    PAIR_UNSENT = 10
    PAIR_SENT
    PAIR_PARTITION

cdef extern from *:
    """
    #define MOST_BYTES 0x7fffffff  /* that 32-bit offsets reach */
    #define MOST_EPOCHS 0x800000  /* of a version, 40 bits above its commits */
    """
    const size_t MOST_BYTES
    const int64_t MOST_EPOCHS


cdef struct Buffers:
    Layout layout
    size_t size  # of a value
    bint has_nulls
    uint8_t *valid  # a bit a row
    char *values  # bits, or 32-bit offsets of `text`
    Text text
    uint64_t high  # what a decimal stays below
    uint64_t low


cdef class ArrowColumns:
    """Columns of a batch in the making; `ArrowRows` of several writers fill them in turn."""

    cdef readonly size_t count  # rows
    cdef size_t room
    cdef Py_ssize_t width  # without ours
    cdef Py_ssize_t more  # ours
    cdef Buffers *buffers
    cdef list objects  # by column, of the layout
    cdef dict patterns  # which columns were not sent -> number

    def __cinit__(self, list layouts, list ours):
        """`layouts`: (name, decimals stay below) of each wanted column; `ours`: names of ours'."""
        cdef Py_ssize_t at
        self.width, self.more = len(layouts), len(ours)
        self.patterns = {}
        self.buffers = <Buffers *>calloc(self.width + self.more + 1, sizeof(Buffers))
        if self.buffers == NULL:
            raise MemoryError
        for at in range(self.width):
            name, below = layouts[at]
            self._lay(at, LAYOUTS[name])
            self.buffers[at].high = <uint64_t>(below >> 64)
            self.buffers[at].low = <uint64_t>(below & 0xFFFF_FFFF_FFFF_FFFF)
        for at in range(self.more):
            self._lay(self.width + at, LAYOUTS[ours[at]])
        self._forget()

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self.buffers == NULL:
            return
        for at in range(self.width + self.more):
            free(self.buffers[at].valid)
            free(self.buffers[at].values)
            free(self.buffers[at].text.bytes)
        free(self.buffers)

    cdef void _lay(self, Py_ssize_t column, Layout layout):
        self.buffers[column].layout = layout
        if layout == INT8:
            self.buffers[column].size = 1
        elif layout == INT16:
            self.buffers[column].size = 2
        elif layout == INT64 or layout == FLOAT64:
            self.buffers[column].size = 8
        elif layout == DECIMAL128:
            self.buffers[column].size = 16
        else:
            self.buffers[column].size = 4

    def __len__(self):
        return self.count

    def held(self):
        """Bytes of values that have no fixed size."""
        cdef Py_ssize_t at
        cdef size_t total = 0
        for at in range(self.width):
            total += self.buffers[at].text.used
        return total

    def taken(self):
        """Return the rows' columns, and which columns were not sent by number; begin anew.

        A column is a list of objects, or its buffers: valid (None: all are), values, and the bytes
        of what has offsets.
        """
        cdef Py_ssize_t at
        columns = [self._buffers(at) for at in range(self.width + self.more)]
        patterns = list(self.patterns)
        self.count = 0
        self._forget()
        return columns, patterns

    cdef object _buffers(self, Py_ssize_t column):
        cdef Buffers *of = &self.buffers[column]
        cdef size_t size
        if of.layout == OBJECTS:
            return self.objects[column]
        if of.layout == BITS:
            size = (self.count + 7) // 8
        elif of.layout == BYTES:
            size = (self.count + 1) * of.size
        else:
            size = self.count * of.size
        out = [None]
        if of.has_nulls:
            out[0] = PyBytes_FromStringAndSize(<char *>of.valid, (self.count + 7) // 8)
        out.append(PyBytes_FromStringAndSize(of.values, size))
        if of.layout == BYTES:
            out.append(taken(&of.text))
        return tuple(out)

    cdef void _forget(self):
        cdef Py_ssize_t at
        self.objects = []
        for at in range(self.width + self.more):
            self.objects.append([] if self.buffers[at].layout == OBJECTS else None)
            self.buffers[at].has_nulls = False
            self.buffers[at].text.used = 0
        self.patterns.clear()

    cdef int _reserve(self, size_t more) except -1:
        cdef Py_ssize_t at
        cdef size_t room = max(<size_t>1024, 2 * self.room)
        if self.count + more <= self.room:
            return 0
        for at in range(self.width + self.more):
            if self.buffers[at].layout != OBJECTS:
                grow_buffers(&self.buffers[at], self.room, room)
        self.room = room
        return 0

    cdef int _cut(self) except -1:
        """Forget what is behind the last whole row."""
        cdef Py_ssize_t at
        for at in range(self.width):
            if self.buffers[at].layout == OBJECTS:
                del self.objects[at][self.count:]
            elif self.buffers[at].layout == BYTES:
                self.buffers[at].text.used = (<int32_t *>self.buffers[at].values)[self.count]
        return 0

    cdef int _put_nulls(self, size_t row) except -1:
        cdef Py_ssize_t at
        for at in range(self.width):
            self._put_null(at, row)
        return 0

    cdef int _put_null(self, Py_ssize_t column, size_t row) except -1:
        if self.buffers[column].layout == OBJECTS:
            self.objects[column].append(None)
            return 0
        clear_cell(&self.buffers[column], row)
        return 0

    cdef int _hide(self, Py_ssize_t column, size_t row) except -1:
        """Have NULL in the place of a value; its bytes stay."""
        if self.buffers[column].layout == OBJECTS:
            self.objects[column][row] = None
            return 0
        self.buffers[column].has_nulls = True
        self.buffers[column].valid[row >> 3] &= ~(1 << (row & 7))
        return 0


cdef class ArrowRows(FramedRows):
    """Values of one writer's schema on their way into columns."""

    cdef ArrowColumns into
    cdef Py_ssize_t *places  # by the writer's columns: the wanted one, or -1
    cdef Native *natives
    cdef Py_ssize_t *sources  # by wanted columns: the writer's, or -1
    cdef uint8_t *unsent  # by wanted columns, of the row that is put

    def __cinit__(self, plan, list ways not None, ArrowColumns into not None, *_):
        """`ways`: (wanted column, name of a way to read it), or (-1, kind of Avro)."""
        cdef Py_ssize_t at, place, most = max(self.width, into.width) + 1
        self.into = into
        self.places = <Py_ssize_t *>calloc(most, sizeof(Py_ssize_t))
        self.sources = <Py_ssize_t *>calloc(most, sizeof(Py_ssize_t))
        self.natives = <Native *>calloc(most, sizeof(Native))
        self.unsent = <uint8_t *>calloc(most, 1)
        if (
            self.places == NULL or self.sources == NULL
            or self.natives == NULL or self.unsent == NULL
        ):
            raise MemoryError
        for at in range(into.width):
            self.sources[at] = -1
        if len(ways) != self.width:
            raise ValueError("ways of another number of columns")
        for at in range(self.width):
            place, name = ways[at]
            self.places[at] = place
            if place < 0:
                self.natives[at] = PAST.get(name, AS_PYTHON)
                continue
            if place >= into.width:
                raise IndexError(place)
            self.natives[at] = NATIVES[name]
            self.sources[place] = at

    def __dealloc__(self):
        free(self.places)
        free(self.natives)
        free(self.sources)
        free(self.unsent)

    def take(self, records, Py_ssize_t at):
        """Take (partition, offset, value) from `at` on; return the first that Python must read."""
        while at < len(records):
            self.partition, self.offset, value = records[at]
            if not isinstance(value, bytes) or not self._take(<bytes>value):
                break
            at += 1
        return at

    cdef bint _take_at(self, bytes value, const uint8_t *start, Py_ssize_t size) except -1:
        cdef Input avro
        cdef Envelope found
        cdef int old, new
        cdef size_t row = self.into.count
        if not self.is_mine(start, size):
            return False
        avro.data, avro.size, avro.at = start, size, len(self.frame)
        self.into._reserve(2)
        old = self._read_side(self.into, value, &avro, row)
        new = -1 if old < 0 else self._read_side(self.into, value, &avro, row + <size_t>old)
        if new >= 0 and self._read_rest(&avro, &found) and self._put(&found, old, new):
            return True
        self.into._cut()
        return False

    # ---------------------------------------------------------------- a change
    cdef int _read_side(
        self, ArrowColumns into, bytes value, Input *avro, size_t row
    ) except -2:
        """Read the old or the new row: 1 where it is there, 0 where it is not, -1 neither."""
        cdef Py_ssize_t at
        cdef int side = read_optional(avro), branch
        if side != 1:
            return side
        for at in range(into.width):
            if self.sources[at] < 0:
                into._put_null(at, row)
        for at in range(self.width):
            branch = read_optional(avro) if self.cells[at].is_nullable else 1
            if branch < 0:
                return -1
            if branch == 0:
                if self.places[at] >= 0:
                    into._put_null(self.places[at], row)
            elif not self._read_cell(into, value, avro, at, row):
                return -1
        return 1

    cdef bint _put(self, Envelope *found, bint old, bint new) except -1:
        """Put our columns beside the rows that were read; False where they are not of this op."""
        cdef size_t row = self.into.count
        if not found.has_epoch or not 0 <= found.epoch < MOST_EPOCHS or found.seq < 0:
            return False
        if found.op == b"u" and new:
            if old:
                self._put_ours(found, row, PREIMAGE)
                self._put_unsent(row, self.old_lacks if found.old_lacks else NULL, True)
                row += 1
            self._put_ours(found, row, POSTIMAGE)
            self._put_unsent(row, self.new_lacks if found.new_lacks else NULL, False)
        elif (found.op == b"c" or found.op == b"r") and new and not old:
            self._put_ours(found, row, INSERT)
            self._put_unsent(row, self.new_lacks if found.new_lacks else NULL, False)
        elif found.op == b"d" and old and not new:
            self._put_ours(found, row, DELETE)
            self._put_unsent(row, self.old_lacks if found.old_lacks else NULL, True)
        elif found.op == b"t" and not old and not new:
            self.into._put_nulls(row)
            self._put_ours(found, row, TRUNCATE)
            self._put_unsent(row, NULL, False)
        else:
            return False
        self.into.count = row + 1
        return True

    cdef void _put_ours(self, Envelope *found, size_t row, Kind kind) noexcept:
        cdef Buffers *ours = self.into.buffers + self.into.width
        set_int(&ours[KIND], row, kind)
        set_int(&ours[VERSION], row, found.epoch << 40 | found.seq)
        if found.has_time:
            set_int(&ours[TIME_OF_COMMIT], row, found.committed_at)
        else:
            clear_cell(&ours[TIME_OF_COMMIT], row)
        set_int(&ours[ORDINAL], row, found.ordinal)

    cdef int _put_unsent(self, size_t row, uint8_t *lacks, bint is_old) except -1:
        """Hide what was not sent.  An old row names what was: it lacks later columns, too."""
        cdef Py_ssize_t at
        cdef uint8_t seen = 0
        cdef Buffers *out = self.into.buffers + self.into.width + UNSENT
        if lacks != NULL:
            for at in range(self.into.width):
                self.unsent[at] = lacks[self.sources[at]] if self.sources[at] >= 0 else is_old
                seen |= self.unsent[at]
                if self.unsent[at]:
                    self.into._hide(at, row)
        if not seen:
            clear_cell(out, row)
            return 0
        pattern = PyBytes_FromStringAndSize(<char *>self.unsent, self.into.width)
        number = self.into.patterns.setdefault(pattern, len(self.into.patterns))
        set_int(out, row, number)
        return 0

    # ---------------------------------------------------------------- a cell
    cdef bint _read_cell(
        self, ArrowColumns into, bytes value, Input *avro, Py_ssize_t at, size_t row
    ) except -1:
        cdef Native native = self.natives[at]
        cdef Py_ssize_t place = self.places[at]
        cdef Buffers *to
        cdef const uint8_t *start
        cdef Py_ssize_t size
        cdef int64_t number
        cdef double real
        cdef float small
        if native == AS_PYTHON:
            found = self._by_python(value, avro, at)
            if found is NO_VALUE or (place >= 0 and into.objects[place] is None):
                return False
            if place >= 0:
                into.objects[place].append(found)
            return True
        if place < 0:
            return pass_cell(avro, native)
        to = &into.buffers[place]
        if native == AS_INT:
            return read_long(avro, &number) and set_int(to, row, number)
        if native == AS_TEXT:
            return (
                to.layout == BYTES
                and self._write_cell(&to.text, value, avro, at, False)
                and end_bytes(to, row)
            )
        if native == AS_DECIMAL:
            return read_decimal(avro, to, row)
        if native == AS_MILLIS:
            return read_micros(avro, True, &number) and set_int(to, row, number)
        if native == AS_ZONED:
            return read_zoned(avro, &number) and set_int(to, row, number)
        if native == AS_BOOL:
            if to.layout != BITS or not read_fixed(avro, 1, &start) or start[0] > 1:
                return False
            set_bit(<uint8_t *>to.values, row, start[0])
            set_bit(to.valid, row, True)
            return True
        if native == AS_FLOAT8:
            return read_double(avro, &real) and set_double(to, row, real)
        if native == AS_FLOAT4:
            if not read_float(avro, &small):
                return False
            return set_float(to, row, small) or set_double(to, row, small)
        if native == AS_BYTES:
            if to.layout != BYTES or not read_blob(avro, &start, &size):
                return False
            write(&to.text, <const char *>start, size)
            return end_bytes(to, row)
        return False


cdef class PairRows(ArrowRows):
    """The same where a change is one row: its old image, its new one, and all that is said of it."""

    cdef ArrowColumns before

    def __cinit__(
        self, plan, list ways, ArrowColumns into not None, ArrowColumns before not None
    ):
        """`into` takes new images and what is ours, `before` old images, of the same columns."""
        if before.width != into.width:
            raise ValueError("old images of another number of columns")
        self.before = before

    cdef bint _take_at(self, bytes value, const uint8_t *start, Py_ssize_t size) except -1:
        cdef Input avro
        cdef Envelope found
        cdef int old, new
        cdef size_t row = self.into.count
        if not self.is_mine(start, size):
            return False
        avro.data, avro.size, avro.at = start, size, len(self.frame)
        self.into._reserve(1)
        self.before._reserve(1)
        old = self._read_side(self.before, value, &avro, row)
        new = -1 if old < 0 else self._read_side(self.into, value, &avro, row)
        if new >= 0 and self._read_rest(&avro, &found):
            self._put_image(self.before, row, old, self.old_lacks if found.old_lacks else NULL)
            self._put_image(self.into, row, new, self.new_lacks if found.new_lacks else NULL)
            self._put_said(&found, row)
            self.into.count = self.before.count = row + 1
            return True
        self.into._cut()
        self.before._cut()
        return False

    cdef int _put_image(self, ArrowColumns into, size_t row, bint is_there, uint8_t *lacks) except -1:
        """End an image: NULL where it is not there, without what was not sent."""
        cdef Py_ssize_t at
        if not is_there:
            into._put_nulls(row)
        elif lacks != NULL:
            for at in range(into.width):
                if self.sources[at] >= 0 and lacks[self.sources[at]]:
                    into._hide(at, row)
        set_bit(<uint8_t *>into.buffers[into.width + HAS_NEW].values, row, is_there)
        return 0

    cdef int _put_said(self, Envelope *found, size_t row) except -1:
        cdef Buffers *ours = self.into.buffers + self.into.width
        cdef Buffers *number = ours + PAIR_NUMBERS
        cdef Py_ssize_t at
        set_int(&ours[OP], row, place_of(found.op))
        set_int(&number[0], row, found.seq)
        set_int(&number[1], row, found.ordinal)
        put_optional(&number[2], row, found.has_csn, found.csn)
        put_optional(&number[3], row, found.has_lsn, found.lsn)
        put_optional(&number[4], row, found.has_time, found.committed_at)
        put_optional(&number[5], row, found.has_xid, found.xid)
        put_optional(&number[6], row, found.has_epoch, found.epoch)
        set_int(&number[7], row, self.offset)
        set_int(&ours[PAIR_PARTITION], row, self.partition)
        self._put_names(&ours[PAIR_UNSENT], row, self.new_lacks if found.new_lacks else NULL)
        if found.old_lacks:
            for at in range(self.width):
                self.old_lacks[at] = not self.old_lacks[at]
        self._put_names(&ours[PAIR_SENT], row, self.old_lacks if found.old_lacks else NULL)
        return 0

    cdef int _put_names(self, Buffers *out, size_t row, uint8_t *chosen) except -1:
        """Put the number of a set of the writer's columns; NULL: nothing is said of them."""
        if chosen == NULL:
            clear_cell(out, row)
            return 0
        pattern = self.frame + PyBytes_FromStringAndSize(<char *>chosen, self.width)
        set_int(out, row, self.into.patterns.setdefault(pattern, len(self.into.patterns)))
        return 0


cdef int grow_buffers(Buffers *of, size_t old, size_t room) except -1:
    cdef size_t size = (room + 7) // 8
    cdef void *moved = realloc(of.valid, size)
    if moved == NULL:
        raise MemoryError
    of.valid = <uint8_t *>moved
    memset(of.valid + (old + 7) // 8, 0, size - (old + 7) // 8)
    if of.layout != BITS:
        size = (room + 1) * of.size
    moved = realloc(of.values, size)
    if moved == NULL:
        raise MemoryError
    of.values = <char *>moved
    if not old:
        memset(of.values, 0, size)  # the first offset, and bits behind the last row
    return 0


cdef inline void set_bit(uint8_t *bits, size_t row, bint bit) noexcept:
    if bit:
        bits[row >> 3] |= 1 << (row & 7)
    else:
        bits[row >> 3] &= ~(1 << (row & 7))


cdef void clear_cell(Buffers *of, size_t row) noexcept:
    of.has_nulls = True
    set_bit(of.valid, row, False)
    if of.layout == BITS:
        set_bit(<uint8_t *>of.values, row, False)
    elif of.layout == BYTES:
        (<int32_t *>of.values)[row + 1] = <int32_t>of.text.used
    else:
        memset(of.values + row * of.size, 0, of.size)


cdef bint end_bytes(Buffers *of, size_t row) noexcept:
    if of.text.used > MOST_BYTES:
        return False
    (<int32_t *>of.values)[row + 1] = <int32_t>of.text.used
    set_bit(of.valid, row, True)
    return True


cdef bint set_int(Buffers *of, size_t row, int64_t number) noexcept:
    if of.layout == INT64:
        (<int64_t *>of.values)[row] = number
    elif of.layout == INT32:
        if number != <int32_t>number:
            return False
        (<int32_t *>of.values)[row] = <int32_t>number
    elif of.layout == INT16:
        if number != <int16_t>number:
            return False
        (<int16_t *>of.values)[row] = <int16_t>number
    elif of.layout == INT8:
        (<int8_t *>of.values)[row] = <int8_t>number
    else:
        return False
    set_bit(of.valid, row, True)
    return True


cdef int64_t place_of(char op) noexcept:
    """Say which of `pairs.OPS` it is."""
    if op == b"c":
        return 0
    if op == b"r":
        return 1
    if op == b"u":
        return 2
    return 3 if op == b"d" else 4


cdef void put_optional(Buffers *of, size_t row, bint is_there, int64_t number) noexcept:
    if is_there:
        set_int(of, row, number)
    else:
        clear_cell(of, row)


cdef bint set_double(Buffers *of, size_t row, double number) noexcept:
    if of.layout != FLOAT64:
        return False
    (<double *>of.values)[row] = number
    set_bit(of.valid, row, True)
    return True


cdef bint set_float(Buffers *of, size_t row, float number) noexcept:
    if of.layout != FLOAT32:
        return False
    (<float *>of.values)[row] = number
    set_bit(of.valid, row, True)
    return True


cdef bint read_decimal(Input *avro, Buffers *to, size_t row) noexcept:
    """Read a big-endian number of two's complement, of at most 128 bits."""
    cdef const uint8_t *start
    cdef Py_ssize_t size, at
    cdef uint64_t high, low, above, below
    if to.layout != DECIMAL128 or not read_blob(avro, &start, &size) or size > 16:
        return False
    high = low = <uint64_t>-1 if size and start[0] > 127 else 0
    for at in range(size):
        high = high << 8 | low >> 56
        low = low << 8 | start[at]
    above, below = high, low
    if high >> 63:
        below = ~low + 1
        above = ~high + (below == 0)
    if above > to.high or (above == to.high and below >= to.low):
        return False
    (<uint64_t *>to.values)[2 * row] = low
    (<uint64_t *>to.values)[2 * row + 1] = high
    set_bit(to.valid, row, True)
    return True


cdef bint read_digits(const uint8_t *start, int size, int64_t *out) noexcept:
    cdef int at
    out[0] = 0
    for at in range(size):
        if not 48 <= start[at] <= 57:
            return False
        out[0] = 10 * out[0] + start[at] - 48
    return True


cdef bint read_zoned(Input *avro, int64_t *out) noexcept:
    """Read microseconds from ISO text in UTC: `2024-05-01T12:00:00.500Z`."""
    cdef const uint8_t *text
    cdef Py_ssize_t size
    cdef int64_t year, month, day, hour, minute, second, fraction = 0, era
    cdef int digits, _
    if not read_blob(avro, &text, &size) or not (size == 20 or 22 <= size <= 27):
        return False
    digits = <int>size - 21
    if (
        text[4] != b"-" or text[7] != b"-" or text[10] != b"T" or text[13] != b":"
        or text[16] != b":" or text[size - 1] != b"Z" or (digits > 0 and text[19] != b".")
    ):
        return False
    if not (
        read_digits(text, 4, &year) and read_digits(text + 5, 2, &month)
        and read_digits(text + 8, 2, &day) and read_digits(text + 11, 2, &hour)
        and read_digits(text + 14, 2, &minute) and read_digits(text + 17, 2, &second)
        and (digits < 0 or read_digits(text + 20, digits, &fraction))
    ):
        return False
    if year < 1 or not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59:
        return False
    if not 1 <= day <= days_of(year, month):
        return False
    for _ in range(6 - max(digits, 0)):
        fraction *= 10
    # As `write_date` backwards: years begin in March.
    if month <= 2:
        year -= 1
        month += 12
    era = 365 * year + year // 4 - year // 100 + year // 400
    day += era + (153 * (month - 3) + 2) // 5 - 1 - 719_468
    out[0] = day * DAY + ((hour * 60 + minute) * 60 + second) * SECOND + fraction
    return True


cdef int64_t days_of(int64_t year, int64_t month) noexcept:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


cdef bint pass_cell(Input *avro, Native native):
    """Pass over a value that nobody wants."""
    cdef const uint8_t *start
    cdef Py_ssize_t size
    if native == PAST_LONG:
        return skip_long(avro)
    if native == PAST_STRING:
        return skip_string(avro)
    if native == PAST_BYTES:
        return read_blob(avro, &start, &size)
    return read_fixed(avro, 1 if native == PAST_1 else 4 if native == PAST_4 else 8, &start)
