# Finished records of many rows, and which source transactions they belong to.
#
# The walker fills a batch, the tally counts it, the writer produces it.  As a sequence of
# Python records (`core.events.Record`) it is what Python would have made of the same messages.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from producer.core.events import TransactionEnded
from schemas.headers import POSITION, transaction_headers


cdef class Places:
    """Numbers of (topic, partition); one object for all parts of a turn."""

    cdef readonly list names  # number -> (topic, partition)
    cdef dict _numbers

    def __init__(self):
        self.names, self._numbers = [], {}

    cpdef int32_t number(self, str topic, int32_t partition) except -1:
        """The number of a place, which is new or known."""
        place = topic, partition
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self.names)
            self.names.append(place)
        return found


cdef struct Row:
    size_t value  # where its value begins in `arena`
    uint32_t size
    int32_t place
    int32_t key  # index of `keys`
    bint is_tombstone  # without a value
    uint32_t transaction  # index of `transactions_`
    uint64_t ordinal
    uint64_t lsn


cdef struct Transaction:
    uint64_t seq
    uint64_t csn
    uint64_t commit_start
    uint64_t end_lsn  # 0: its COMMIT is not here
    int64_t committed_at  # µs since 1970
    uint64_t rows  # ordinals 0..rows-1; of one that is complete
    uint64_t xid
    uint32_t first_count  # its records here, in `counts`, in order of first use
    uint32_t number_of_counts


cdef struct Count:
    int32_t place
    uint32_t records


cdef int grow(void **block, size_t *capacity, size_t wanted, size_t item) except -1:
    """Make room for `wanted` items."""
    cdef size_t more
    cdef void *moved
    if wanted <= capacity[0]:
        return 0
    more = max(wanted, 2 * capacity[0], <size_t>64)
    moved = realloc(block[0], more * item)
    if moved == NULL:
        raise MemoryError
    block[0] = moved
    capacity[0] = more
    return 0


cdef class Batch:
    """`core.events.Batch`; see there."""

    cdef readonly Places places
    cdef readonly size_t size  # bytes of keys and values
    cdef readonly uint64_t epoch
    cdef list keys  # bytes, or None
    cdef uint8_t *arena
    cdef size_t arena_used, arena_room
    cdef Row *rows
    cdef size_t row_count, row_room
    cdef Transaction *transactions_
    cdef size_t transaction_count, transaction_room
    cdef Count *counts
    cdef size_t count_count, count_room

    def __cinit__(self, Places places, uint64_t epoch):
        self.places, self.epoch = places, epoch
        self.keys = []

    def __dealloc__(self):
        free(self.arena)
        free(self.rows)
        free(self.transactions_)
        free(self.counts)

    def __len__(self):
        return self.row_count

    def __getitem__(self, at):
        cdef Py_ssize_t index = at
        if index < 0:
            index += self.row_count
        if not 0 <= index < <Py_ssize_t>self.row_count:
            raise IndexError(at)
        return self._record(&self.rows[index])

    def __iter__(self):
        cdef size_t at
        for at in range(self.row_count):
            yield self._record(&self.rows[at])

    cdef object _record(self, Row *row):
        cdef Transaction *tx = &self.transactions_[row.transaction]
        topic, partition = self.places.names[row.place]
        value = None if row.is_tombstone else self.arena[row.value:row.value + row.size]
        lsn = b"%X/%X" % (row.lsn >> 32, row.lsn & 0xFFFFFFFF)
        position = b"%d/%d/%d" % (self.epoch, tx.seq, row.ordinal)
        headers = [*transaction_headers(tx.xid, tx.csn), ("lsn", lsn), (POSITION, position)]
        return topic, partition, self.keys[row.key], value, headers

    # ------------------------------------------------------------ for those who fill it
    cdef int append(
        self,
        uint32_t transaction,
        int32_t place,
        int32_t key,
        const uint8_t *value,
        size_t size,
        uint64_t ordinal,
        uint64_t lsn,
    ) except -1:
        """Add a record; its key is not counted in `size`, and nothing in `counts`."""
        cdef Row *row
        grow(<void **>&self.rows, &self.row_room, self.row_count + 1, sizeof(Row))
        grow(<void **>&self.arena, &self.arena_room, self.arena_used + size + 1, 1)
        row = &self.rows[self.row_count]
        row.value, row.size, row.is_tombstone = self.arena_used, <uint32_t>size, False
        row.place, row.key, row.transaction = place, key, transaction
        row.ordinal, row.lsn = ordinal, lsn
        if size:
            memcpy(self.arena + self.arena_used, value, size)
        self.arena_used += size
        self.size += size
        self.row_count += 1
        return 0

    cdef int count(self, uint32_t transaction, int32_t place) except -1:
        """Count a record of the last transaction, or of one whose counts are the last."""
        cdef Transaction *tx = &self.transactions_[transaction]
        cdef size_t at
        for at in range(tx.first_count, tx.first_count + tx.number_of_counts):
            if self.counts[at].place == place:
                self.counts[at].records += 1
                return 0
        at = self.count_count
        grow(<void **>&self.counts, &self.count_room, at + 1, sizeof(Count))
        self.counts[at].place, self.counts[at].records = place, 1
        if not tx.number_of_counts:
            tx.first_count = <uint32_t>at
        tx.number_of_counts += 1
        self.count_count += 1
        return 0

    @property
    def topics(self):
        """The topics of its records."""
        cdef size_t at
        found = {self.places.names[self.counts[at].place][0]: None for at in range(self.count_count)}
        return tuple(found)

    def sizes(self):
        """Bytes of values by topic."""
        cdef size_t at, count = len(self.places.names)
        cdef uint64_t *sizes = <uint64_t *>calloc(max(count, <size_t>1), sizeof(uint64_t))
        if sizes == NULL:
            raise MemoryError
        try:
            for at in range(self.row_count):
                sizes[self.rows[at].place] += self.rows[at].size
            found = {}
            for at in range(count):
                if sizes[at]:
                    topic = self.places.names[at][0]
                    found[topic] = found.get(topic, 0) + sizes[at]
            return found
        finally:
            free(sizes)

    def transactions(self):
        """Per transaction: its records here, in order of first use, and its end (not: None)."""
        cdef size_t at, first
        cdef Transaction *tx
        out = []
        for at in range(self.transaction_count):
            tx = &self.transactions_[at]
            counts = {
                self.places.names[self.counts[first].place]: self.counts[first].records
                for first in range(tx.first_count, tx.first_count + tx.number_of_counts)
            }
            ended = None
            if tx.end_lsn:
                ended = TransactionEnded(
                    seq=tx.seq,
                    xid=tx.xid,
                    csn=tx.csn,
                    commit_start=tx.commit_start,
                    end_lsn=tx.end_lsn,
                    committed_at=tx.committed_at,
                    rows=tx.rows,
                )
            out.append((counts, ended))
        return out


def batch_of(Places places not None, uint64_t epoch, list transactions, list rows):
    """Make a batch of finished records, for tests of the parts that take one.

    `transactions`: (seq, xid, csn, TransactionEnded or None) each; `rows`: (index of the
    transaction, topic, partition, key, value, ordinal, LSN) each, in order.
    """
    cdef Batch batch = Batch(places, epoch)
    cdef Transaction *tx
    cdef uint32_t index
    cdef int32_t place
    cdef bytes octets
    grow(<void **>&batch.transactions_, &batch.transaction_room, len(transactions), sizeof(Transaction))
    for seq, xid, csn, ended in transactions:
        tx = &batch.transactions_[batch.transaction_count]
        tx.seq, tx.xid, tx.csn = seq, xid, csn
        tx.commit_start = tx.end_lsn = tx.rows = tx.first_count = tx.number_of_counts = 0
        tx.committed_at = 0
        if ended is not None:
            tx.commit_start, tx.end_lsn = ended.commit_start, ended.end_lsn
            tx.committed_at, tx.rows = ended.committed_at, ended.rows
        batch.transaction_count += 1
    for index, topic, partition, key, value, ordinal, lsn in rows:
        if index >= batch.transaction_count:
            raise IndexError(index)
        place = places.number(topic, partition)
        octets = value or b""
        batch.append(index, place, len(batch.keys), octets, len(octets), ordinal, lsn)
        batch.rows[batch.row_count - 1].is_tombstone = value is None
        batch.count(index, place)
        batch.keys.append(key)
        batch.size += len(key or b"")
    return batch
