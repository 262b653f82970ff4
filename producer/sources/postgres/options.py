"""Options of PostgreSQL's pgoutput: one table, the check of values, and what is sent.

Source: PostgreSQL manual, "Logical Streaming Replication Parameters", and pgoutput.c
of 10 to 18.  The documentation's table is made from this one; there is no second list.

The decoder reads protocol version 1 with values as text, and the engine counts whole
transactions in commit order.  An operator may not set an option that changes this,
or that decides which tables are sent independently of [tables].
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from producer.errors import OptionRefused
from producer.wire.commands import name_list

_BOOLEAN: Final = {"true": "true", "on": "true", "false": "false", "off": "false"}


class PgoutputTreatment(StrEnum):
    """Who decides about an option."""

    OURS = "set by us"
    YOURS = "yours"
    REFUSED = "only its default is accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PgoutputOption:
    """One option of pgoutput."""

    name: str
    since: int  # first major version of the server that has it
    values: Mapping[str, str]  # allowed values in lower case -> one spelling; {}: nothing
    all_values: str  # the server's, for display
    default: str  # the server's; "" = it must be given
    treatment: PgoutputTreatment
    meaning: str
    why: str = ""  # the reason for its treatment
    instead: str = ""  # what to do instead of a refused value


_NO: Final = {text: value for text, value in _BOOLEAN.items() if value == "false"}

OPTIONS: Final = (
    PgoutputOption(
        name="proto_version",
        since=10,
        values={"1": "1"},
        all_values="1 to 4",
        default="",
        treatment=PgoutputTreatment.OURS,
        meaning="Version of the protocol.",
        why="1 sends whole transactions in commit order; the others add what we refuse",
        instead="leave it out",
    ),
    PgoutputOption(
        name="publication_names",
        since=10,
        values={},
        all_values="names",
        default="",
        treatment=PgoutputTreatment.OURS,
        meaning="Publications whose tables are sent.",
        why="another name than `[source] publication` would silently lose its tables",
        instead='write `publication = "…"` in [source]',
    ),
    PgoutputOption(
        name="messages",
        since=14,
        values={text: value for text, value in _BOOLEAN.items() if value == "true"},
        all_values="true or false",
        default="false",
        treatment=PgoutputTreatment.OURS,
        meaning="Logical messages (`pg_logical_emit_message`).",
        why="always true; `[kafka] messages` says whether those of applications are recorded",
        instead="leave it out, or set `[kafka] messages`",
    ),
    PgoutputOption(
        name="origin",
        since=16,
        values={"any": "any", "none": "none"},
        all_values="any or none",
        default="any",
        treatment=PgoutputTreatment.YOURS,
        meaning="`none` leaves out changes that came by replication from elsewhere, TRUNCATE and "
        "logical messages, too. First loads still copy such rows. The target is then not a full "
        "copy, as `status` says. To change it needs a new epoch (`run --accept-gap`).",
    ),
    PgoutputOption(
        name="binary",
        since=14,
        values=_NO,
        all_values="true or false",
        default="false",
        treatment=PgoutputTreatment.REFUSED,
        meaning="Values in the binary form of their types.",
        why="values are read as text, which is the same in every version",
        instead="leave it out",
    ),
    PgoutputOption(
        name="streaming",
        since=14,
        values=_NO,
        all_values="true or false; parallel from 16 on",
        default="false",
        treatment=PgoutputTreatment.REFUSED,
        meaning="Sends large transactions before they end.",
        why="transactions are interleaved then; we read whole ones in commit order",
        instead="leave it out; at the source `logical_decoding_work_mem` bounds the memory",
    ),
    PgoutputOption(
        name="two_phase",
        since=15,
        values=_NO,
        all_values="true or false",
        default="false",
        treatment=PgoutputTreatment.REFUSED,
        meaning="Sends prepared transactions at PREPARE TRANSACTION.",
        why="it may still be rolled back; we read it at COMMIT PREPARED",
        instead="leave it out",
    ),
)
BY_NAME: Final = {option.name: option for option in OPTIONS}
_MAJOR: Final = 10_000


def problems(options: Mapping[str, str], *, version: int | None = None) -> Iterator[OptionRefused]:
    """Find the errors in the operator's options, option by option.

    `version` is the server's (150018 for 15.18); without it only what every server refuses
    is found.  Each error's `where["option"]` is the option's name.
    """
    for name, text in options.items():
        if (refused := _problem(name, text, version)) is not None:
            yield refused


def no_messages(version: int) -> OptionRefused | None:
    """Say that this server sends no logical messages; None: it does."""
    if version // _MAJOR >= (since := BY_NAME["messages"].since):
        return None
    return OptionRefused(
        "this server's pgoutput does not send logical messages",
        option="[kafka] messages",
        server=version // _MAJOR,
        since=since,
        hint="leave it out",
    )


def _problem(name: str, text: str, version: int | None) -> OptionRefused | None:
    option = BY_NAME.get(name)
    if option is None:
        return OptionRefused(
            "unknown option of pgoutput", option=name, value=text, hint=_near(name)
        )
    value = option.values.get(text.strip().lower())
    if value is None:
        rule = (
            f"set by us: {option.why}" if option.treatment is PgoutputTreatment.OURS else option.why
        )
        return OptionRefused(
            rule or "not one of its values",
            option=name,
            value=text,
            range=option.all_values,
            hint=option.instead,
        )
    if version is not None and version // _MAJOR < option.since and value != option.default:
        return OptionRefused(
            "this server's pgoutput does not have the option",
            option=name,
            value=text,
            server=version // _MAJOR,
            since=option.since,
            hint="leave it out",
        )
    return None


def _near(name: str) -> str:
    meant = difflib.get_close_matches(name.strip().lower().replace("-", "_"), BY_NAME, 1)
    return f"did you mean {meant[0]}?" if meant else f"pgoutput has {', '.join(BY_NAME)}"


def effective(options: Mapping[str, str], *, publication: str, version: int) -> dict[str, str]:
    """Return the options of START_REPLICATION; raise OptionRefused for an invalid one."""
    for refused in problems(options, version=version):
        raise refused
    sent = {"proto_version": "1", "publication_names": name_list([publication])}
    if version // _MAJOR >= BY_NAME["messages"].since:
        sent["messages"] = "true"
    return {**sent, **removing(options)}


def removing(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that omit changes: part of an epoch's content.

    >>> removing({"origin": "None", "binary": "false"}), removing({"origin": "any"})
    ({'origin': 'none'}, {})
    """
    return {"origin": "none"} if options.get("origin", "").strip().lower() == "none" else {}


def why_not_full(options: Mapping[str, str]) -> str:
    """Return the sentence that `status` shows; "" where the target can be a full copy."""
    if not removing(options):
        return ""
    return (
        "the target is not a full copy because origin = none omits changes that were replicated "
        "to the source from elsewhere"
    )
