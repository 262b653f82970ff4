# The writer to Kafka: librdkafka of the confluent-kafka wheel, without a Python object per row.
#
# Acknowledgements are counted by a callback, not taken as events: librdkafka's flush, commit and
# abort call callbacks by themselves, but with events they wait for another thread to take them.

from libc.stdint cimport intptr_t
from libc.stdlib cimport calloc, malloc
from posix.unistd cimport getpid

# ---------------------------------------------------------------- what librdkafka calls
cdef struct AcknowledgedRun:
    int64_t start
    int64_t end
    int32_t place


cdef struct Reports:
    AcknowledgedRun *runs  # acknowledged, since they were taken
    size_t count, room
    size_t *newest  # per place: 1 + index of its last run; 0: it has none
    size_t place_room
    uint64_t acknowledged
    int failure  # why a record was not stored: the first one
    bint is_out_of_memory
    void *owner  # the NativeProducer, for errors and log lines; NULL: it ends


cdef void count_delivery(void *client, const KafkaMessage *message, void *opaque) noexcept nogil:
    """Add one acknowledgement to the run that it continues."""
    cdef Reports *reports = <Reports *>opaque
    cdef size_t place = <size_t>message.opaque
    cdef int64_t offset = message.offset if message.offset >= 0 else -1
    cdef AcknowledgedRun *run
    if message.error:
        if not reports.failure:
            reports.failure = message.error
        return
    reports.acknowledged += 1
    if place < reports.place_room and reports.newest[place]:
        run = &reports.runs[reports.newest[place] - 1]
        if run.end == offset:
            run.end += 1
            return
    if place >= reports.place_room or not has_room(reports):
        reports.is_out_of_memory = True
        return
    run = &reports.runs[reports.count]
    run.place, run.start, run.end = <int32_t>place, offset, offset + 1
    reports.count += 1
    reports.newest[place] = reports.count


cdef bint has_room(Reports *reports) noexcept nogil:
    """Make room for one more run."""
    cdef size_t room = max(2 * reports.room, 64)
    cdef void *moved
    if reports.count < reports.room:
        return True
    moved = realloc(reports.runs, room * sizeof(AcknowledgedRun))
    if moved == NULL:
        return False
    reports.runs, reports.room = <AcknowledgedRun *>moved, room
    return True


cdef void pass_error(void *client, int code, const char *reason, void *opaque) noexcept with gil:
    """Pass on an error that belongs to no record."""
    cdef Reports *reports = <Reports *>opaque
    cdef char text[512]
    cdef bint is_fatal = code == RD_KAFKA_RESP_ERR__FATAL
    if reports.owner == NULL:
        return
    if is_fatal:
        code, reason = rd_kafka.fatal_error(client, text, TEXT_SIZE), text
    try:
        (<NativeProducer>reports.owner).on_error(kafka_error(code, reason, is_fatal))
    except BaseException as raised:
        (<NativeProducer>reports.owner).raised = raised


cdef void pass_log(const void *client, int level, const char *facility, const char *text) noexcept with gil:
    """Pass on a line of librdkafka's log."""
    cdef Reports *reports = <Reports *>rd_kafka.opaque(client)
    if reports == NULL or reports.owner == NULL:
        return
    try:
        words = [each.decode("utf-8", "replace") for each in (facility, rd_kafka.name(client), text)]
        (<NativeProducer>reports.owner).on_log(level, "%s [%s] %s" % tuple(words))
    except BaseException as raised:
        (<NativeProducer>reports.owner).raised = raised


# ---------------------------------------------------------------- errors
cdef object kafka_error(int code, const char *text, bint is_fatal):
    from confluent_kafka import KafkaError

    return KafkaError(code, text.decode("utf-8", "replace"), fatal=is_fatal)


cdef int raise_error(void *error) except -1:
    """Raise the error that a call returned, as confluent_kafka raises it; NULL: none."""
    if error == NULL:
        return 0
    from confluent_kafka import KafkaError, KafkaException

    made = KafkaError(
        rd_kafka.error_code(error),
        rd_kafka.error_string(error).decode("utf-8", "replace"),
        fatal=bool(rd_kafka.error_is_fatal(error)),
        retriable=bool(rd_kafka.error_is_retriable(error)),
        txn_requires_abort=bool(rd_kafka.error_txn_requires_abort(error)),
    )
    rd_kafka.error_destroy(error)
    raise KafkaException(made)


# ---------------------------------------------------------------- texts of headers
cdef struct HeaderText:
    char at[72]  # three numbers of at most 20 digits and what is between
    int size


cdef void print_decimal(HeaderText *text, uint64_t number) noexcept nogil:
    cdef uint8_t *out = <uint8_t *>text.at
    text.size = <int>(put_decimal_digits(out + text.size, number) - out)


cdef void print_hexadecimal(HeaderText *text, uint32_t number) noexcept nogil:
    cdef int shift = 28
    while shift and not number >> shift:
        shift -= 4
    while shift >= 0:
        text.at[text.size] = b"0123456789ABCDEF"[(number >> shift) & 15]
        text.size += 1
        shift -= 4


cdef void print_slash(HeaderText *text) noexcept nogil:
    text.at[text.size] = 47  # "/"
    text.size += 1


cdef struct TransactionTexts:  # constant in a transaction
    HeaderText xid
    HeaderText csn  # empty: it is not known
    HeaderText position  # "epoch/seq/"


cdef void write_transaction(TransactionTexts *texts, uint64_t epoch, Transaction *tx) noexcept nogil:
    texts.xid.size = texts.csn.size = texts.position.size = 0
    print_decimal(&texts.xid, tx.xid)
    if tx.csn:
        print_decimal(&texts.csn, tx.csn)
    print_decimal(&texts.position, epoch)
    print_slash(&texts.position)
    print_decimal(&texts.position, tx.seq)
    print_slash(&texts.position)


cdef void *row_headers(TransactionTexts *texts, Row *row) noexcept nogil:
    """The headers of a row, in the order of `Batch._record`."""
    cdef HeaderText lsn
    cdef void *headers = rd_kafka.headers_new(4)
    cdef int size = texts.position.size
    lsn.size = 0
    print_hexadecimal(&lsn, <uint32_t>(row.lsn >> 32))
    print_slash(&lsn)
    print_hexadecimal(&lsn, <uint32_t>row.lsn)
    print_decimal(&texts.position, row.ordinal)
    rd_kafka.header_add(headers, b"xid", 3, texts.xid.at, texts.xid.size)
    if texts.csn.size:
        rd_kafka.header_add(headers, b"csn", 3, texts.csn.at, texts.csn.size)
    rd_kafka.header_add(headers, b"lsn", 3, lsn.at, lsn.size)
    rd_kafka.header_add(headers, b"position", 8, texts.position.at, texts.position.size)
    texts.position.size = size
    return headers


# ---------------------------------------------------------------- the producer
cdef struct Target:
    void *topic  # rd_kafka_topic_t; NULL: not used so far
    int32_t partition


cdef class NativeProducer:
    """A producer of librdkafka; see `kafka.native_writer.NativeWriter`.

    One thread at a time calls it, which is checked; `purge`, `progress`, `failure` and `fatal`
    are for any thread.  Blocking calls release the GIL.
    """

    cdef readonly Places places
    cdef readonly object on_error, on_log
    cdef void *client
    cdef Reports *reports
    cdef Target *targets  # by number of the place
    cdef size_t target_room
    cdef bint is_in_call
    cdef object raised  # by a callback of the call under way, which raises it
    cdef int process  # whose threads the client has: a child that was forked has none of them

    def __cinit__(self, list settings, Places places, on_error, on_log):
        """`settings`: (name, value) of librdkafka; raises LibraryRefused."""
        cdef void *conf
        self.places, self.on_error, self.on_log = places, on_error, on_log
        self.process = getpid()
        self.reports = <Reports *>calloc(1, sizeof(Reports))
        if self.reports == NULL:
            raise MemoryError
        self.reports.owner = <void *>self
        # Log lines wait in a queue for `poll`: librdkafka may write them while it holds a lock.
        conf = settings_of([*settings, ("log.queue", "true")])
        rd_kafka.conf_set_opaque(conf, self.reports)
        rd_kafka.conf_set_dr_msg_cb(conf, count_delivery)
        rd_kafka.conf_set_error_cb(conf, <OnError>pass_error)
        rd_kafka.conf_set_log_cb(conf, <OnLog>pass_log)
        self.client = client_of(RD_KAFKA_PRODUCER, conf)
        with nogil:
            rd_kafka.set_log_queue(self.client, NULL)

    def __dealloc__(self):
        self._end()
        if self.reports != NULL:
            free(self.reports.runs)
            free(self.reports.newest)
        free(self.reports)
        free(self.targets)

    def close(self):
        """End it, with its threads."""
        self._enter()
        self._end()
        self.is_in_call = False

    cdef void _end(self) noexcept:
        cdef size_t at
        cdef void *client = self.client
        if client == NULL:
            return
        self.client, self.reports.owner = NULL, NULL
        if self.process != getpid():
            return
        with nogil:
            for at in range(self.target_room):
                if self.targets[at].topic != NULL:
                    rd_kafka.topic_destroy(self.targets[at].topic)
                    self.targets[at].topic = NULL
            rd_kafka.destroy(client)

    cdef int _enter(self) except -1:
        if self.client == NULL:
            raise ValueError("the producer was closed")
        if self.is_in_call:
            raise RuntimeError("two threads call one producer")
        self.is_in_call = True
        return 0

    cdef int _leave(self, void *error) except -1:
        """End a call; raise what a callback raised, or the error that the call returned."""
        self.is_in_call = False
        if self.raised is None:
            return raise_error(error)
        if error != NULL:
            rd_kafka.error_destroy(error)
        raised, self.raised = self.raised, None
        raise raised

    # ------------------------------------------------------------ for any thread
    @property
    def progress(self):
        """How many records were acknowledged."""
        return self.reports.acknowledged

    @property
    def failure(self):
        """The code of the first record that was not stored; 0: none."""
        return self.reports.failure

    def fatal(self):
        """Return the KafkaError that ended this producer; None: it goes on."""
        cdef char text[512]
        cdef int code
        if self.client == NULL:
            return None
        code = rd_kafka.fatal_error(self.client, text, TEXT_SIZE)
        return kafka_error(code, text, True) if code else None

    def purge(self):
        """Give up every record that was not stored."""
        cdef void *client = self.client
        if client != NULL:
            with nogil:
                rd_kafka.purge(client, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT)

    # ------------------------------------------------------------ for one thread
    def init_transactions(self, int milliseconds):
        """Fence older producers of the transactional id."""
        self._within(rd_kafka.init_transactions, milliseconds)

    def begin(self):
        """Begin a Kafka transaction."""
        cdef void *error
        self._enter()
        with nogil:
            error = rd_kafka.begin_transaction(self.client)
        self._leave(error)

    def commit(self, int milliseconds):
        """Commit; raises a retriable KafkaException where there is no answer yet."""
        self._within(rd_kafka.commit_transaction, milliseconds)

    def abort(self, int milliseconds):
        """Abort the Kafka transaction."""
        self._within(rd_kafka.abort_transaction, milliseconds)

    cdef int _within(self, LimitedCall call, int milliseconds) except -1:
        """Make a call that ends after so long at the latest; raise what it returns."""
        cdef void *error
        self._enter()
        with nogil:
            error = call(self.client, milliseconds)
        return self._leave(error)

    def poll(self, int milliseconds):
        """Collect acknowledgements; wait so long for the first one."""
        self._enter()
        with nogil:
            rd_kafka.poll(self.client, milliseconds)
        self._leave(NULL)

    def flush(self, int milliseconds):
        """Collect acknowledgements until none is missing; return how many are."""
        cdef int left
        self._enter()
        with nogil:
            rd_kafka.flush(self.client, milliseconds)
            left = rd_kafka.outq_len(self.client)
        self._leave(NULL)
        return left

    def take(self):
        """Return the runs (topic, partition, start, end) collected since the last call."""
        cdef Reports *reports = self.reports
        cdef AcknowledgedRun *run
        cdef size_t at
        if self.is_in_call:
            raise RuntimeError("two threads call one producer")
        if reports.is_out_of_memory:
            raise MemoryError
        taken = []
        for at in range(reports.count):
            run = &reports.runs[at]
            topic, partition = self.places.names[run.place]
            taken.append((topic, partition, run.start, run.end))
        for at in range(reports.count):
            reports.newest[reports.runs[at].place] = 0
        reports.count = 0
        return taken

    def send(self, records, size_t start):
        """Take records from `start` on; return how far there was room for them."""
        self._enter()
        try:
            if isinstance(records, Batch):
                return self._send_batch(records, start)
            return self._send_list(records, start)
        finally:
            self.is_in_call = False

    cdef bint _knows(self, int32_t place) noexcept nogil:
        return 0 <= place < <int64_t>self.target_room and self.targets[place].topic != NULL

    cdef int _know(self, int32_t place) except -1:
        """Have a target, and room for a run, of a place."""
        cdef size_t known = self.target_room, reported = self.reports.place_room
        cdef Target *target
        cdef const char *name
        if self._knows(place):
            return 0
        if not 0 <= place < len(self.places.names):
            raise IndexError(place)
        if <size_t>place >= known:
            grow(<void **>&self.targets, &self.target_room, place + 1, sizeof(Target))
            for at in range(known, self.target_room):
                self.targets[at].topic = NULL
            grow(<void **>&self.reports.newest, &self.reports.place_room, place + 1, sizeof(size_t))
            for at in range(reported, self.reports.place_room):
                self.reports.newest[at] = 0
        target = &self.targets[place]
        topic, target.partition = self.places.names[place]
        encoded = topic.encode()
        name = encoded
        with nogil:
            target.topic = rd_kafka.topic_new(self.client, name, NULL)
        if target.topic == NULL:
            from confluent_kafka import KafkaError, KafkaException

            raise KafkaException(KafkaError(rd_kafka.last_error(), f"topic {topic}"))
        return 0

    cdef void *_produce(self, int32_t place, Octets key, Octets value, void *headers) noexcept nogil:
        """Give librdkafka a copy of a record, and its headers; an error leaves them here."""
        cdef Argument arguments[7]
        cdef Target *target = &self.targets[place]
        cdef void *error
        arguments[0].kind, arguments[0].value.pointer = RD_KAFKA_VTYPE_RKT, target.topic
        arguments[1].kind, arguments[1].value.partition = RD_KAFKA_VTYPE_PARTITION, target.partition
        arguments[2].kind, arguments[2].value.octets = RD_KAFKA_VTYPE_VALUE, value
        arguments[3].kind, arguments[3].value.octets = RD_KAFKA_VTYPE_KEY, key
        arguments[4].kind, arguments[4].value.number = RD_KAFKA_VTYPE_MSGFLAGS, RD_KAFKA_MSG_F_COPY
        arguments[5].kind, arguments[5].value.pointer = RD_KAFKA_VTYPE_OPAQUE, <void *><intptr_t>place
        arguments[6].kind, arguments[6].value.pointer = RD_KAFKA_VTYPE_HEADERS, headers
        error = rd_kafka.produceva(self.client, arguments, 7 if headers != NULL else 6)
        if error != NULL and headers != NULL:
            rd_kafka.headers_destroy(headers)
        return error

    cdef size_t _send_list(self, records, size_t start) except? 0:
        cdef size_t at
        cdef int32_t place
        cdef void *error
        for at in range(start, len(records)):
            topic, partition, key, value, headers = records[at]
            place = self.places.number(topic, partition)
            self._know(place)
            error = self._produce(place, octets_of(key), octets_of(value), headers_of(headers))
            if error != NULL:
                return self._stopped(error, at)
        return len(records)

    cdef size_t _send_batch(self, Batch batch, size_t start) except? 0:
        cdef size_t at, key
        cdef size_t key_count = len(batch.keys)
        cdef Octets *keys
        cdef Octets value
        cdef Row *row
        cdef uint32_t current = 0
        cdef TransactionTexts texts
        cdef void *error = NULL
        if batch.places is not self.places:
            raise ValueError("a batch with other numbers of places")
        if start >= batch.row_count:
            return batch.row_count
        keys = <Octets *>malloc(max(key_count, 1) * sizeof(Octets))
        if keys == NULL:
            raise MemoryError
        try:
            for key in range(key_count):
                keys[key] = octets_of(batch.keys[key])
            with nogil:
                for at in range(start, batch.row_count):
                    row = &batch.rows[at]
                    if not is_inside(batch, row, key_count):
                        with gil:
                            raise IndexError(at)
                    if not self._knows(row.place):
                        with gil:
                            self._know(row.place)
                    if at == start or row.transaction != current:
                        current = row.transaction
                        write_transaction(&texts, batch.epoch, &batch.transactions_[current])
                    value.at, value.size = <const char *>batch.arena + row.value, row.size
                    if row.is_tombstone:
                        value.at = NULL
                    error = self._produce(row.place, keys[row.key], value, row_headers(&texts, row))
                    if error != NULL:
                        break
                else:
                    at = batch.row_count
        finally:
            free(keys)
        return at if error == NULL else self._stopped(error, at)

    cdef size_t _stopped(self, void *error, size_t at) except? 0:
        """How far there was room; any other reason is raised."""
        if rd_kafka.error_code(error) != RD_KAFKA_RESP_ERR__QUEUE_FULL:
            raise_error(error)
        rd_kafka.error_destroy(error)
        return at


cdef bint is_inside(Batch batch, Row *row, size_t key_count) noexcept nogil:
    """Say whether what a row points to is of its batch."""
    return (
        0 <= row.key < <int64_t>key_count
        and row.transaction < batch.transaction_count
        and row.value <= batch.arena_used
        and row.size <= batch.arena_used - row.value
    )


cdef Octets octets_of(found):
    """Where bytes are; NULL for None.  Valid as long as the object is."""
    cdef Octets made
    made.at, made.size = NULL, 0
    if found is not None:
        made.at, made.size = <const char *>found, len(found)
    return made


cdef void *headers_of(list headers) except? NULL:
    """librdkafka's list of (name, value); NULL: none."""
    cdef void *made
    if not headers:
        return NULL
    encoded = [(name.encode(), value) for name, value in headers]
    made = rd_kafka.headers_new(len(encoded))
    for name, value in encoded:
        rd_kafka.header_add(made, <const char *>name, len(name), <const char *>value, len(value))
    return made
