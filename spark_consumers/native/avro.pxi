# Reading Avro's binary encoding (specification 1.11), within bounds.
#
# Every function returns False for what ends early or is not expected; nothing raises.

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef struct Input:
    const uint8_t *data
    Py_ssize_t size
    Py_ssize_t at  # 0..size


cdef bint read_long(Input *avro, int64_t *out) noexcept:
    """Read an int or a long of at most 64 bits."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while avro.at < avro.size:
        byte = avro.data[avro.at]
        avro.at += 1
        if shift == 63 and byte > 1:
            return False
        raw |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            out[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return True
        shift += 7
    return False


cdef bint read_blob(Input *avro, const uint8_t **start, Py_ssize_t *size) noexcept:
    """Read bytes or a string; the bytes stay where they are."""
    cdef int64_t length
    if not read_long(avro, &length) or length < 0 or length > avro.size - avro.at:
        return False
    start[0], size[0] = avro.data + avro.at, <Py_ssize_t>length
    avro.at += <Py_ssize_t>length
    return True


cdef bint read_fixed(Input *avro, Py_ssize_t size, const uint8_t **start) noexcept:
    """Read so many bytes."""
    if size > avro.size - avro.at:
        return False
    start[0] = avro.data + avro.at
    avro.at += size
    return True


cdef bint read_double(Input *avro, double *out) noexcept:
    cdef const uint8_t *start
    cdef uint64_t bits = 0
    cdef int at
    if not read_fixed(avro, 8, &start):
        return False
    for at in range(8):
        bits |= <uint64_t>start[at] << 8 * at
    memcpy(out, &bits, 8)
    return True


cdef bint read_float(Input *avro, float *out) noexcept:
    cdef const uint8_t *start
    cdef uint32_t bits = 0
    cdef int at
    if not read_fixed(avro, 4, &start):
        return False
    for at in range(4):
        bits |= <uint32_t>start[at] << 8 * at
    memcpy(out, &bits, 4)
    return True


cdef int read_optional(Input *avro) noexcept:
    """Read which branch of ["null", T] follows: 0 null, 1 T, -1 neither."""
    if avro.at >= avro.size:
        return -1
    cdef uint8_t branch = avro.data[avro.at]
    avro.at += 1
    return 0 if branch == 0 else 1 if branch == 2 else -1


cdef bint is_utf8(const uint8_t *start, Py_ssize_t size):
    """Say whether bytes are text, as strictly as Python does."""
    cdef Py_ssize_t at
    cdef uint8_t seen = 0
    for at in range(size):
        seen |= start[at]
    if seen < 128:
        return True
    try:
        PyUnicode_DecodeUTF8(<const char *>start, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint skip_long(Input *avro) noexcept:
    cdef int64_t passed
    return read_long(avro, &passed)


cdef bint skip_string(Input *avro):
    cdef const uint8_t *start
    cdef Py_ssize_t size
    return read_blob(avro, &start, &size) and is_utf8(start, size)


cdef bint read_optional_long(Input *avro, bint *is_there, int64_t *out) noexcept:
    cdef int branch = read_optional(avro)
    is_there[0] = branch == 1
    return branch == 0 or (branch == 1 and read_long(avro, out))


cdef bint skip_optional_long(Input *avro) noexcept:
    cdef bint is_there
    cdef int64_t passed
    return read_optional_long(avro, &is_there, &passed)


cdef bint skip_optional_string(Input *avro):
    cdef int branch = read_optional(avro)
    return branch == 0 or (branch == 1 and skip_string(avro))
