# What became of each key in a batch: an open-addressing table of the keys' texts.

from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memset

import os

cdef enum:
    ABSENT = -1  # no row has the key, and the target need not know
    GONE = -2  # the target's row goes
    FRESH = 1  # the key begins in the batch, and no row had it before
    BEGUN = 2  # the same, where its row goes through the staging table, or is gone again


cdef struct KeyState:
    uint64_t hash
    size_t start, end  # of the key, in the text of all keys
    int64_t where  # index of its row, or ABSENT, GONE
    uint8_t flags


# Keys are others' values: whoever knows the seed could make them meet each other.
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


cdef class KeyStates:
    """States in the order in which their keys came."""

    cdef Text keys
    cdef KeyState *states
    cdef size_t count, room
    cdef uint32_t *slots  # 1 + number of a state; 0: free
    cdef size_t width  # of `slots`, a power of two

    def __dealloc__(self):
        free(self.keys.bytes)
        free(self.states)
        free(self.slots)

    cdef void clear(self) noexcept:
        self.keys.used = self.count = 0
        if self.width:
            memset(self.slots, 0, self.width * sizeof(uint32_t))

    cdef Py_ssize_t find(self, size_t start) except -1:
        """Return the number of the state of a key, which stands at the end of `keys` from here."""
        cdef size_t at, size = self.keys.used - start
        cdef const char *key = self.keys.bytes + start
        cdef uint64_t hash = hashed(key, size)
        cdef KeyState *known
        if 2 * self.count >= self.width:
            self._widen()
        at = hash & (self.width - 1)
        while self.slots[at]:
            known = &self.states[self.slots[at] - 1]
            if (
                known.hash == hash
                and known.end - known.start == size
                and not memcmp(self.keys.bytes + known.start, key, size)
            ):
                self.keys.used = start
                return self.slots[at] - 1
            at = (at + 1) & (self.width - 1)
        self._append(hash, start)
        self.slots[at] = <uint32_t>self.count
        return self.count - 1

    cdef int _append(self, uint64_t hash, size_t start) except -1:
        cdef size_t wanted
        cdef void *moved
        if self.count == self.room:
            wanted = max(<size_t>64, 2 * self.room)
            moved = realloc(self.states, wanted * sizeof(KeyState))
            if moved == NULL:
                raise MemoryError
            self.states, self.room = <KeyState *>moved, wanted
        self.states[self.count].hash = hash
        self.states[self.count].start = start
        self.states[self.count].end = self.keys.used
        self.states[self.count].where = ABSENT
        self.states[self.count].flags = 0
        self.count += 1
        return 0

    cdef int _widen(self) except -1:
        cdef size_t at, place, width = max(<size_t>256, 2 * self.width)
        cdef uint32_t *slots = <uint32_t *>realloc(NULL, width * sizeof(uint32_t))
        if slots == NULL:
            raise MemoryError
        memset(slots, 0, width * sizeof(uint32_t))
        for at in range(self.count):
            place = self.states[at].hash & (width - 1)
            while slots[place]:
                place = (place + 1) & (width - 1)
            slots[place] = <uint32_t>(at + 1)
        free(self.slots)
        self.slots, self.width = slots, width
        return 0


cdef uint64_t mix(uint64_t number) noexcept:
    """Splitmix64, by Sebastiano Vigna."""
    number += 0x9E3779B97F4A7C15ULL
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9ULL
    number = (number ^ number >> 27) * 0x94D049BB133111EBULL
    return number ^ number >> 31


cdef void end_state(KeyState *state) noexcept:
    """The key's row goes."""
    if state.flags & FRESH:
        state.flags = BEGUN
        state.where = ABSENT
    else:
        state.where = GONE


cdef uint64_t hashed(const char *start, size_t size) noexcept:
    cdef uint64_t word, hash = SEED ^ size
    while size:
        word = 0
        memcpy(&word, start, min(size, <size_t>8))
        hash = mix(hash ^ word)
        start += min(size, <size_t>8)
        size -= min(size, <size_t>8)
    return hash
