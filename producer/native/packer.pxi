# Records of Kafka's record batches, by partition: `kafka.direct.records`; `PlainPacker` defines
# what it does.  Rows of a batch are written without the GIL.


cdef struct OpenRecords:
    Buffer records
    uint32_t count
    int64_t first_ms
    int64_t last_ms


cdef struct Packed:
    # What a record is made of: headers are encoded.
    Octets key, value, headers
    uint32_t header_count


cdef class Packer:
    """`kafka.direct.records.Packer`; see there."""

    cdef readonly Places places
    cdef readonly size_t size  # bytes of what was not taken
    cdef size_t _batch_bytes
    cdef OpenRecords *_open  # by number of the place
    cdef size_t _open_room
    cdef list _full

    def __cinit__(self, Places places not None, size_t batch_bytes):
        self.places, self._batch_bytes, self._full = places, batch_bytes, []

    def __dealloc__(self):
        cdef size_t at
        for at in range(self._open_room):
            free(self._open[at].records.start)
        free(self._open)

    def add(self, records, size_t start, size_t room, int64_t now_ms):
        """Take records from `start` on while `size` is below `room`; return the first one left."""
        if isinstance(records, Batch):
            return self._add_batch(records, start, room, now_ms)
        return self._add_list(records, start, room, now_ms)

    def seal(self):
        """Call what is open full."""
        cdef size_t place
        for place in range(self._open_room):
            if self._open[place].count:
                self._seal(place)

    def take(self):
        """Return what is full: (topic, partition, how many, their bytes, ms of the first, of the last)."""
        full, self._full = self._full, []
        for one in full:
            self.size -= len(one[3])
        return full

    cdef int _know(self, int32_t place) except -1:
        """Have room for records of a place."""
        cdef size_t known = self._open_room
        if not 0 <= place < len(self.places.names):
            raise IndexError(place)
        if <size_t>place >= known:
            grow(<void **>&self._open, &self._open_room, place + 1, sizeof(OpenRecords))
            memset(self._open + known, 0, (self._open_room - known) * sizeof(OpenRecords))
        return 0

    cdef int _seal(self, size_t place) except -1:
        cdef OpenRecords *open_ = &self._open[place]
        cdef object made = (<char *>open_.records.start)[:open_.records.used]
        topic, partition = self.places.names[place]
        self._full.append((topic, partition, open_.count, made, open_.first_ms, open_.last_ms))
        open_.records.used = open_.count = 0
        return 0

    cdef int _add_list(self, records, size_t start, size_t room, int64_t now_ms) except? -1:
        cdef size_t at
        cdef int32_t place
        cdef Packed packed
        cdef bytes headers
        for at in range(start, len(records)):
            if self.size >= room:
                return at
            topic, partition, key, value, named = records[at]
            place = self.places.number(topic, partition)
            self._know(place)
            headers = packed_headers(named)
            packed.key, packed.value, packed.headers = octets_of(key), octets_of(value), octets_of(headers)
            packed.header_count = len(named)
            self._add(place, &packed, now_ms)
        return len(records)

    cdef int _add_batch(self, Batch batch, size_t start, size_t room, int64_t now_ms) except? -1:
        cdef size_t at = start, key
        cdef size_t key_count = len(batch.keys)
        cdef Octets *keys
        cdef Row *row
        cdef uint32_t current = 0
        cdef RowHeaders headers
        cdef Packed packed
        if batch.places is not self.places:
            raise ValueError("a batch with other numbers of places")
        if start >= batch.row_count:
            return batch.row_count
        keys = <Octets *>malloc(max(key_count, 1) * sizeof(Octets))
        if keys == NULL:
            raise MemoryError
        packed.headers.at = headers.at
        try:
            for key in range(key_count):
                keys[key] = octets_of(batch.keys[key])
            with nogil:
                for at in range(start, batch.row_count):
                    if self.size >= room:
                        break
                    row = &batch.rows[at]
                    if not is_inside(batch, row, key_count):
                        with gil:
                            raise IndexError(at)
                    if not 0 <= row.place < <int64_t>self._open_room:
                        with gil:
                            self._know(row.place)
                    if at == start or row.transaction != current:
                        current = row.transaction
                        begin_headers(&headers, batch.epoch, &batch.transactions_[current])
                        packed.header_count = 4 if headers.texts.csn.size else 3
                    packed.headers.size = end_headers(&headers, row)
                    packed.key = keys[row.key]
                    packed.value.at = <const char *>batch.arena + row.value
                    packed.value.size = row.size
                    if row.is_tombstone:
                        packed.value.at = NULL
                    self._add(row.place, &packed, now_ms)
                else:
                    at = batch.row_count
        finally:
            free(keys)
        return at

    cdef int _add(self, int32_t place, Packed *packed, int64_t now_ms) except -1 nogil:
        """Append a record to those of a place, or to new ones."""
        cdef OpenRecords *open_ = &self._open[place]
        cdef uint8_t *out
        cdef size_t body, most
        body = size_of_body(open_, packed, now_ms)
        most = body + MOST_VARINT_BYTES
        if open_.count and open_.records.used + most > self._batch_bytes:
            with gil:
                self._seal(place)
        if not open_.count:
            open_.first_ms = now_ms
        open_.last_ms = now_ms
        body = size_of_body(open_, packed, now_ms)
        if open_.records.room - open_.records.used < most:
            with gil:
                grow(<void **>&open_.records.start, &open_.records.room, open_.records.used + most, 1)
        out = open_.records.start + open_.records.used
        out = put_signed(out, body)
        out[0] = 0  # attributes: none are defined
        out = put_signed(out + 1, now_ms - open_.first_ms)
        out = put_signed(out, open_.count)
        out = put_octets(out, &packed.key)
        out = put_octets(out, &packed.value)
        out = put_signed(out, packed.header_count)
        out = put_bytes(out, packed.headers.at, packed.headers.size)
        self.size += out - open_.records.start - open_.records.used
        open_.records.used = out - open_.records.start
        open_.count += 1
        return 0


cdef size_t size_of_body(OpenRecords *open_, Packed *packed, int64_t now_ms) noexcept nogil:
    """How long a record will be behind its length."""
    return (
        1
        + signed_size(now_ms - open_.first_ms if open_.count else 0)
        + signed_size(open_.count)
        + octets_size(&packed.key)
        + octets_size(&packed.value)
        + signed_size(packed.header_count)
        + packed.headers.size
    )


cdef inline uint8_t *put_signed(uint8_t *out, int64_t number) noexcept nogil:
    """Write a number as Kafka's VARLONG, which is Avro's."""
    cdef uint64_t zigzag = <uint64_t>number << 1
    if number < 0:
        zigzag = ~zigzag
    while zigzag > 127:
        out[0] = <uint8_t>(zigzag & 127 | 128)
        zigzag >>= 7
        out += 1
    out[0] = <uint8_t>zigzag
    return out + 1


cdef inline size_t signed_size(int64_t number) noexcept nogil:
    """Bytes of a VARLONG."""
    cdef uint64_t zigzag = <uint64_t>number << 1
    cdef size_t size = 1
    if number < 0:
        zigzag = ~zigzag
    while zigzag > 127:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint8_t *put_octets(uint8_t *out, Octets *octets) noexcept nogil:
    """Write bytes behind their number; -1: there are none."""
    if octets.at == NULL:
        return put_signed(out, -1)
    out = put_signed(out, octets.size)
    return put_bytes(out, octets.at, octets.size)


cdef inline size_t octets_size(Octets *octets) noexcept nogil:
    if octets.at == NULL:
        return 1
    return signed_size(octets.size) + octets.size


# ---------------------------------------------------------------- headers
cdef struct RowHeaders:
    uint8_t at[256]  # four names, and their texts
    size_t constant  # what a transaction makes constant
    TransactionTexts texts


cdef void begin_headers(RowHeaders *headers, uint64_t epoch, Transaction *tx) noexcept nogil:
    cdef uint8_t *out = headers.at
    write_transaction(&headers.texts, epoch, tx)
    out = put_header(out, b"xid", 3, &headers.texts.xid)
    if headers.texts.csn.size:
        out = put_header(out, b"csn", 3, &headers.texts.csn)
    headers.constant = out - headers.at


cdef size_t end_headers(RowHeaders *headers, Row *row) noexcept nogil:
    """Write what belongs to a row, in the order of `Batch._record`; return how long all are."""
    cdef HeaderText lsn
    cdef int size = headers.texts.position.size
    cdef uint8_t *out = headers.at + headers.constant
    lsn.size = 0
    print_hexadecimal(&lsn, <uint32_t>(row.lsn >> 32))
    print_slash(&lsn)
    print_hexadecimal(&lsn, <uint32_t>row.lsn)
    print_decimal(&headers.texts.position, row.ordinal)
    out = put_header(out, b"lsn", 3, &lsn)
    out = put_header(out, b"position", 8, &headers.texts.position)
    headers.texts.position.size = size
    return out - headers.at


cdef uint8_t *put_header(uint8_t *out, const char *name, size_t size, HeaderText *text) noexcept nogil:
    out = put_signed(out, size)
    out = put_bytes(out, name, size)
    out = put_signed(out, text.size)
    return put_bytes(out, text.at, text.size)


cdef bytes packed_headers(list headers):
    """Headers as they stand in a record, without their number."""
    cdef Buffer made
    cdef bytes name
    made.start, made.used, made.room = NULL, 0, 0
    try:
        for text, value in headers:
            name = text.encode()
            for part in (name, value):
                add_long(&made, 2 * <uint64_t>len(part))
                add_bytes(&made, <const char *>part, len(part))
        return (<char *>made.start)[:made.used] if made.used else b""
    finally:
        free(made.start)


# ---------------------------------------------------------------- CRC-32C
cdef uint32_t CRC_TABLES[8][256]  # of a byte, with 0 to 7 zero bytes behind it
cdef bint has_tables = False


cdef void fill_tables() noexcept:
    global has_tables
    cdef uint32_t crc
    cdef int at, bit, behind
    for at in range(256):
        crc = at
        for bit in range(8):
            crc = crc >> 1 ^ (<uint32_t>0x82F63B78 if crc & 1 else 0)
        CRC_TABLES[0][at] = crc
    for behind in range(1, 8):
        for at in range(256):
            crc = CRC_TABLES[behind - 1][at]
            CRC_TABLES[behind][at] = crc >> 8 ^ CRC_TABLES[0][crc & 255]
    has_tables = True


cdef uint32_t crc_of(const uint8_t *data, size_t size, uint32_t crc) noexcept nogil:
    """Eight bytes at a time."""
    while size >= 8:
        crc ^= data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        crc = (
            CRC_TABLES[7][crc & 255] ^ CRC_TABLES[6][crc >> 8 & 255]
            ^ CRC_TABLES[5][crc >> 16 & 255] ^ CRC_TABLES[4][crc >> 24]
            ^ CRC_TABLES[3][data[4]] ^ CRC_TABLES[2][data[5]]
            ^ CRC_TABLES[1][data[6]] ^ CRC_TABLES[0][data[7]]
        )
        data += 8
        size -= 8
    while size:
        crc = crc >> 8 ^ CRC_TABLES[0][(crc ^ data[0]) & 255]
        data += 1
        size -= 1
    return crc


def crc32c(bytes data not None, uint32_t before=0):
    """CRC-32C of bytes that follow others, whose CRC is `before`."""
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AsString(data)
    cdef size_t size = PyBytes_Size(data)
    cdef uint32_t crc
    if not has_tables:
        fill_tables()
    with nogil:
        crc = ~crc_of(start, size, ~before)
    return crc
