# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native part of the consumers; `spark_consumers.native` says what it is for.

Nothing here decides anything.  What it writes has a definition in Python, and the tests compare
them byte by byte; what it does not expect, it leaves to Python.
"""

include "avro.pxi"
include "copy_text.pxi"
include "cell_texts.pxi"
include "framed_rows.pxi"
include "key_states.pxi"
include "packed_rows.pxi"
include "value_rows.pxi"
include "arrow_rows.pxi"
include "commits.pxi"
include "../../schemas/native/librdkafka.pxi"
include "kafka.pxi"
