# Writing PostgreSQL's texts, as `schemas.types` dumps them, in COPY's text format.

from libc.stdlib cimport free, realloc

cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char code, int precision, int flags, int *kind) except NULL
    void PyMem_Free(void *block)


cdef extern from *:
    """
    #define SECOND 1000000LL
    #define DAY 86400000000LL
    #define FIRST_DAY -719162LL  /* 0001-01-01 */
    #define LAST_DAY 2932896LL  /* 9999-12-31 */
    """
    const int64_t SECOND, DAY, FIRST_DAY, LAST_DAY


cdef struct Text:
    char *bytes
    size_t used
    size_t room


cdef int reserve(Text *text, size_t more) except -1:
    """Make room for so many bytes behind those in use."""
    cdef size_t wanted = text.used + more
    cdef void *moved
    if wanted <= text.room:
        return 0
    wanted = max(wanted, 2 * text.room, <size_t>1024)
    moved = realloc(text.bytes, wanted)
    if moved == NULL:
        raise MemoryError
    text.bytes, text.room = <char *>moved, wanted
    return 0


cdef int write(Text *text, const char *start, size_t size) except -1:
    if not size:
        return 0  # there may be no memory yet
    reserve(text, size)
    memcpy(text.bytes + text.used, start, size)
    text.used += size
    return 0


cdef int write_byte(Text *text, char byte) except -1:
    reserve(text, 1)
    text.bytes[text.used] = byte
    text.used += 1
    return 0


cdef int write_null(Text *text) except -1:
    return write(text, b"\\N", 2)


cdef int write_escaped(Text *text, const uint8_t *start, Py_ssize_t size) except -1:
    """Write a value with COPY's escapes."""
    cdef Py_ssize_t at
    cdef uint8_t byte
    cdef char *to
    reserve(text, 2 * <size_t>size)
    to = text.bytes + text.used
    for at in range(size):
        byte = start[at]
        if byte == b"\\" or byte == b"\t" or byte == b"\n" or byte == b"\r":
            to[0] = b"\\"
            to += 1
            if byte == b"\t":
                byte = b"t"
            elif byte == b"\n":
                byte = b"n"
            elif byte == b"\r":
                byte = b"r"
        to[0] = <char>byte
        to += 1
    text.used = to - text.bytes
    return 0


cdef int write_text(Text *text, const uint8_t *start, Py_ssize_t size, bint is_escaped) except -1:
    if is_escaped:
        return write_escaped(text, start, size)
    return write(text, <const char *>start, size)


cdef int write_digits(Text *text, uint64_t number, int least) except -1:
    """Write at least so many digits, at most 40."""
    cdef char digits[40]
    cdef int at = 40
    while number or 40 - at < least:
        at -= 1
        digits[at] = <char>(48 + number % 10)
        number //= 10
    return write(text, digits + at, 40 - at)


cdef uint64_t magnitude(int64_t number) noexcept:
    return 0 - <uint64_t>number if number < 0 else <uint64_t>number


cdef int write_long(Text *text, int64_t number) except -1:
    if number < 0:
        write_byte(text, b"-")
    return write_digits(text, magnitude(number), 1)


cdef int write_scaled(Text *text, int64_t number, int scale) except -1:
    """Write a number with so many digits behind the point, at most 30."""
    cdef size_t last
    if number < 0:
        write_byte(text, b"-")
    write_digits(text, magnitude(number), scale + 1)
    if scale:
        write_byte(text, b"0")
        last = text.used - 1
        for at in range(scale):
            text.bytes[last] = text.bytes[last - 1]
            last -= 1
        text.bytes[last] = b"."
    return 0


cdef int write_hex(Text *text, const uint8_t *start, Py_ssize_t size, bint is_escaped) except -1:
    r"""Write bytea's text; the backslash of `\x` may be escaped."""
    cdef const char *digits = b"0123456789abcdef"
    cdef Py_ssize_t at
    write_text(text, <const uint8_t *>b"\\x", 2, is_escaped)
    reserve(text, 2 * <size_t>size)
    for at in range(size):
        text.bytes[text.used] = digits[start[at] >> 4]
        text.bytes[text.used + 1] = digits[start[at] & 15]
        text.used += 2
    return 0


cdef int write_date(Text *text, int64_t day) except -1:
    """Write `YYYY-MM-DD` of a day between FIRST_DAY and LAST_DAY; days are those since 1970."""
    # In years that begin in March, a leap day is the last one, and months have a formula.
    cdef int64_t since = day + 719_468  # since 0000-03-01
    cdef int64_t era = since // 146_097
    cdef int64_t of_era = since - era * 146_097
    cdef int64_t year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    cdef int64_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef int64_t month = (5 * of_year + 2) // 153
    cdef int64_t of_month = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    year += era * 400 + (1 if month <= 2 else 0)
    write_digits(text, <uint64_t>year, 4)
    write_byte(text, b"-")
    write_digits(text, <uint64_t>month, 2)
    write_byte(text, b"-")
    return write_digits(text, <uint64_t>of_month, 2)


cdef int write_time(Text *text, int64_t micros) except -1:
    """Write `HH:MM:SS[.f]` of a number that is not negative, without zeros at its end."""
    cdef int64_t seconds = micros // SECOND, fraction = micros % SECOND
    write_digits(text, <uint64_t>(seconds // 3600), 2)
    write_byte(text, b":")
    write_digits(text, <uint64_t>(seconds // 60 % 60), 2)
    write_byte(text, b":")
    write_digits(text, <uint64_t>(seconds % 60), 2)
    if fraction:
        write_byte(text, b".")
        write_digits(text, <uint64_t>fraction, 6)
        while text.bytes[text.used - 1] == b"0":
            text.used -= 1
    return 0


cdef int64_t day_of(int64_t micros) noexcept:
    """The day of a time since 1970, downwards."""
    cdef int64_t day = micros // DAY  # C's division: towards zero
    return day - 1 if day * DAY > micros else day


cdef bint is_in_calendar(int64_t day) noexcept:
    return FIRST_DAY <= day <= LAST_DAY


cdef int write_double(Text *text, double value) except -1:
    """Write the shortest digits that are this number."""
    cdef char *digits
    cdef size_t size = 0
    if value != value:
        return write(text, b"NaN", 3)
    if value - value != 0:
        return write(text, b"Infinity", 8) if value > 0 else write(text, b"-Infinity", 9)
    digits = PyOS_double_to_string(value, b"r", 0, 0, NULL)
    while digits[size]:
        size += 1
    try:
        write(text, digits, size)
    finally:
        PyMem_Free(digits)
    return 0
