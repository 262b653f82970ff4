"""The machine's clocks."""

import time


class SystemClock:
    """The machine's clocks, as a port of the loop."""

    now = staticmethod(time.monotonic)

    @staticmethod
    def wall_us() -> int:
        """µs since 1970."""
        return time.time_ns() // 1000
