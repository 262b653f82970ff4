"""Several hosts of one cluster, of which one plays the role we ask for.

They are tried in order, at every connection anew: after a switch-over the next
attempt finds the new primary.  A host that is down, or plays another role, is
passed by; one that refuses the login is not, since the password is the same
everywhere and a wrong one locks the account.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias, TypeVar

from producer.errors import ConnectionLost, RoleDiffers, SourceError
from producer.sources.dial import ConnectionArguments

Role: TypeAlias = Literal["primary", "standby", "any"]
Opened = TypeVar("Opened")

_HOST: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::([0-9]{1,5}))?")
_SHOWN: Final = 200  # characters of what each host said


def targets(arguments: ConnectionArguments, hosts: Sequence[str]) -> list[ConnectionArguments]:
    """The same arguments for each host, written `name`, `name:port` or `[address]:port`.

    Without hosts: `arguments` itself.  Raises SourceError for a text that is no host.
    """
    found = []
    for text in hosts:
        name, port = split_host(text, arguments.port)
        found.append(replace(arguments, host=name, port=port, hostaddr=""))
    return found or [arguments]


def split_host(text: str, default_port: int) -> tuple[str, int]:
    """Read a host and its port.

    >>> split_host("db1:8000", 5432), split_host("[::1]", 5432)
    (('db1', 8000), ('::1', 5432))
    """
    if (found := _HOST.fullmatch(text)) is None:
        raise SourceError("not a host", host=text, hint="write name:port, or [address]:port")
    address, name, port = found.groups()
    return address or name, int(port) if port else default_port


def first_that_opens(
    candidates: Sequence[ConnectionArguments], attempt: Callable[[ConnectionArguments], Opened]
) -> Opened:
    """Give what `attempt` makes of the first candidate that lets it.

    Raises what the only candidate said; RoleDiffers when all answer and none
    plays the role; else ConnectionLost with what each said.
    """
    said: list[tuple[ConnectionArguments, ConnectionLost]] = []
    for candidate in candidates:
        try:
            return attempt(candidate)
        except ConnectionLost as error:
            if len(candidates) == 1:
                raise
            said.append((candidate, error))
        except SourceError as error:
            if said:
                error.where["before"] = _told(said)
            raise
    kind = (
        RoleDiffers if all(isinstance(error, RoleDiffers) for _, error in said) else ConnectionLost
    )
    raise kind("no host took us in", hosts=_told(said)) from said[-1][1]


def _told(said: Sequence[tuple[ConnectionArguments, ConnectionLost]]) -> str:
    return " | ".join(f"{at.host}:{at.port}: {str(error)[:_SHOWN]}" for at, error in said)
