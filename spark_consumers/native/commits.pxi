# The entries of a COMMITS record (schemas/avro/cut.avsc) as columns.


cdef enum:
    FEW_COUNTS = 32  # of an entry, which are compared one with the other

cdef int64_t MOST = 1 << 40  # rows of an entry, or records of it in one range


cdef struct Entry:
    int64_t xid, csn, commit_start, committed_at, rows
    size_t counts  # where its counts end


cdef struct Count:
    int64_t place, records  # number of a range, and records of the entry in it


def read_entries(bytes data):
    """Where the array of entries begins and ends, and its items; and their columns.

    None: it is another kind of record, or an entry has more than usual: DDL, gaps.
    """
    cdef Input avro
    cdef char *start
    cdef int64_t left
    cdef Py_ssize_t array, first, last
    cdef bint is_usual
    cdef EntryColumns columns
    PyBytes_AsStringAndSize(data, &start, &avro.size)
    avro.data, avro.at = <const uint8_t *>start, 0
    if not skip_to_commits(&avro):
        return None
    array = avro.at
    if not read_long(&avro, &left) or left <= 0:
        return None
    first = avro.at
    columns = EntryColumns()
    is_usual = columns.read(&avro, left)
    last = avro.at
    if not is_usual or not read_long(&avro, &left) or left:
        return None
    return array, avro.at, first, last, columns


cdef bint skip_to_commits(Input *avro):
    """Pass over what stands before the array of commits; False: that is not usual."""
    cdef int64_t kind
    if not read_long(avro, &kind) or kind != 1:  # COMMITS
        return False
    if not (skip_long(avro) and skip_long(avro) and skip_long(avro)):  # n, epoch, writer
        return False
    if not skip_string(avro):  # instance
        return False
    for _ in range(5):  # last_seq, resume, state_from, written_at, version
        if not skip_long(avro):
            return False
    for _ in range(8):  # identity ... loads
        if read_optional(avro):
            return False
    return read_optional(avro) == 1


cdef class EntryColumns:
    """Entries whose seqs follow each other, from `first` on; by their index here."""

    cdef readonly int64_t first
    cdef Entry *entries
    cdef Count *counts
    cdef size_t size, room, counted, counts_room

    def __dealloc__(self):
        free(self.entries)
        free(self.counts)

    def __len__(self):
        return self.size

    cdef int check(self, Py_ssize_t first, Py_ssize_t last) except -1:
        """Raise IndexError unless these are places of entries."""
        if not 0 <= first <= last <= <Py_ssize_t>self.size:
            raise IndexError(first)
        return 0

    def identity(self, Py_ssize_t at):
        """(commit_start, xid)."""
        self.check(at, at + 1)
        return self.entries[at].commit_start, self.entries[at].xid

    def place(self, Py_ssize_t at):
        """(csn, commit_start, committed_at)."""
        self.check(at, at + 1)
        cdef Entry *entry = &self.entries[at]
        return entry.csn, entry.commit_start, entry.committed_at

    def greatest_csn(self):
        """The greatest of all entries; there is one at least."""
        cdef size_t at
        cdef int64_t found = self.entries[0].csn
        for at in range(1, self.size):
            found = max(found, self.entries[at].csn)
        return found

    def rows(self, Py_ssize_t first, Py_ssize_t last):
        """Rows of each entry, as an array of 64 bits each."""
        self.check(first, last)
        cdef Py_ssize_t at
        cdef bytes out = PyBytes_FromStringAndSize(NULL, (last - first) * sizeof(int64_t))
        cdef char *data
        cdef Py_ssize_t size
        PyBytes_AsStringAndSize(out, &data, &size)
        for at in range(first, last):
            memcpy(data + (at - first) * sizeof(int64_t), &self.entries[at].rows, sizeof(int64_t))
        return out

    def total(self, Py_ssize_t first, Py_ssize_t last):
        """Rows of all of these."""
        self.check(first, last)
        cdef Py_ssize_t at
        cdef int64_t found = 0
        for at in range(first, last):
            found += self.entries[at].rows
        return found

    def fitting(self, Py_ssize_t first, Py_ssize_t last, int64_t room):
        """Return the index after the last one that has its rows in so much room."""
        self.check(first, last)
        cdef Py_ssize_t at
        cdef int64_t found = 0
        for at in range(first, last):
            found += self.entries[at].rows
            if found > room:
                return at
        return last

    def records(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t width):
        """Records of these in each of `width` ranges; None: one names another range."""
        self.check(first, last)
        cdef size_t at = self.entries[first - 1].counts if first else 0
        cdef size_t end = self.entries[last - 1].counts if last else 0
        cdef Count *count
        cdef int64_t *found
        if width < 0:
            return None
        found = <int64_t *>calloc(width + 1, sizeof(int64_t))
        if found == NULL:
            raise MemoryError
        try:
            while at < end:
                count = &self.counts[at]
                if count.place >= width:
                    return None
                found[count.place] += count.records
                at += 1
            return [found[at] for at in range(<size_t>width)]
        finally:
            free(found)

    def lacking(self):
        """Return the first entry with fewer records than rows; -1: none."""
        cdef size_t at, count = 0
        cdef int64_t found
        for at in range(self.size):
            found = 0
            while count < self.entries[at].counts:
                found += self.counts[count].records
                count += 1
            if found < self.entries[at].rows:
                return at
        return -1

    cdef bint read(self, Input *avro, int64_t count) except -1:
        """Read so many entries; False: one is not usual."""
        cdef int64_t seq, ignored
        cdef Entry *entry
        while <int64_t>self.size < count:
            if self.size == self.room:
                self.room = max(64, 2 * self.room)
                self.entries = <Entry *>grown(self.entries, self.room * sizeof(Entry))
            entry = &self.entries[self.size]
            if not (read_long(avro, &seq) and read_long(avro, &entry.xid)):
                return False
            if not (read_long(avro, &entry.csn) and read_long(avro, &entry.commit_start)):
                return False
            if not skip_optional_long(avro):  # end_lsn
                return False
            if not read_long(avro, &entry.committed_at):
                return False
            if not is_in_calendar(day_of(entry.committed_at)):
                return False
            if not skip_optional_string(avro):  # user
                return False
            if not read_long(avro, &entry.rows) or not 0 <= entry.rows <= MOST:
                return False
            if not self.read_counts(avro):
                return False
            if not (read_long(avro, &ignored) and not ignored):  # ddl
                return False
            if not (read_long(avro, &ignored) and not ignored):  # holes
                return False
            if not self.size:
                self.first = seq
            elif <uint64_t>seq - self.size != <uint64_t>self.first:
                return False
            entry.counts = self.counted
            self.size += 1
        return True

    cdef bint read_counts(self, Input *avro) except -1:
        """Read a map of numbers of ranges to numbers of records; False: it is not usual."""
        cdef int64_t left, records
        cdef const uint8_t *digits
        cdef Py_ssize_t size, at
        cdef size_t begun = self.counted, other
        cdef Count *count
        if not read_long(avro, &left) or left < 0:
            return False
        if not left:
            return True
        if left > avro.size - avro.at:
            return False
        while left:
            if self.counted == self.counts_room:
                self.counts_room = max(64, 2 * self.counts_room)
                self.counts = <Count *>grown(self.counts, self.counts_room * sizeof(Count))
            count = &self.counts[self.counted]
            if not read_blob(avro, &digits, &size) or not 1 <= size <= 9:
                return False
            count.place = 0
            for at in range(size):
                if not b"0" <= digits[at] <= b"9":
                    return False
                count.place = 10 * count.place + digits[at] - 48
            if not read_long(avro, &count.records) or not 0 <= count.records <= MOST:
                return False
            self.counted += 1
            left -= 1
        if not read_long(avro, &records) or records:
            return False
        if self.counted - begun > FEW_COUNTS:
            return len({self.counts[other].place for other in range(begun, self.counted)}) == (
                self.counted - begun
            )
        for other in range(begun, self.counted):
            for at in range(begun, other):
                if self.counts[at].place == self.counts[other].place:
                    return False
        return True


cdef void *grown(void *memory, size_t size) except NULL:
    """Memory of a new size, with what it held."""
    cdef void *moved = realloc(memory, size)
    if moved == NULL:
        raise MemoryError
    return moved
