"""Several hosts of one cluster, of which one has the requested role.

They are tried in order, for every connection: after a switch-over the next
attempt finds the new primary.  A host that is down, or has another role, is
skipped; one that refuses the login is not, since the password is the same
everywhere and a wrong one locks the account.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from producer.errors import ConnectionLost, RoleDiffers, SourceError
from producer.sources.dial import ConnectionArguments

Opened = TypeVar("Opened")

_HOST: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::([0-9]{1,5}))?")
_SHOWN: Final = 200  # characters of each host's error


def targets(arguments: ConnectionArguments, hosts: Sequence[str]) -> list[ConnectionArguments]:
    """The same arguments for each host, written `name`, `name:port` or `[address]:port`.

    Without hosts: `arguments` itself.  Raises SourceError for an invalid host.
    """
    found = []
    for text in hosts:
        name, port = split_host(text, arguments.port)
        found.append(replace(arguments, host=name, port=port, hostaddr=""))
    return found or [arguments]


def split_host(text: str, default_port: int) -> tuple[str, int]:
    """Read a host and its port.

    Raises SourceError for what is no host.

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
    """Return the result of `attempt` for the first candidate that succeeds.

    Raises the error of the only candidate; RoleDiffers when all answer and none
    has the role; else ConnectionLost with the error of each.
    """
    return next(_opening(candidates, attempt))


def all_that_open(
    candidates: Sequence[ConnectionArguments], attempt: Callable[[ConnectionArguments], Opened]
) -> list[Opened]:
    """Return the results of `attempt` for each candidate that succeeds, at least one.

    Raises as `first_that_opens` does.
    """
    return list(_opening(candidates, attempt))


def _opening(
    candidates: Sequence[ConnectionArguments], attempt: Callable[[ConnectionArguments], Opened]
) -> Iterator[Opened]:
    errors: list[tuple[ConnectionArguments, ConnectionLost]] = []
    for candidate in candidates:
        try:
            opened = attempt(candidate)
        except ConnectionLost as error:
            if len(candidates) == 1:
                raise
            errors.append((candidate, error))
        except SourceError as error:
            if errors:
                error.where["before"] = _shown(errors)
            raise
        else:
            yield opened
    if len(errors) < len(candidates):
        return
    kind = (
        RoleDiffers
        if all(isinstance(error, RoleDiffers) for _, error in errors)
        else ConnectionLost
    )
    raise kind("no host accepted the connection", hosts=_shown(errors)) from errors[-1][1]


def _shown(errors: Sequence[tuple[ConnectionArguments, ConnectionLost]]) -> str:
    return " | ".join(f"{at.host}:{at.port}: {str(error)[:_SHOWN]}" for at, error in errors)
