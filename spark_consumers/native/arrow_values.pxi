# Values of Kafka's records in Arrow's buffers: those that stand in ranges of offsets.
#
# Arrow's columnar format 1.5, "Variable-size Binary Layout".  Nothing is copied; what does not fit
# its buffers is a ValueError.

from bisect import bisect_right

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t

cdef const uint8_t *NO_BYTES = b""
cdef Py_ssize_t LARGE = (1 << 31) - 1


cdef class ArrowValues:
    """`decode.batches.Values`; see there."""

    cdef readonly Py_ssize_t records
    cdef Py_buffer valid, ends, data, offsets
    cdef bint has_valid, has_data
    cdef int32_t *places  # of the values, in the arrays
    cdef Py_ssize_t count

    def __cinit__(self, tuple buffers, tuple rows, tuple spans):
        """As `spark_consumers.native.arrow_values` says; validity and bytes may be None."""
        cdef Py_ssize_t at, offset_at, size
        valid, ends, data, offsets = buffers
        at, offset_at, size = rows
        starts, stops = spans
        PyObject_GetBuffer(ends, &self.ends, PyBUF_SIMPLE)
        PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
        if valid is not None:
            PyObject_GetBuffer(valid, &self.valid, PyBUF_SIMPLE)
            self.has_valid = True
        if data is not None:
            PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
            self.has_data = True
        if not (0 <= at < LARGE and 0 <= offset_at < LARGE and 0 <= size < LARGE - at):
            raise ValueError("rows that no record batch has")
        if (
            self.ends.len // 4 <= at + size
            or self.offsets.len // 8 < offset_at + size
            or (self.has_valid and self.valid.len < (at + size + 7) // 8)
        ):
            raise ValueError("a buffer of a record batch ends early")
        self.places = <int32_t *>realloc(NULL, (size + 1) * sizeof(int32_t))
        if self.places == NULL:
            raise MemoryError
        self._select(at, offset_at, size, starts, stops)

    def __dealloc__(self):
        free(self.places)
        PyBuffer_Release(&self.ends)
        PyBuffer_Release(&self.offsets)
        if self.has_valid:
            PyBuffer_Release(&self.valid)
        if self.has_data:
            PyBuffer_Release(&self.data)

    cdef int _select(
        self, Py_ssize_t at, Py_ssize_t offset_at, Py_ssize_t size, starts, stops
    ) except -1:
        """Find the rows between a start and its stop; both are sorted, and do not overlap."""
        cdef const int64_t *offsets = <const int64_t *>self.offsets.buf
        cdef const uint8_t *valid = <const uint8_t *>self.valid.buf
        cdef int64_t low = 0, high = 0, offset
        cdef Py_ssize_t row, place
        for row in range(size):
            offset = offsets[offset_at + row]
            if not low <= offset < high:
                place = bisect_right(starts, offset) - 1
                if place < 0:
                    continue
                low, high = starts[place], stops[place]
                if offset >= high:
                    continue
            self.records += 1
            place = at + row
            if self.has_valid and not valid[place >> 3] >> (place & 7) & 1:
                continue
            self._check(place)
            self.places[self.count] = <int32_t>place
            self.count += 1
        return 0

    cdef int _check(self, Py_ssize_t place) except -1:
        cdef const int32_t *ends = <const int32_t *>self.ends.buf
        cdef Py_ssize_t room = self.data.len if self.has_data else 0
        if not 0 <= ends[place] <= ends[place + 1] <= room:
            raise ValueError("a value is not within its buffer")
        return 0

    cdef const uint8_t *value(self, Py_ssize_t at, Py_ssize_t *size) noexcept:
        """Where a value stands; `at` is one of them."""
        cdef const int32_t *ends = <const int32_t *>self.ends.buf
        cdef int32_t place = self.places[at]
        size[0] = ends[place + 1] - ends[place]
        return <const uint8_t *>self.data.buf + ends[place] if self.has_data else NO_BYTES

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t at):
        cdef Py_ssize_t size
        cdef const uint8_t *start
        if not 0 <= at < self.count:
            raise IndexError(at)
        start = self.value(at, &size)
        return PyBytes_FromStringAndSize(<const char *>start, size)
