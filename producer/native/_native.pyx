# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The native parts of the producer; each file below is one of them.

Nothing here decides anything: `core` does.  Each part has a twin in Python, and the tests
compare them byte by byte.
"""

include "batch.pxi"
include "cells.pxi"
include "encode.pxi"
include "rows.pxi"
include "named.pxi"
include "held.pxi"
include "walk.pxi"
include "frames.pxi"
include "tally.pxi"
include "chunk.pxi"
include "../../schemas/native/librdkafka.pxi"
include "kafka.pxi"
