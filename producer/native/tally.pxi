# The books of the open group: `core.delivery.tally.Tally`; `PlainTally` defines what it does.
#
# What that keeps as objects is numbers here: a source of short transactions completes thousands
# a second.  Their entries are written as Avro when the group closes.  A transaction with DDL or
# gaps has a record of cuts of its own and stays an object.

from libc.stdint cimport INT64_MAX
from libc.string cimport memmove

from producer.core.records.cut_code import read_entries
from producer.core.delivery.tally import Entries
from producer.errors import GroupUnusable
from schemas.control import CommitEntry, DdlPlace, PackedEntries, Range


cdef struct OffsetRun:  # acknowledged offsets start..end-1
    int64_t start
    int64_t end


cdef struct PlaceBook:
    OffsetRun *runs  # `first_run` to `run_count - 1` belong to no cut yet, oldest first
    size_t first_run, run_count, run_room
    bint is_tracked  # cuts name its records
    bint is_ddl
    size_t newest_count  # index of its count, if the open transaction has one
    size_t newest_range  # index of its newest range, if the entries being made have one


cdef struct PlaceCount:
    int32_t place
    uint64_t records


cdef struct Whole:  # a source transaction of the group that is complete
    int64_t seq, xid, csn, commit_start, end_lsn, committed_at, rows
    size_t first_count, number_of_counts  # in order of first use
    Py_ssize_t kept  # index of its object, -1: it has none
    bint is_alone


cdef struct OffsetRange:
    int32_t place
    int64_t start, end


cdef struct Piece:  # offsets of one transaction in one range
    size_t range_index
    int64_t start, end


cdef int64_t as_long(uint64_t number) except? -1:
    """What Avro calls a long; raise OverflowError, as `avro.long` does."""
    if number > <uint64_t>INT64_MAX:
        raise OverflowError
    return <int64_t>number


cdef int add_number(Buffer *avro, int64_t number) except -1:
    """Append an Avro long."""
    make_room(avro, MOST_VARINT_BYTES)
    avro.used = put_long(avro.start + avro.used, number) - avro.start
    return 0


cdef int add_text_of(Buffer *avro, bytes data) except -1:
    """Append an Avro string."""
    cdef Span span = span_of(data)
    add_number(avro, span.size)
    return add_span(avro, &span)


cdef class NativeTally:
    """`core.delivery.tally.Tally`; see there."""

    cdef Places _places
    cdef str _ddl_topic
    cdef object _untracked
    cdef readonly object cut_bytes
    cdef PlaceBook *_books  # by number of the place
    cdef size_t _book_count, _book_room
    cdef PlaceCount *_counts  # of the whole transactions, then of the open one
    cdef size_t _count_count, _count_room, _open_from
    cdef Whole *_wholes
    cdef size_t _whole_count, _whole_room
    cdef list _kept  # TransactionEnded
    cdef OffsetRange *_ranges  # of the entries being made, like all below
    cdef size_t _range_count, _range_room
    cdef Piece *_pieces  # of the transaction being written
    cdef size_t _piece_count, _piece_room
    cdef Buffer _avro

    def __cinit__(self, Places places not None, *, str ddl_topic not None, untracked_topics):
        self._places, self._ddl_topic = places, ddl_topic
        self._untracked = untracked_topics
        self._kept = []
        self.cut_bytes = 0

    def __dealloc__(self):
        cdef size_t at
        for at in range(self._book_count):
            free(self._books[at].runs)
        free(self._books)
        free(self._counts)
        free(self._wholes)
        free(self._ranges)
        free(self._pieces)
        free(self._avro.start)

    @property
    def commits(self):
        """Source transactions that are complete."""
        return self._whole_count

    @property
    def is_open(self):
        """Say whether a transaction without its COMMIT has records here."""
        return self._count_count > self._open_from

    # ------------------------------------------------------------ counting
    def add(self, records):
        """Count records of the open transaction, made in Python."""
        for record in records:
            self._count(self._places.number(record[0], record[1]), 1)

    def take(self, Batch batch not None):
        """Count a batch, and complete the transactions that it ends."""
        cdef size_t at, each
        cdef Transaction *tx
        cdef Whole *whole
        if batch.places is not self._places:
            raise ValueError("the batch has numbers of other places")
        for at in range(batch.transaction_count):
            tx = &batch.transactions_[at]
            for each in range(tx.first_count, tx.first_count + tx.number_of_counts):
                self._count(batch.counts[each].place, batch.counts[each].records)
            if not tx.end_lsn:
                continue
            whole = self._complete()
            whole.seq, whole.xid = as_long(tx.seq), tx.xid
            whole.csn, whole.commit_start = as_long(tx.csn), as_long(tx.commit_start)
            whole.end_lsn, whole.committed_at = as_long(tx.end_lsn), tx.committed_at
            whole.rows = as_long(tx.rows)

    def end(self, ended):
        """Complete the open transaction, which Python read."""
        cdef Whole *whole = self._complete()
        whole.seq, whole.xid, whole.csn = ended.seq, ended.xid, ended.csn
        whole.commit_start, whole.end_lsn = ended.commit_start, ended.end_lsn
        whole.committed_at, whole.rows = ended.committed_at, ended.rows
        whole.is_alone = bool(ended.ddl_ordinals or ended.holes)
        if whole.is_alone or ended.user is not None:
            whole.kept = len(self._kept)
            self._kept.append(ended)
        self.cut_bytes += 12 * len(ended.ddl_ordinals)

    cdef int _count(self, int32_t place, uint64_t records) except -1:
        cdef PlaceBook *book = self._book(place)
        cdef size_t at = book.newest_count
        # An index that is left from another transaction shows a count of another place, or none.
        if not (self._open_from <= at < self._count_count and self._counts[at].place == place):
            at = self._count_count
            grow(<void **>&self._counts, &self._count_room, at + 1, sizeof(PlaceCount))
            self._counts[at].place, self._counts[at].records = place, 0
            self._count_count += 1
            book.newest_count = at
        self._counts[at].records += records
        return 0

    cdef Whole *_complete(self) except NULL:
        """Make the open transaction a whole one; the caller fills it."""
        grow(<void **>&self._wholes, &self._whole_room, self._whole_count + 1, sizeof(Whole))
        cdef Whole *whole = &self._wholes[self._whole_count]
        whole.first_count = self._open_from
        whole.number_of_counts = self._count_count - self._open_from
        whole.kept, whole.is_alone = -1, False
        self._whole_count += 1
        self._open_from = self._count_count
        self.cut_bytes += 60 + 6 * whole.number_of_counts
        return whole

    cdef PlaceBook *_book(self, int32_t place) except NULL:
        cdef size_t number = place
        cdef PlaceBook *book
        while self._book_count <= number:
            topic = self._places.names[self._book_count][0]
            grow(<void **>&self._books, &self._book_room, number + 1, sizeof(PlaceBook))
            book = &self._books[self._book_count]
            book.runs = NULL
            book.first_run = book.run_count = book.run_room = 0
            book.is_tracked, book.is_ddl = topic not in self._untracked, topic == self._ddl_topic
            book.newest_count = book.newest_range = 0
            self._book_count += 1
        return &self._books[number]

    # ------------------------------------------------------------ acknowledgements
    def acknowledge(self, runs):
        """Take acknowledged offsets, per partition in order; return how many there are."""
        cdef int64_t first, after
        count = 0
        for topic, partition, start, end in runs:
            if start < 0:
                raise GroupUnusable("a record was acknowledged without an offset", topic=topic)
            first, after = start, end
            self._acknowledge(self._places.number(topic, partition), first, after)
            count += end - start
        return count

    cdef int _acknowledge(self, int32_t place, int64_t start, int64_t end) except -1:
        cdef PlaceBook *book = self._book(place)
        cdef size_t left = book.run_count - book.first_run
        cdef OffsetRun *newest
        if left:
            newest = &book.runs[book.run_count - 1]
            if newest.end == start:
                newest.end = end
                return 0
            if newest.end > start:
                raise GroupUnusable(
                    "acknowledged offsets go backwards", offset=start, known=newest.end
                )
        if book.run_count == book.run_room and book.first_run >= left:
            # More room is free at the front than is used: the runs move there.
            if left:
                memmove(book.runs, book.runs + book.first_run, left * sizeof(OffsetRun))
            book.first_run, book.run_count = 0, left
        grow(<void **>&book.runs, &book.run_room, book.run_count + 1, sizeof(OffsetRun))
        book.runs[book.run_count].start = start
        book.runs[book.run_count].end = end
        book.run_count += 1
        return 0

    # ------------------------------------------------------------ cuts
    def close(self):
        """Give each complete transaction its offsets, and forget it."""
        cdef size_t at = 0, end
        out = []
        while at < self._whole_count:
            end = at + 1
            if self._wholes[at].is_alone:
                out.append(self._alone(&self._wholes[at]))
            else:
                while end < self._whole_count and not self._wholes[end].is_alone:
                    end += 1
                out.append(self._packed(at, end))
            at = end
        self._forget()
        return out

    cdef int _forget(self) except -1:
        """Forget the whole transactions; counts of the open one move to the front."""
        cdef size_t at, left = self._count_count - self._open_from
        if left:
            memmove(self._counts, self._counts + self._open_from, left * sizeof(PlaceCount))
        for at in range(left):
            self._books[self._counts[at].place].newest_count = at
        self._count_count, self._open_from, self._whole_count = left, 0, 0
        self._kept.clear()
        self.cut_bytes = 0
        return 0

    cdef object _packed(self, size_t first, size_t end):
        """The entries of transactions that stand in one record of cuts."""
        cdef size_t at
        cdef Whole *whole = NULL
        cdef int64_t csn = self._wholes[first].csn
        self._range_count = self._avro.used = 0
        identities = {}
        for at in range(first, end):
            whole = &self._wholes[at]
            self._place(whole)
            self._write(whole)
            identities[whole.seq] = whole.commit_start, whole.xid
            csn = max(csn, whole.csn)
        commits = PackedEntries(self._avro.start[:self._avro.used], identities, csn, read_entries)
        return Entries(commits, self._made_ranges(), whole.seq, whole.end_lsn)

    cdef object _alone(self, Whole *whole):
        """The entry of a transaction with DDL or gaps."""
        cdef size_t at
        cdef Piece *piece
        ended = self._kept[whole.kept]
        self._range_count = 0
        self._place(whole)
        counts, offsets = {}, []
        for at in range(self._piece_count):
            piece = &self._pieces[at]
            counts[piece.range_index] = piece.end - piece.start
            if self._books[self._ranges[piece.range_index].place].is_ddl:
                offsets += range(piece.start, piece.end)
        ddl = [DdlPlace(*place) for place in zip(ended.ddl_ordinals, offsets, strict=True)]
        entry = CommitEntry(
            seq=ended.seq,
            xid=ended.xid,
            csn=ended.csn,
            commit_start=ended.commit_start,
            end_lsn=ended.end_lsn,
            committed_at=ended.committed_at,
            rows=ended.rows,
            counts=counts,
            ddl=tuple(ddl),
            holes=ended.holes,
            user=ended.user,
        )
        return Entries((entry,), self._made_ranges(), ended.seq, ended.end_lsn)

    cdef object _made_ranges(self):
        cdef size_t at
        cdef OffsetRange *made
        out = []
        for at in range(self._range_count):
            made = &self._ranges[at]
            topic, partition = self._places.names[made.place]
            out.append(Range(topic, partition, made.start, made.end))
        return tuple(out)

    cdef int _place(self, Whole *whole) except -1:
        """Give a transaction its offsets: the oldest acknowledged ones of each place."""
        cdef size_t at, size
        cdef PlaceBook *book
        cdef OffsetRun *run
        cdef PlaceCount *count
        cdef uint64_t left
        cdef int64_t start
        self._piece_count = 0
        for at in range(whole.first_count, whole.first_count + whole.number_of_counts):
            count = &self._counts[at]
            book = &self._books[count.place]
            left = count.records
            while left:
                if book.first_run == book.run_count:
                    topic = self._places.names[count.place][0]
                    raise GroupUnusable("a record was not acknowledged", topic=topic)
                run = &book.runs[book.first_run]
                start = run.start
                size = min(left, <uint64_t>(run.end - start))
                run.start += size
                left -= size
                if run.start == run.end:
                    book.first_run += 1
                if book.is_tracked:
                    self._add_piece(count.place, book, start, start + <int64_t>size)
        return 0

    cdef int _add_piece(
        self, int32_t place, PlaceBook *book, int64_t start, int64_t end
    ) except -1:
        """Put offsets into the place's newest range, or into a new one."""
        cdef size_t at = book.newest_range
        cdef Piece *piece
        # As in `_count`: an index from other entries shows a range of another place, or none.
        if (
            at < self._range_count
            and self._ranges[at].place == place
            and self._ranges[at].end == start
        ):
            self._ranges[at].end = end
        else:
            at = self._range_count
            grow(<void **>&self._ranges, &self._range_room, at + 1, sizeof(OffsetRange))
            self._ranges[at].place = place
            self._ranges[at].start, self._ranges[at].end = start, end
            self._range_count += 1
            book.newest_range = at
        grow(<void **>&self._pieces, &self._piece_room, self._piece_count + 1, sizeof(Piece))
        piece = &self._pieces[self._piece_count]
        piece.range_index, piece.start, piece.end = at, start, end
        self._piece_count += 1
        return 0

    # ------------------------------------------------------------ Avro
    cdef int _write(self, Whole *whole) except -1:
        """Write an entry, as `cut_code._entry` does."""
        cdef size_t at
        cdef Piece *piece
        cdef Buffer *avro = &self._avro
        add_number(avro, whole.seq)
        add_number(avro, whole.xid)
        add_number(avro, whole.csn)
        add_number(avro, whole.commit_start)
        add_byte(avro, 2)
        add_number(avro, whole.end_lsn)
        add_number(avro, whole.committed_at)
        if whole.kept < 0:
            add_byte(avro, 0)
        else:
            add_byte(avro, 2)
            add_text_of(avro, self._kept[whole.kept].user.encode())
        add_number(avro, whole.rows)
        if self._piece_count:
            add_number(avro, self._piece_count)
        for at in range(self._piece_count):
            piece = &self._pieces[at]
            if self._books[self._ranges[piece.range_index].place].is_ddl:
                raise ValueError("records of DDL without their ordinals")
            add_text_of(avro, b"%d" % piece.range_index)
            add_number(avro, piece.end - piece.start)
        add_byte(avro, 0)  # the end of counts
        add_byte(avro, 0)  # no DDL
        add_byte(avro, 0)  # no gaps
        return 0
