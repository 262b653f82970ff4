# Frames of a replication stream; `wire.replication.split` defines what this does.

def split(bytes data not None, size_t at, size_t max_bytes, list messages not None):
    """Append whole messages to `messages`; return where something else begins, or an end."""
    cdef const uint8_t *frame
    cdef const uint8_t *start = data
    cdef size_t size = len(data), length
    while at <= size and size - at >= 30:  # a frame up to the payload of XLogData
        frame = start + at
        length = big_endian_32(frame + 1)
        if frame[0] != c"d" or frame[5] != c"w" or not 29 <= length <= max_bytes:
            break
        if length >= size - at:  # its tag is not counted: it is not whole
            break
        payload = frame[30:length + 1]
        messages.append((big_endian_64(frame + 6), big_endian_64(frame + 14), payload))
        at += length + 1
    return at
