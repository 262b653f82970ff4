"""`status --watch`: look after look on a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from queue import SimpleQueue
from typing import Final, TypeAlias

from rich.live import Live
from rich.table import Table

from gauss_cdc.config import Config
from gauss_cdc.inspect.look import standing_table
from gauss_cdc.inspect.places import Endpoints, ReplicationStatus
from gauss_cdc.watch import StopSignal, console

_PATIENCE: Final = 0.1  # seconds for which a stop is not noticed
_FIRST: Final = "looks at source, Kafka and target …"
_LEAST: Final = 0.2  # seconds between two looks

Ways: TypeAlias = Mapping[str, Mapping[str, int]]  # of `standing_table`
WaysTold: TypeAlias = Callable[[Config], Ways]
Seen: TypeAlias = tuple[ReplicationStatus, Ways]


def watch_standing(config: Config, every: float, stop: StopSignal, ways_told: WaysTold) -> None:
    """Draw where everything stands until stopped; `every`: seconds between two looks.

    A thread looks: one at a place that is silent takes half a minute, and Ctrl-C works meanwhile.

    Raises what a look raised.
    """
    looks: SimpleQueue[Seen | BaseException] = SimpleQueue()
    threading.Thread(
        target=_look, args=(config, every, stop, looks.put, ways_told), name="look", daemon=True
    ).start()
    with Live(_FIRST, console=console, auto_refresh=False) as live:
        while not stop.asked(_PATIENCE):
            while not looks.empty():
                found = looks.get()
                if isinstance(found, BaseException):
                    raise found
                live.update(_drawn(*found, every), refresh=True)


def _drawn(standing: ReplicationStatus, ways: Ways, every: float) -> Table:
    table = standing_table(standing, ways)
    table.caption = f"{datetime.now().astimezone():%H:%M:%S}, every {every:g} s; Ctrl-C ends"
    return table


def _look(
    config: Config,
    every: float,
    stop: StopSignal,
    hand_on: Callable[[Seen | BaseException], None],
    ways_told: WaysTold,
) -> None:
    """Look again and again; connections are made anew where a place did not answer."""
    try:
        while not stop.asked():
            with Endpoints(config) as places:
                is_whole = True
                while is_whole and not stop.asked():
                    standing = places.standing()
                    hand_on((standing, ways_told(config)))
                    is_whole = not standing.down
                    stop.asked(max(every, _LEAST))
    except BaseException as error:  # noqa: BLE001  raised by who draws
        hand_on(error)
