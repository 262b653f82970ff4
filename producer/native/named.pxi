# Rows that name their table and columns: decode-styles b, t and j of GaussDB and openGauss.
#
# Rows of one shape are the same bytes around other cells.  Python decodes the first one, and says
# what these bytes are and where the cells belong: `producer.sources.gauss.layouts.RowLayout`.


cdef enum Style:
    STYLE_B  # a cell is its length and its bytes
    STYLE_T  # a literal of SQL
    STYLE_J  # a literal of SQL in a string of JSON


cdef enum:
    BUCKETS = 1024  # of layouts; a power of two
    NO_COLUMN = -1
    KEPT_SCRATCH = 4 << 20  # bytes that stay allocated between rows


# ---------------------------------------------------------------- literals
cdef inline bint is_bare(uint8_t character) noexcept:
    """Say whether it may be in a value without quotes."""
    return (
        is_digit(character)
        or c"a" <= (character | 32) <= c"z"
        or character == c"+"
        or character == c"."
        or character == c"-"
    )


cdef const uint8_t *pass_digits(const uint8_t *at, const uint8_t *end) noexcept:
    while at < end and is_digit(at[0]):
        at += 1
    return at


cdef bint is_number(const uint8_t *at, const uint8_t *end) noexcept:
    """Say whether `literals.NUMBER` matches all of it, which is no word."""
    cdef const uint8_t *after
    if at < end and at[0] == c"-":
        at += 1
    after = pass_digits(at, end)
    if after < end and after[0] == c".":
        at = after + 1
        after = pass_digits(at, end)
    if after == at:
        return False
    if after < end and (after[0] | 32) == c"e":
        at = after + 1
        if at < end and (at[0] == c"+" or at[0] == c"-"):
            at += 1
        after = pass_digits(at, end)
        if after == at:
            return False
    return after == end


cdef bint equals(const uint8_t *at, const uint8_t *end, const char *word, size_t size) noexcept:
    return <size_t>(end - at) == size and memcmp(at, word, size) == 0


cdef bint read_bare(const uint8_t *at, const uint8_t *end, Cell *cell) noexcept:
    """Read a value without quotes; False: it is none that `literals.bare` takes."""
    cell.kind, cell.text, cell.size = CELL_TEXT, at, end - at
    if is_number(at, end) or equals(at, end, b"NaN", 3):
        pass
    elif equals(at, end, b"null", 4):
        cell.kind = CELL_NULL
    elif equals(at, end, b"true", 4) or equals(at, end, b"false", 5):
        cell.size = 1
    elif equals(at, end, b"unchanged-toast-datum", 21):
        cell.kind = CELL_UNSENT
    else:  # infinities, too, which are unusual anyhow
        return False
    return True


cdef const uint8_t *read_quoted(
    const uint8_t *at, const uint8_t *end, Cell *cell, Buffer *scratch
) noexcept:
    """Read a string from behind its quote; NULL: it does not end.  `scratch` has room for it."""
    cdef const uint8_t *start = at
    cdef const uint8_t *quote
    cdef uint8_t *out = NULL
    while True:
        quote = <const uint8_t *>memchr(at, c"'", end - at) if at < end else NULL
        if quote == NULL:
            return NULL
        if quote + 1 == end or quote[1] != c"'":
            break
        if out == NULL:
            out = scratch.start + scratch.used
        out = put_bytes(out, start, quote + 1 - start)
        at = start = quote + 2
    cell.kind, cell.text, cell.size = CELL_TEXT, start, quote - start
    if out != NULL:
        out = put_bytes(out, start, quote - start)
        cell.text = scratch.start + scratch.used
        cell.size = out - cell.text
        scratch.used += cell.size
    return quote + 1


cdef const uint8_t *read_literal(
    const uint8_t *at, const uint8_t *end, Cell *cell, Buffer *scratch
) noexcept:
    """Read a value as `literals.LITERAL` does; return its end, or NULL."""
    cdef const uint8_t *start = at
    if at < end and at[0] == c"'":
        return read_quoted(at + 1, end, cell, scratch)
    if end - at >= 2 and at[0] == c"B" and at[1] == c"'":
        at += 2
        start = at
        while at < end and (at[0] == c"0" or at[0] == c"1"):
            at += 1
        cell.kind, cell.text, cell.size = CELL_TEXT, start, at - start
        return at + 1 if at < end and at[0] == c"'" else NULL
    while at < end and is_bare(at[0]):
        at += 1
    return at if read_bare(start, at, cell) else NULL


# ---------------------------------------------------------------- strings of JSON
cdef int unescaped_json(const uint8_t **at, const uint8_t *end) noexcept:
    """The byte that an escape behind a backslash stands for, or -1."""
    cdef uint8_t character
    cdef int high, low
    if at[0] == end:
        return -1
    character = at[0][0]
    at[0] += 1
    if character == c'"' or character == c"\\" or character == c"/":
        return character
    if character == c"n":
        return c"\n"
    if character == c"t":
        return c"\t"
    if character == c"r":
        return c"\r"
    if character == c"b":
        return 8
    if character == c"f":
        return 12
    if character != c"u" or end - at[0] < 4 or at[0][0] != c"0" or at[0][1] != c"0":
        return -1
    high, low = hex_digit(at[0][2]), hex_digit(at[0][3])
    at[0] += 4
    return -1 if high < 0 or low < 0 else high << 4 | low


cdef const uint8_t *read_json(
    const uint8_t *at, const uint8_t *end, Cell *cell, Buffer *scratch
) noexcept:
    """Read a string that holds one literal; return its end, or NULL."""
    cdef const uint8_t *start
    cdef const uint8_t *after
    cdef uint8_t *out = NULL
    cdef int byte
    if at == end or at[0] != c'"':
        return NULL
    at += 1
    start = at
    while True:
        if at == end or at[0] < 0x20:  # a control character is not JSON
            return NULL
        if at[0] == c'"':
            break
        if at[0] != c"\\":
            if out != NULL:
                out[0] = at[0]
                out += 1
            at += 1
            continue
        if out == NULL:
            out = put_bytes(scratch.start + scratch.used, start, at - start)
        at += 1
        byte = unescaped_json(&at, end)
        if byte < 0:
            return NULL
        out[0] = <uint8_t>byte
        out += 1
    after = at
    if out != NULL:
        start = scratch.start + scratch.used
        after = out
        scratch.used += after - start
    return at + 1 if read_literal(start, after, cell, scratch) == after else NULL


cdef const uint8_t *read_sized(const uint8_t *at, const uint8_t *end, Cell *cell) noexcept:
    """Read length and bytes; return the end, or NULL."""
    cdef uint32_t size
    if end - at < 4:
        return NULL
    size = big_endian_32(at)
    at += 4
    cell.kind, cell.text, cell.size = CELL_NULL, at, 0
    if size == 0xFFFFFFFF:
        return at
    if <size_t>(end - at) < size:
        return NULL
    cell.kind, cell.size = CELL_TEXT, size
    return at + size


# ---------------------------------------------------------------- layouts
cdef class Layout:
    """`RowLayout`: bytes that rows of one shape share, and where their cells belong."""

    cdef bytes _constant  # all pieces
    cdef uint8_t *pieces
    cdef size_t *ends  # of each piece
    cdef int32_t *new_at  # by cell: the column, or NO_COLUMN
    cdef int32_t *old_at
    cdef size_t count, width
    cdef uint32_t relation
    cdef uint8_t op, old_kind
    cdef PyObject *following  # of its bucket

    def __cinit__(self, said):
        cdef size_t at, end = 0
        self._constant = b"".join(said.pieces)
        self.pieces = <uint8_t *>PyBytes_AsString(self._constant)
        self.count, self.width = len(said.new), said.width
        if len(said.old) != self.count or len(said.pieces) != self.count + 1:
            raise ValueError(said)
        self.relation = said.relation
        self.op = <uint8_t>ord(said.op)
        self.old_kind = <uint8_t>ord(said.old_kind) if said.old_kind else 0
        self.ends = <size_t *>calloc(self.count + 1, sizeof(size_t))
        self.new_at = <int32_t *>calloc(self.count + 1, sizeof(int32_t))
        self.old_at = <int32_t *>calloc(self.count + 1, sizeof(int32_t))
        if self.ends == NULL or self.new_at == NULL or self.old_at == NULL:
            raise MemoryError
        for at in range(self.count + 1):
            end += len(said.pieces[at])
            self.ends[at] = end
        for at in range(self.count):
            self.new_at[at], self.old_at[at] = said.new[at], said.old[at]
            if max(said.new[at], said.old[at]) >= said.width:
                raise IndexError(said)

    def __dealloc__(self):
        free(self.ends)
        free(self.new_at)
        free(self.old_at)


cdef size_t head_size(Style style, const uint8_t *text, size_t size) noexcept:
    """How many bytes at a row's beginning choose the layouts that are tried."""
    cdef const uint8_t *found
    cdef size_t names
    if style == STYLE_B:  # letter, schema, table
        if size < 3:
            return size
        names = 3 + big_endian_16(text + 1)
        if size < names + 2:
            return size
        names += 2 + big_endian_16(text + names)
        return min(size, names)
    found = <const uint8_t *>memchr(text, c":" if style == STYLE_T else c"[", size) if size else NULL
    return size if found == NULL else found - text


cdef uint32_t bucket_of(const uint8_t *text, size_t size) noexcept:
    cdef uint64_t hashed = size, eight
    while size >= 8:
        memcpy(&eight, text, 8)
        hashed = (hashed ^ eight) * <uint64_t>0x9E3779B97F4A7C15
        hashed ^= hashed >> 32
        text += 8
        size -= 8
    while size:
        hashed = (hashed ^ text[0]) * <uint64_t>0x9E3779B97F4A7C15
        text += 1
        size -= 1
    return <uint32_t>(hashed >> 40) & (BUCKETS - 1)


cdef class Layouts:
    """The layouts of a stream, and the cells of the row that was read last."""

    cdef Style style
    cdef list _all
    cdef PyObject *buckets[BUCKETS]
    cdef Cell *old
    cdef Cell *new
    cdef size_t old_room, new_room
    cdef Buffer scratch

    def __init__(self, str style not None):
        self.style = {"b": STYLE_B, "t": STYLE_T, "j": STYLE_J}[style]
        self._all = []

    def __dealloc__(self):
        free(self.old)
        free(self.new)
        free(self.scratch.start)

    cdef int forget(self) except -1:
        memset(self.buckets, 0, sizeof(self.buckets))
        self._all = []
        return 0

    cdef int learn(self, said) except -1:
        cdef Layout layout = Layout(said)
        cdef uint32_t bucket = self._bucket(
            layout.pieces, layout.ends[0] if layout.count else PyBytes_Size(layout._constant)
        )
        grow(<void **>&self.old, &self.old_room, layout.width, sizeof(Cell))
        grow(<void **>&self.new, &self.new_room, layout.width, sizeof(Cell))
        layout.following = self.buckets[bucket]
        self._all.append(layout)
        self.buckets[bucket] = <PyObject *>layout  # which `_all` keeps alive
        return 0

    cdef void shrink(self) noexcept:
        """Free what a large row took; its cells are not read any more."""
        if self.scratch.room > KEPT_SCRATCH:
            free(self.scratch.start)
            self.scratch.start = NULL
            self.scratch.used = self.scratch.room = 0

    cdef uint32_t _bucket(self, const uint8_t *text, size_t size) noexcept:
        return bucket_of(text, head_size(self.style, text, size))

    cdef PyObject *read(self, const uint8_t *text, size_t size) except? NULL:
        """The layout of a row, whose cells are read; NULL: none is known."""
        cdef PyObject *found = self.buckets[self._bucket(text, size)]
        if found != NULL and self.style != STYLE_B:
            self.scratch.used = 0
            make_room(&self.scratch, 2 * size)  # each cell may be unescaped twice
        while found != NULL:
            if self._fits(<Layout>found, text, size):
                return found
            found = (<Layout>found).following
        return NULL

    cdef bint _fits(self, Layout layout, const uint8_t *text, size_t size) noexcept:
        cdef const uint8_t *end = text + size
        cdef size_t at, start = 0, length
        cdef Cell cell
        self.scratch.used = 0
        if layout.old_kind:
            for at in range(layout.width):
                self.old[at].kind = CELL_NULL  # where nothing is sent
        for at in range(layout.count + 1):
            length = layout.ends[at] - start
            if <size_t>(end - text) < length or memcmp(text, layout.pieces + start, length) != 0:
                return False
            text += length
            start = layout.ends[at]
            if at == layout.count:
                break
            if self.style == STYLE_B:
                text = read_sized(text, end, &cell)
            elif self.style == STYLE_T:
                text = read_literal(text, end, &cell, &self.scratch)
            else:
                text = read_json(text, end, &cell, &self.scratch)
            if text == NULL:
                return False
            if layout.new_at[at] >= 0:
                self.new[layout.new_at[at]] = cell
            elif layout.old_at[at] >= 0:
                self.old[layout.old_at[at]] = cell
        return text == end
