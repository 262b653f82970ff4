# librdkafka of the confluent-kafka wheel, as both native modules call it.
#
# Its functions are found in the library that the wheel has loaded, so no header is needed to
# build; the few types are declared here.  librdkafka never changes a function or a struct of
# rdkafka.h, nor adds a field ("API and ABI compatibility guarantees" in its CONTRIBUTING.md), so
# every later 2.x is taken.  `make librdkafka` shows it: it runs the tests of both halves with the
# oldest library that is taken and with the newest one.

from libc.stdint cimport int32_t, int64_t
from posix.dlfcn cimport RTLD_LOCAL, RTLD_NOW, dlerror, dlopen, dlsym

cdef enum:
    FIRST_VERSION = 0x02020000  # inclusive: 2.2.0, the first that has fetch.queue.backoff.ms
    END_VERSION = 0x03000000  # exclusive: 3.0.0, where the promise may end
    TEXT_SIZE = 512  # for librdkafka's explanations

# As in rdkafka.h
cdef enum:
    RD_KAFKA_PRODUCER = 0
    RD_KAFKA_CONSUMER = 1
    RD_KAFKA_MSG_F_COPY = 2
    RD_KAFKA_PURGE_F_QUEUE = 1
    RD_KAFKA_PURGE_F_INFLIGHT = 2
    RD_KAFKA_RESP_ERR__PARTITION_EOF = -191
    RD_KAFKA_RESP_ERR__QUEUE_FULL = -184
    RD_KAFKA_RESP_ERR__FATAL = -150
    RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET = -140
    RD_KAFKA_VTYPE_RKT = 2
    RD_KAFKA_VTYPE_PARTITION = 3
    RD_KAFKA_VTYPE_VALUE = 4
    RD_KAFKA_VTYPE_KEY = 5
    RD_KAFKA_VTYPE_OPAQUE = 6
    RD_KAFKA_VTYPE_MSGFLAGS = 7
    RD_KAFKA_VTYPE_HEADERS = 10


cdef struct KafkaMessage:  # rd_kafka_message_t
    int error
    void *topic
    int32_t partition
    void *value
    size_t value_size
    void *key
    size_t key_size
    int64_t offset
    void *opaque


cdef struct Octets:
    const void *at
    size_t size


cdef union ArgumentValue:
    void *pointer
    int number
    int32_t partition
    Octets octets
    char reserved[64]


cdef struct Argument:  # rd_kafka_vu_t
    int kind
    ArgumentValue value


ctypedef void (*OnDelivery)(void *, const KafkaMessage *, void *) noexcept nogil
ctypedef void (*OnError)(void *, int, const char *, void *) noexcept nogil
ctypedef void *(*LimitedCall)(void *, int) noexcept nogil  # client, milliseconds -> error
ctypedef void (*OnLog)(const void *, int, const char *, const char *) noexcept nogil


cdef struct Functions:  # as rdkafka.h declares them; all pointers to its types are void *
    int (*version)() noexcept nogil
    const char *(*version_str)() noexcept nogil
    void *(*conf_new)() noexcept nogil
    void (*conf_destroy)(void *) noexcept nogil
    int (*conf_set)(void *, const char *, const char *, char *, size_t) noexcept nogil
    void (*conf_set_opaque)(void *, void *) noexcept nogil
    void (*conf_set_dr_msg_cb)(void *, OnDelivery) noexcept nogil
    void (*conf_set_error_cb)(void *, OnError) noexcept nogil
    void (*conf_set_log_cb)(void *, OnLog) noexcept nogil
    void *(*new_)(int, void *, char *, size_t) noexcept nogil
    void (*destroy)(void *) noexcept nogil
    void *(*opaque)(const void *) noexcept nogil
    const char *(*name)(const void *) noexcept nogil
    int (*set_log_queue)(void *, void *) noexcept nogil
    void *(*topic_new)(void *, const char *, void *) noexcept nogil
    void (*topic_destroy)(void *) noexcept nogil
    int (*last_error)() noexcept nogil
    void *(*headers_new)(size_t) noexcept nogil
    void (*headers_destroy)(void *) noexcept nogil
    int (*header_add)(void *, const char *, ssize_t, const void *, ssize_t) noexcept nogil
    void *(*produceva)(void *, const Argument *, size_t) noexcept nogil
    int (*poll)(void *, int) noexcept nogil
    int (*flush)(void *, int) noexcept nogil
    int (*outq_len)(void *) noexcept nogil
    int (*purge)(void *, int) noexcept nogil
    LimitedCall init_transactions
    void *(*begin_transaction)(void *) noexcept nogil
    LimitedCall commit_transaction
    LimitedCall abort_transaction
    int (*error_code)(const void *) noexcept nogil
    const char *(*error_string)(const void *) noexcept nogil
    int (*error_is_fatal)(const void *) noexcept nogil
    int (*error_is_retriable)(const void *) noexcept nogil
    int (*error_txn_requires_abort)(const void *) noexcept nogil
    void (*error_destroy)(void *) noexcept nogil
    int (*fatal_error)(void *, char *, size_t) noexcept nogil
    int (*metadata)(void *, int, void *, const void **, int) noexcept nogil
    void (*metadata_destroy)(const void *) noexcept nogil
    int (*consume_start)(void *, int32_t, int64_t) noexcept nogil
    int (*consume_stop)(void *, int32_t) noexcept nogil
    ssize_t (*consume_batch)(void *, int32_t, int, KafkaMessage **, size_t) noexcept nogil
    void (*message_destroy)(KafkaMessage *) noexcept nogil


# In the order of the struct.
cdef tuple NAMES = (
    "version", "version_str", "conf_new", "conf_destroy", "conf_set", "conf_set_opaque",
    "conf_set_dr_msg_cb", "conf_set_error_cb", "conf_set_log_cb", "new", "destroy", "opaque",
    "name", "set_log_queue", "topic_new", "topic_destroy", "last_error", "headers_new",
    "headers_destroy", "header_add", "produceva", "poll", "flush", "outq_len", "purge",
    "init_transactions", "begin_transaction", "commit_transaction", "abort_transaction",
    "error_code", "error_string", "error_is_fatal", "error_is_retriable",
    "error_txn_requires_abort", "error_destroy", "fatal_error", "metadata", "metadata_destroy",
    "consume_start", "consume_stop", "consume_batch", "message_destroy",
)

cdef Functions rd_kafka  # one library a process; filled by `find_librdkafka`


class LibraryRefused(Exception):
    """There is no librdkafka that this module knows, or it refuses the settings."""


def is_known(int version):
    """Say whether the types above are those of this version."""
    return FIRST_VERSION <= version < END_VERSION


def find_librdkafka(str path):
    """Find the functions in the module at `path`, or in a library that it was linked with."""
    global rd_kafka
    cdef Functions found
    cdef void **slots = <void **>&found
    cdef void *library
    cdef const char *why
    cdef Py_ssize_t at
    if len(NAMES) * sizeof(void *) != sizeof(Functions):
        raise LibraryRefused("names and functions differ in number")
    library = dlopen(path.encode(), RTLD_NOW | RTLD_LOCAL)
    if library == NULL:
        why = dlerror()
        raise LibraryRefused("not loaded" if why == NULL else why.decode("utf-8", "replace"))
    for at in range(len(NAMES)):
        name = f"rd_kafka_{NAMES[at]}"
        slots[at] = dlsym(library, name.encode())
        if slots[at] == NULL:
            raise LibraryRefused(f"no function {name} in {path}")
    if not is_known(found.version()):
        raise LibraryRefused(f"librdkafka {found.version_str().decode()} is not known")
    rd_kafka = found


cdef void *settings_of(list settings) except NULL:
    """librdkafka's settings of (name, value), for `client_of`; raises LibraryRefused."""
    cdef char why[512]
    cdef void *conf
    if rd_kafka.new_ == NULL:
        raise LibraryRefused("librdkafka was not looked for")
    conf = rd_kafka.conf_new()
    for name, value in settings:
        if rd_kafka.conf_set(conf, name.encode(), value.encode(), why, TEXT_SIZE):
            rd_kafka.conf_destroy(conf)
            raise LibraryRefused(why.decode("utf-8", "replace"))
    return conf


cdef void *client_of(int kind, void *conf) except NULL:
    """Make a client, which owns its settings; raises LibraryRefused."""
    cdef char why[512]
    cdef void *client
    with nogil:
        client = rd_kafka.new_(kind, conf, why, TEXT_SIZE)
    if client == NULL:
        rd_kafka.conf_destroy(conf)
        raise LibraryRefused(why.decode("utf-8", "replace"))
    return client
