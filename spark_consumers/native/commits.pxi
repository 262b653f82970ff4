# The entries of a COMMITS record (schemas/avro/cut.avsc) as columns.


def read_entries(bytes data):
    """Where the array of entries begins and ends, and its items; and their columns.

    None: it is another kind of record, or an entry has more than usual: DDL, gaps.
    """
    cdef Input avro
    cdef char *start
    cdef int64_t left
    cdef Py_ssize_t array, first, last
    PyBytes_AsStringAndSize(data, &start, &avro.size)
    avro.data, avro.at = <const uint8_t *>start, 0
    if not skip_to_commits(&avro):
        return None
    array = avro.at
    if not read_long(&avro, &left) or left <= 0:
        return None
    first = avro.at
    columns = read_columns(&avro, left)
    last = avro.at
    if columns is None or not read_long(&avro, &left) or left:
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


cdef tuple read_columns(Input *avro, int64_t count):
    """Read so many entries; None: one is not usual."""
    cdef int64_t seq, xid, csn, commit_start, committed_at, rows, ignored
    cdef int64_t left
    cdef dict identities = {}
    cdef list csns = [], times = [], all_rows = [], all_counts = []
    left = count
    while left:
        if not (read_long(avro, &seq) and read_long(avro, &xid) and read_long(avro, &csn)):
            return None
        if not read_long(avro, &commit_start) or not skip_optional_long(avro):  # end_lsn
            return None
        if not read_long(avro, &committed_at) or not is_in_calendar(day_of(committed_at)):
            return None
        if not skip_optional_string(avro) or not read_long(avro, &rows):  # user
            return None
        counts = read_counts(avro)
        if counts is None:
            return None
        if not (read_long(avro, &ignored) and not ignored):  # ddl
            return None
        if not (read_long(avro, &ignored) and not ignored):  # holes
            return None
        identities[seq] = commit_start, xid
        csns.append(csn)
        times.append(committed_at)
        all_rows.append(rows)
        all_counts.append(counts)
        left -= 1
    if len(identities) != count:
        return None
    return identities, (csns, times, all_rows, all_counts)


cdef dict read_counts(Input *avro):
    """Read a map of numbers of ranges to numbers of records; None: it is not usual."""
    cdef int64_t left, records, index
    cdef const uint8_t *digits
    cdef Py_ssize_t size, at
    cdef dict counts = {}
    if not read_long(avro, &left) or left < 0:
        return None
    if not left:
        return counts
    while left:
        if not read_blob(avro, &digits, &size) or not 1 <= size <= 9:
            return None
        index = 0
        for at in range(size):
            if not b"0" <= digits[at] <= b"9":
                return None
            index = 10 * index + digits[at] - 48
        if not read_long(avro, &records):
            return None
        counts[index] = records
        left -= 1
    if not read_long(avro, &left) or left:
        return None
    return counts
