# The Avro of a cell as the source's text: the native twin of `AvroShape.dump`.

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

cdef struct Cell:
    Opcode opcode
    bint is_nullable
    int scale


cdef bint read_text(Text *text, Input *avro, Cell *cell, bint is_escaped) except -1:
    """Read a cell as its opcode says; False for a value that is Python's.

    Where it is escaped, it is a part of a line for COPY.
    """
    cdef const uint8_t *start
    cdef Py_ssize_t size
    cdef int64_t number, scale
    cdef double real
    if cell.opcode == INT:
        if not read_long(avro, &number):
            return False
        write_long(text, number)
    elif cell.opcode == TEXT:
        if not read_blob(avro, &start, &size) or not is_utf8(start, size):
            return False
        write_text(text, start, size, is_escaped)
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
        write_zoned(text, start, size, is_escaped)
    elif cell.opcode == ZONED_TIME:
        if not read_blob(avro, &start, &size) or size < 1 or not is_ascii(start, size):
            return False
        write_text(text, start, size - 1, is_escaped)
        write(text, b"+00", 3)
    elif cell.opcode == BOOL or cell.opcode == BIT:
        if not read_fixed(avro, 1, &start) or start[0] > 1:
            return False
        if cell.opcode == BOOL:
            write_byte(text, b"t" if start[0] else b"f")
        else:
            write_byte(text, b"1" if start[0] else b"0")
    elif cell.opcode == FLOAT8:
        if not read_double(avro, &real):
            return False
        write_double(text, real)
    elif cell.opcode == BYTEA:
        if not read_blob(avro, &start, &size):
            return False
        write_hex(text, start, size, is_escaped)
    else:
        return False
    return True


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


cdef int write_zoned(
    Text *text, const uint8_t *start, Py_ssize_t size, bint is_escaped
) except -1:
    """Write a timestamp with time zone from ISO text in UTC: `2024-05-01T12:00:00.500Z`."""
    cdef Py_ssize_t at, end = size - 1
    write_text(text, start, 10, is_escaped)
    write_byte(text, b" ")
    for at in range(11, end):
        if start[at] == b".":
            while end > 11 and start[end - 1] == b"0":
                end -= 1
            while end > 11 and start[end - 1] == b".":
                end -= 1
            break
    write_text(text, start + 11, end - 11, is_escaped)
    return write(text, b"+00", 3)
