# Exact offsets of Kafka into rows: librdkafka of the confluent-kafka wheel, without a Python object
# per record.
#
# Each partition has a queue of its own, which librdkafka fills in the background as long as the
# partition is started: reading on costs no request, and two partitions never wait for each other.

from cython cimport no_gc
from posix.unistd cimport getpid

cdef enum:
    BATCH = 1024  # records that are taken from a queue at once
    NEAR = 10_000  # offsets that are passed over by reading on: less than a jump costs

# What `RangeConsumer.read` stopped at.
DONE = 0  # everything that is wanted of the partition was passed
SILENT = 1  # nothing came in time
STRANGE = 2  # a record that none of the given rows takes: `record`, then `skip`
FAILED = 3  # librdkafka says an error: `error`


cdef struct Span:
    int64_t start
    int64_t end


cdef struct Partition:
    void *topic  # rd_kafka_topic_t
    int32_t number
    bint is_started
    int64_t position  # the offset that is read next
    KafkaMessage **batch  # taken from the queue, from `head` to `count` not read yet
    size_t head, count
    Span *spans  # that are wanted, from `span` on not passed yet
    size_t span, span_count, span_room


@no_gc  # its dictionaries hold texts and numbers; the collector would empty them before `_end`
cdef class RangeConsumer:
    """A consumer that reads exact offsets of partitions into rows; see `kafka.native_fetch`.

    One thread at a time calls it, which is checked.  Calls that wait release the GIL.
    """

    cdef readonly int error  # a code of librdkafka, of the last read that failed
    cdef void *client
    cdef dict topics  # name -> address of its rd_kafka_topic_t
    cdef dict numbers  # (topic, partition) -> index of `partitions`
    cdef Partition *partitions
    cdef size_t room
    cdef bint is_in_call
    cdef int process  # whose threads the client has: a child that was forked has none of them

    def __cinit__(self, list settings):
        """`settings`: (name, value) of librdkafka; raises LibraryRefused."""
        self.topics, self.numbers, self.process = {}, {}, getpid()
        self.client = client_of(RD_KAFKA_CONSUMER, settings_of(settings))

    def __dealloc__(self):
        self._end()
        free(self.partitions)

    def close(self):
        """End it, with its threads."""
        if self.client != NULL:
            self._enter()
            self._end()
            self.is_in_call = False

    cdef void _end(self) noexcept:
        cdef size_t at
        cdef void *client = self.client
        cdef void *topic
        self.client = NULL
        if client == NULL or self.process != getpid():
            return
        for at in range(<size_t>len(self.numbers)):
            self._stop(&self.partitions[at])
            free(self.partitions[at].batch)
            free(self.partitions[at].spans)
        for address in self.topics.values():
            topic = <void *><size_t>address
            rd_kafka.topic_destroy(topic)
        with nogil:
            rd_kafka.destroy(client)

    cdef int _enter(self) except -1:
        if self.client == NULL:
            raise ValueError("the consumer was closed")
        if self.is_in_call:
            raise RuntimeError("two threads call one consumer")
        self.is_in_call = True
        return 0

    # ---------------------------------------------------------------- what is wanted
    def know(self, list topics, int milliseconds):
        """Have topics, and ask for their leaders: librdkafka itself asks once a second."""
        cdef const void *found = NULL
        cdef void *topic
        cdef bint are_new = False
        self._enter()
        try:
            for name in topics:
                if name not in self.topics:
                    topic = rd_kafka.topic_new(self.client, name.encode(), NULL)
                    if topic == NULL:
                        raise LibraryRefused(f"topic {name}")
                    self.topics[name] = <size_t>topic
                    are_new = True
            if are_new:
                with nogil:
                    if rd_kafka.metadata(self.client, 0, NULL, &found, milliseconds):
                        found = NULL  # reading says why
                    if found != NULL:
                        rd_kafka.metadata_destroy(found)
        finally:
            self.is_in_call = False

    def want(self, str topic, int partition, list spans):
        """Want the offsets of (start, end) pairs, which ascend; return the partition's number.

        The topic must be known.  Where they are not near what is read next, it jumps.
        """
        cdef Partition *mine
        cdef Py_ssize_t number, at
        cdef int64_t first
        self._enter()
        try:
            number = self._number(topic, partition)
            mine = &self.partitions[number]
            grow_spans(mine, len(spans))
            mine.span = mine.span_count = 0
            for at in range(len(spans)):
                mine.spans[at].start, mine.spans[at].end = spans[at]
            if not spans:
                return number
            mine.span_count = len(spans)
            first = mine.spans[0].start
            if mine.is_started and not 0 <= first - mine.position <= NEAR:
                self._stop(mine)
            if not mine.is_started:
                self._start(mine, first)
            return number
        finally:
            self.is_in_call = False

    def read(self, Py_ssize_t number, dict frames, int milliseconds):
        """Read what is wanted of a partition into rows; return (why it stopped, records).

        `frames` are the rows for values that begin with these bytes.  A value that is NULL
        counts and is no row.
        """
        cdef Partition *mine
        cdef KafkaMessage *message
        cdef FramedRows rows = None
        cdef int64_t begin, records = 0
        cdef void *client
        if not 0 <= number < len(self.numbers):
            raise IndexError(number)
        self._enter()
        try:
            mine, client = &self.partitions[number], self.client
            with nogil:
                rd_kafka.poll(client, 0)
            while mine.span < mine.span_count:
                if mine.head == mine.count and not self._fill(mine, milliseconds):
                    return SILENT, records
                message = mine.batch[mine.head]
                if message.error == RD_KAFKA_RESP_ERR__PARTITION_EOF:
                    if message.offset >= mine.spans[mine.span_count - 1].end:
                        mine.span = mine.span_count  # nothing of it can come
                    drop_first(mine)
                    continue
                if message.error:
                    if is_elsewhere(mine, message):
                        begin = max(mine.position, mine.spans[mine.span].start)
                        self._stop(mine)
                        self._start(mine, begin)
                        continue
                    self.error = message.error
                    drop_first(mine)
                    return FAILED, records
                if not is_wanted(mine, message.offset):
                    if mine.span < mine.span_count:
                        drop_first(mine)
                    continue
                if message.value != NULL:
                    if rows is None or not rows.is_mine(message.value, message.value_size):
                        rows = rows_of(frames, message)
                        if rows is not None:
                            rows.partition = mine.number
                    if rows is not None:
                        rows.offset = message.offset
                    if rows is None or not rows._take_at(
                        None, <const uint8_t *>message.value, message.value_size
                    ):
                        return STRANGE, records
                records += 1
                pass_first(mine)
            return DONE, records
        finally:
            self.is_in_call = False

    def record(self, Py_ssize_t number):
        """Return offset and value of the record that a read stopped at."""
        cdef KafkaMessage *message = self._first(number)
        return message.offset, PyBytes_FromStringAndSize(
            <char *>message.value, <Py_ssize_t>message.value_size
        )

    def skip(self, Py_ssize_t number):
        """Leave that record behind."""
        self._first(number)
        pass_first(&self.partitions[number])

    def stop(self, str topic, int partition):
        """Fetch nothing more of a partition."""
        number = self.numbers.get((topic, partition))
        if number is not None:
            self._enter()
            self._stop(&self.partitions[<Py_ssize_t>number])
            self.is_in_call = False

    cdef KafkaMessage *_first(self, Py_ssize_t number) except NULL:
        cdef Partition *mine
        if self.client == NULL or not 0 <= number < len(self.numbers):
            raise IndexError(number)
        mine = &self.partitions[number]
        if mine.head == mine.count or mine.batch[mine.head].value == NULL:
            raise IndexError(number)
        return mine.batch[mine.head]

    cdef Py_ssize_t _number(self, str topic, int partition) except -1:
        cdef size_t at, wanted
        cdef void *moved
        cdef Partition *mine
        known = self.numbers.get((topic, partition))
        if known is not None:
            return known
        at = len(self.numbers)
        if at == self.room:
            wanted = max(<size_t>16, 2 * self.room)
            moved = realloc(self.partitions, wanted * sizeof(Partition))
            if moved == NULL:
                raise MemoryError
            self.partitions, self.room = <Partition *>moved, wanted
        mine = &self.partitions[at]
        memset(mine, 0, sizeof(Partition))
        mine.topic, mine.number = <void *><size_t>self.topics[topic], partition
        mine.batch = <KafkaMessage **>calloc(BATCH, sizeof(KafkaMessage *))
        if mine.batch == NULL:
            raise MemoryError
        self.numbers[topic, partition] = at
        return at

    cdef int _start(self, Partition *mine, int64_t offset) except -1:
        cdef int failed
        with nogil:
            failed = rd_kafka.consume_start(mine.topic, mine.number, offset)
        if failed:
            raise LibraryRefused(f"librdkafka's error {rd_kafka.last_error()}")
        mine.is_started, mine.position = True, offset
        return 0

    cdef void _stop(self, Partition *mine) noexcept:
        while mine.head < mine.count:
            drop_first(mine)
        if mine.is_started:
            mine.is_started = False
            with nogil:
                rd_kafka.consume_stop(mine.topic, mine.number)

    cdef bint _fill(self, Partition *mine, int milliseconds) noexcept:
        """Take records from the queue; False where none came in time.

        librdkafka waits until there are as many as were asked for.
        """
        cdef int64_t most = 0
        cdef ssize_t count
        cdef size_t at
        for at in range(mine.span, mine.span_count):
            most += mine.spans[at].end - max(mine.spans[at].start, mine.position)
            if most >= BATCH:
                break
        most = max(1, min(most, BATCH))
        with nogil:
            count = rd_kafka.consume_batch(
                mine.topic, mine.number, milliseconds, mine.batch, <size_t>most
            )
        mine.head, mine.count = 0, <size_t>max(count, 0)
        return count > 0


cdef int grow_spans(Partition *mine, size_t wanted) except -1:
    cdef void *moved
    if wanted > mine.span_room:
        moved = realloc(mine.spans, wanted * sizeof(Span))
        if moved == NULL:
            raise MemoryError
        mine.spans, mine.span_room = <Span *>moved, wanted
    return 0


cdef bint is_wanted(Partition *mine, int64_t offset) noexcept:
    """Say whether an offset is in a span; pass over those that end before it."""
    if offset < mine.position:
        return False  # it was there before
    while mine.span < mine.span_count and offset >= mine.spans[mine.span].end:
        mine.span += 1
    return mine.span < mine.span_count and offset >= mine.spans[mine.span].start


cdef bint is_elsewhere(Partition *mine, KafkaMessage *error) noexcept:
    """Say whether an offset is not there that nobody wants.

    It lies between spans, or librdkafka says it of an earlier start: its queue keeps such errors.
    """
    cdef size_t at
    if error.error != RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET or error.offset < 0:
        return False
    for at in range(mine.span, mine.span_count):
        if max(mine.position, mine.spans[at].start) <= error.offset < mine.spans[at].end:
            return False
    return True


cdef void drop_first(Partition *mine) noexcept:
    """Leave the first of the batch behind, which is not wanted."""
    cdef KafkaMessage *message = mine.batch[mine.head]
    if not message.error and message.offset >= mine.position:
        mine.position = message.offset + 1
    mine.head += 1
    rd_kafka.message_destroy(message)


cdef void pass_first(Partition *mine) noexcept:
    """Leave the first of the batch behind, which was read."""
    drop_first(mine)
    if mine.span < mine.span_count and mine.position >= mine.spans[mine.span].end:
        mine.span += 1


cdef FramedRows rows_of(dict frames, KafkaMessage *message):
    """The rows for a value's frame; None: nobody knows it."""
    if message.value_size < 5:
        return None
    return frames.get(PyBytes_FromStringAndSize(<char *>message.value, 5))
