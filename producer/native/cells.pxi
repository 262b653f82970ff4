# Cells: the text of a value to its Avro, by the opcodes of `core.records.row_plan`.
#
# `core.records.reference` defines the bytes.  What it accepts and this does not is unusual:
# Python takes the row.  Nothing here raises for a text, and no byte is read behind its end.

from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from cpython.object cimport PyObject
from libc.string cimport memcmp, memset

cdef extern from "Python.h":
    # Of the stable interface, and of no locale.
    double PyOS_string_to_double(const char *text, char **end, PyObject *overflow) except? -1.0


cdef enum Opcode:
    OPCODE_BOOL
    OPCODE_INT2
    OPCODE_INT4
    OPCODE_INT8
    OPCODE_TEXT
    OPCODE_BYTEA
    OPCODE_DATE
    OPCODE_FLOAT8
    OPCODE_DECIMAL
    OPCODE_VARIABLE
    OPCODE_TIMESTAMPTZ
    OPCODE_MICROS
    OPCODE_MILLIS
    OPCODE_PYTHON


cdef dict _OPCODES = {
    "bool": OPCODE_BOOL,
    "int2": OPCODE_INT2,
    "int4": OPCODE_INT4,
    "int8": OPCODE_INT8,
    "text": OPCODE_TEXT,
    "bytea": OPCODE_BYTEA,
    "date": OPCODE_DATE,
    "float8": OPCODE_FLOAT8,
    "decimal": OPCODE_DECIMAL,
    "variable": OPCODE_VARIABLE,
    "timestamptz": OPCODE_TIMESTAMPTZ,
    "micros": OPCODE_MICROS,
    "millis": OPCODE_MILLIS,
    "python": OPCODE_PYTHON,
}


cdef struct Span:
    const uint8_t *start
    size_t size


cdef Span span_of(bytes source):
    """What an object holds, which must outlive it."""
    return Span(<const uint8_t *>PyBytes_AsString(source), PyBytes_Size(source))


cdef struct Column:
    Opcode opcode
    bint is_nullable
    bint in_old_key
    uint32_t precision  # of a decimal
    uint32_t scale  # of a decimal; digits of a timestamptz' fraction
    Span absent
    Span unsent
    Span name
    PyObject *write  # of the plan; NULL: there is an opcode
    PyObject *exact  # of the plan


cdef struct Buffer:
    uint8_t *start
    size_t used
    size_t room


cdef enum:
    MOST_DIGITS = 1000  # of a number; one that is longer is left to Python
    MOST_CHARACTERS = 1002  # of a number, with sign and point
    MOST_LIMBS = 104  # of 32 bits: 10**1000 has 3322 bits
    MOST_FLOAT_CHARACTERS = 63
    MOST_VARINT_BYTES = 10


# ---------------------------------------------------------------- bytes
cdef inline int make_room(Buffer *buffer, size_t more) except -1:
    """Make room for `more` bytes behind what is used."""
    if buffer.room - buffer.used < more:
        grow(<void **>&buffer.start, &buffer.room, buffer.used + more, sizeof(uint8_t))
    return 0


cdef inline uint8_t *put_varint(uint8_t *out, uint64_t zigzag) noexcept:
    """Write Avro's variable length bytes of a zigzag number, at most 10."""
    while zigzag > 127:
        out[0] = <uint8_t>(zigzag & 127 | 128)
        zigzag >>= 7
        out += 1
    out[0] = <uint8_t>zigzag
    return out + 1


cdef inline uint8_t *put_long(uint8_t *out, int64_t number) noexcept:
    """Write an Avro int or long."""
    cdef uint64_t zigzag = <uint64_t>number << 1
    return put_varint(out, zigzag if number >= 0 else ~zigzag)


cdef inline uint8_t *put_bytes(uint8_t *out, const void *source, size_t size) noexcept nogil:
    memcpy(out, source, size)
    return out + size


cdef inline int add_bytes(Buffer *buffer, const void *source, size_t size) except -1:
    """Append bytes as they are."""
    if size:  # a buffer that was never written has no place
        make_room(buffer, size)
        memcpy(buffer.start + buffer.used, source, size)
        buffer.used += size
    return 0


cdef inline int add_span(Buffer *buffer, Span *span) except -1:
    return add_bytes(buffer, span.start, span.size)


cdef inline int add_byte(Buffer *buffer, uint8_t byte) except -1:
    make_room(buffer, 1)
    buffer.start[buffer.used] = byte
    buffer.used += 1
    return 0


cdef inline int add_long(Buffer *buffer, uint64_t zigzag) except -1:
    make_room(buffer, MOST_VARINT_BYTES)
    buffer.used = put_varint(buffer.start + buffer.used, zigzag) - buffer.start
    return 0


# ---------------------------------------------------------------- one cell
cdef bint add_cell(Buffer *buffer, Column *column, const uint8_t *text, size_t size) except -1:
    """Append a value as Avro of its column, union included; False: it is unusual."""
    if column.is_nullable:
        add_byte(buffer, 2)
    if column.opcode == OPCODE_INT4:
        return add_integer(buffer, text, size, <uint64_t>1 << 32)
    elif column.opcode == OPCODE_TEXT:
        return add_text(buffer, text, size)
    elif column.opcode == OPCODE_INT8:
        return add_integer(buffer, text, size, 0)
    elif column.opcode == OPCODE_TIMESTAMPTZ:
        return add_timestamptz(buffer, text, size, column.scale)
    elif column.opcode == OPCODE_DECIMAL:
        return add_decimal(buffer, text, size, column.precision, column.scale)
    elif column.opcode == OPCODE_BOOL:
        return add_bool(buffer, text, size)
    elif column.opcode == OPCODE_MICROS:
        return add_timestamp(buffer, text, size, 1)
    elif column.opcode == OPCODE_MILLIS:
        return add_timestamp(buffer, text, size, 1000)
    elif column.opcode == OPCODE_DATE:
        return add_date(buffer, text, size)
    elif column.opcode == OPCODE_INT2:
        return add_integer(buffer, text, size, <uint64_t>1 << 16)
    elif column.opcode == OPCODE_VARIABLE:
        return add_variable(buffer, text, size)
    elif column.opcode == OPCODE_FLOAT8:
        return add_float8(buffer, text, size)
    elif column.opcode == OPCODE_BYTEA:
        return add_bytea(buffer, text, size)
    elif column.opcode == OPCODE_PYTHON:
        return add_by_python(buffer, column, text, size)
    return False


cdef bint add_by_python(
    Buffer *buffer, Column *column, const uint8_t *text, size_t size
) except -1:
    """Append what a function of the plan makes of a cell."""
    try:
        value = (<object>column.write)(text[:size])
    except Exception:  # Python takes the row, and says what it is
        return False
    add_bytes(buffer, <const void *>PyBytes_AsString(value), PyBytes_Size(value))
    return True


cdef inline bint add_bool(Buffer *buffer, const uint8_t *text, size_t size) except -1:
    if size != 1 or text[0] != c"t" and text[0] != c"f":
        return False
    add_byte(buffer, text[0] == c"t")
    return True


# ---------------------------------------------------------------- numbers
cdef inline bint is_digit(uint8_t character) noexcept:
    return c"0" <= character <= c"9"


cdef bint add_integer(
    Buffer *buffer, const uint8_t *text, size_t size, uint64_t limit
) except -1:
    """Append an int or long; `limit`: its zigzag number is below it, 0: 64 bits."""
    cdef bint is_negative = size > 0 and text[0] == c"-"
    cdef size_t at = is_negative
    cdef uint64_t number = 0, zigzag
    if size == at or size - at > 19:  # 19 digits are below 2**64
        return False
    while at < size:
        if not is_digit(text[at]):
            return False
        number = 10 * number + (text[at] - c"0")
        at += 1
    if is_negative and number:
        number -= 1
        zigzag = 2 * number + 1
    else:
        zigzag = 2 * number
    if number >> 63 or limit and zigzag >= limit:
        return False
    add_long(buffer, zigzag)
    return True


cdef struct Digits:
    uint8_t digits[MOST_DIGITS]  # 0..9, without leading zeros
    size_t count


cdef bint collect(Digits *number, const uint8_t *text, size_t size) noexcept:
    """Append digits; False: other characters, or too many."""
    cdef size_t at
    for at in range(size):
        if not is_digit(text[at]):
            return False
        if text[at] == c"0" and not number.count:
            continue
        if number.count == MOST_DIGITS:
            return False
        number.digits[number.count] = text[at] - c"0"
        number.count += 1
    return True


cdef int add_unscaled(Buffer *buffer, Digits *number, bint is_negative) except -1:
    """Append the shortest two's complement, as Avro bytes: `schemas.types.numeric.unscaled`."""
    cdef uint32_t limbs[MOST_LIMBS]  # the lowest first
    cdef size_t limb_count = 2, at, limb, size
    cdef uint64_t carry
    cdef uint8_t flip = 0, top
    cdef uint8_t *out
    carry = 0
    for at in range(min(number.count, <size_t>19)):  # 19 digits are below 2**64
        carry = 10 * carry + number.digits[at]
    limbs[0], limbs[1] = <uint32_t>carry, <uint32_t>(carry >> 32)
    for at in range(19, number.count):
        carry = number.digits[at]
        for limb in range(limb_count):
            carry += 10 * <uint64_t>limbs[limb]
            limbs[limb] = <uint32_t>carry
            carry >>= 32
        if carry:
            limbs[limb_count] = <uint32_t>carry
            limb_count += 1
    if is_negative and number.count:  # -n is ~(n - 1)
        flip = 0xFF
        limb = 0
        while limbs[limb] == 0:
            limbs[limb] = 0xFFFFFFFF
            limb += 1
        limbs[limb] -= 1
    size = 4 * limb_count
    while size > 1 and byte_of(limbs, size - 1) == 0:
        size -= 1
    if byte_of(limbs, size - 1) & 0x80:  # the first bit is the sign
        size += 1
    make_room(buffer, MOST_VARINT_BYTES + size)
    out = put_varint(buffer.start + buffer.used, 2 * size)
    while size:
        size -= 1
        top = byte_of(limbs, size) if size < 4 * limb_count else 0
        out[0] = top ^ flip
        out += 1
    buffer.used = out - buffer.start
    return 0


cdef inline uint8_t byte_of(const uint32_t *limbs, size_t at) noexcept:
    """The byte of a number at a place, from the lowest."""
    return <uint8_t>(limbs[at >> 2] >> 8 * (at & 3))


cdef bint add_decimal(
    Buffer *buffer, const uint8_t *text, size_t size, uint32_t precision, uint32_t scale
) except -1:
    """Append a number that is printed with as many digits behind the point as its column has."""
    cdef Digits number
    cdef bint is_negative = size > 0 and text[0] == c"-"
    cdef size_t whole  # digits before the point; openGauss writes none for a number below 1
    if size > MOST_CHARACTERS:
        return False
    if is_negative:
        text, size = text + 1, size - 1
    number.count = 0
    if scale:
        if size < <size_t>scale + 1:
            return False
        whole = size - scale - 1
        if text[whole] != c".":
            return False
        if not collect(&number, text, whole) or not collect(&number, text + whole + 1, scale):
            return False
    elif not size or not collect(&number, text, size):
        return False
    if number.count > precision:
        return False
    add_unscaled(buffer, &number, is_negative)
    return True


cdef bint add_variable(Buffer *buffer, const uint8_t *text, size_t size) except -1:
    """Append a number with its own scale."""
    cdef Digits number
    cdef bint is_negative = size > 0 and text[0] == c"-"
    cdef size_t whole = 0, scale
    if size > MOST_CHARACTERS:
        return False
    if is_negative:
        text, size = text + 1, size - 1
    while whole < size and text[whole] != c".":
        whole += 1
    scale = size - whole - 1 if whole < size else 0
    if not size or whole < size and not scale:
        return False
    number.count = 0
    if not collect(&number, text, whole) or not collect(&number, text + size - scale, scale):
        return False
    add_long(buffer, 2 * scale)
    add_unscaled(buffer, &number, is_negative)
    return True


cdef bint add_float8(Buffer *buffer, const uint8_t *text, size_t size) except -1:
    """Append a finite double, printed as digits with a point and an exponent, or without."""
    cdef char number[MOST_FLOAT_CHARACTERS + 1]
    cdef double value
    cdef uint64_t bits
    cdef size_t at
    if not 0 < size <= MOST_FLOAT_CHARACTERS:
        return False
    for at in range(size):
        if not is_digit(text[at]) and text[at] not in b"+-.e":
            return False
        number[at] = <char>text[at]
    number[size] = 0
    try:
        value = PyOS_string_to_double(number, NULL, NULL)  # the whole text, or ValueError
    except ValueError:
        return False
    memcpy(&bits, &value, sizeof(bits))
    if bits >> 52 & 0x7FF == 0x7FF:  # infinity: printed with too few digits
        return False
    make_room(buffer, 8)
    for at in range(8):  # little-endian
        buffer.start[buffer.used + at] = <uint8_t>(bits >> 8 * at)
    buffer.used += 8
    return True


# ---------------------------------------------------------------- texts and bytes
cdef bint add_text(Buffer *buffer, const uint8_t *text, size_t size) except -1:
    if not is_utf8(text, size):
        return False
    make_room(buffer, MOST_VARINT_BYTES + size)
    buffer.used = (
        put_bytes(put_varint(buffer.start + buffer.used, 2 * size), text, size) - buffer.start
    )
    return True


cdef bint is_utf8(const uint8_t *text, size_t size) noexcept:
    """Say whether Python decodes it: no surrogates, no longer forms than needed."""
    cdef uint64_t eight
    cdef size_t at = 0, more, end
    cdef uint8_t first
    while at < size:
        if size - at >= 8:
            memcpy(&eight, text + at, 8)
            if not eight & <uint64_t>0x8080808080808080:
                at += 8
                continue
        first = text[at]
        at += 1
        if first < 0x80:
            continue
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
        elif 0xF0 <= first <= 0xF4:
            more = 3
        else:
            return False
        if size - at < more:
            return False
        # Of the second byte: longer forms than needed, surrogates, above 0x10FFFF.
        if first == 0xE0 and text[at] < 0xA0 or first == 0xED and text[at] > 0x9F:
            return False
        if first == 0xF0 and text[at] < 0x90 or first == 0xF4 and text[at] > 0x8F:
            return False
        end = at + more
        while at < end:
            if text[at] & 0xC0 != 0x80:
                return False
            at += 1
    return True


cdef bint add_bytea(Buffer *buffer, const uint8_t *text, size_t size) except -1:
    r"""Append what `\x` and hex digits say."""
    cdef int high, low
    cdef size_t at
    cdef uint8_t *out
    if size < 2 or size & 1 or text[0] != c"\\" or text[1] != c"x":
        return False
    size = size // 2 - 1
    make_room(buffer, MOST_VARINT_BYTES + size)
    out = put_varint(buffer.start + buffer.used, 2 * size)
    text += 2
    for at in range(size):
        high, low = hex_digit(text[2 * at]), hex_digit(text[2 * at + 1])
        if high < 0 or low < 0:
            return False
        out[at] = <uint8_t>(high << 4 | low)
    buffer.used = out + size - buffer.start
    return True


cdef inline int hex_digit(uint8_t character) noexcept:
    if is_digit(character):
        return character - c"0"
    if c"a" <= character <= c"f":
        return character - c"a" + 10
    if c"A" <= character <= c"F":
        return character - c"A" + 10
    return -1


# ---------------------------------------------------------------- times
cdef inline int two_digits(const uint8_t *text) noexcept:
    """The number of two digits, or -1."""
    if not is_digit(text[0]) or not is_digit(text[1]):
        return -1
    return 10 * (text[0] - c"0") + text[1] - c"0"


cdef bint read_date(const uint8_t *text, int64_t *days) noexcept:
    """Read ten characters `YYYY-MM-DD` as days since 1970; False: no day of years 1..9999."""
    cdef int century = two_digits(text), rest = two_digits(text + 2)
    cdef int month = two_digits(text + 5), day = two_digits(text + 8)
    cdef int year, leap, last
    if century < 0 or rest < 0 or text[4] != c"-" or text[7] != c"-":
        return False
    year = 100 * century + rest
    if year < 1 or not 1 <= month <= 12:
        return False
    leap = year & 3 == 0 and (rest != 0 or century & 3 == 0)
    last = 28 + leap if month == 2 else 30 + (month + (month >> 3) & 1)
    if not 1 <= day <= last:
        return False
    # Years begin in March here: a leap day is the last one of its year.
    cdef uint32_t shifted = year - (month <= 2)
    cdef uint32_t since_march = (153 * <uint32_t>((month + 9) % 12) + 2) // 5 + day - 1
    days[0] = <int64_t>(365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + since_march)
    days[0] -= 719_468
    return True


cdef bint read_clock(const uint8_t *text, size_t size, int64_t *micros) noexcept:
    """Read `HH:MM:SS` with a fraction of at most six digits, or without one."""
    cdef int hour, minute, second
    cdef int64_t fraction = 0
    cdef size_t at
    if size < 8 or size == 9 or size > 15:
        return False
    hour, minute, second = two_digits(text), two_digits(text + 3), two_digits(text + 6)
    if text[2] != c":" or text[5] != c":":
        return False
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return False
    if size > 8 and text[8] != c".":
        return False
    for at in range(9, 15):
        fraction *= 10
        if at < size:
            if not is_digit(text[at]):
                return False
            fraction += text[at] - c"0"
    micros[0] = 1_000_000 * <int64_t>(3600 * hour + 60 * minute + second) + fraction
    return True


cdef bint add_date(Buffer *buffer, const uint8_t *text, size_t size) except -1:
    cdef int64_t days
    if size != 10 or not read_date(text, &days):
        return False
    make_room(buffer, MOST_VARINT_BYTES)
    buffer.used = put_long(buffer.start + buffer.used, days) - buffer.start
    return True


cdef bint add_timestamp(
    Buffer *buffer, const uint8_t *text, size_t size, int64_t unit
) except -1:
    """Append a timestamp in units of some µs; False: it has a part of one, too."""
    cdef int64_t days, micros
    if size < 19 or text[10] != c" ":
        return False
    if not read_date(text, &days) or not read_clock(text + 11, size - 11, &micros):
        return False
    if micros % unit:
        return False
    # A day has a whole number of units: nothing is rounded where the number is negative.
    micros = days * (86_400_000_000 // unit) + micros // unit
    make_room(buffer, MOST_VARINT_BYTES)
    buffer.used = put_long(buffer.start + buffer.used, micros) - buffer.start
    return True


cdef bint add_timestamptz(
    Buffer *buffer, const uint8_t *text, size_t size, uint32_t digits
) except -1:
    """Append a timestamp of UTC as ISO text with that many digits behind the point."""
    cdef int64_t days, micros
    cdef size_t seen, written = 20 + digits + (digits > 0)
    cdef uint8_t *out
    if size < 22 or text[10] != c" " or memcmp(text + size - 3, b"+00", 3) != 0:
        return False
    if not read_date(text, &days) or not read_clock(text + 11, size - 14, &micros):
        return False
    seen = size - 23 if size > 22 else 0  # the server writes no zeros at the end
    if seen > digits:
        return False
    make_room(buffer, MOST_VARINT_BYTES + written)
    out = put_varint(buffer.start + buffer.used, 2 * written)
    memcpy(out, text, size - 3)
    out[10] = c"T"
    if digits:
        out[19] = c"."
        memset(out + 20 + seen, c"0", digits - seen)
    out[written - 1] = c"Z"
    buffer.used = out + written - buffer.start
    return True
