"""Options that omit changes: part of an epoch's content, and shown by `status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from producer.sources.gauss.options import values
from producer.sources.gauss.options.table import BY_NAME, OPTIONS

_REMOVING: Final = tuple(option.name for option in OPTIONS if option.removes)


def removing(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that omit changes, in one spelling, sorted.

    They are part of the epoch's fingerprint; the other options are not.
    """
    out = {}
    for name in sorted(_REMOVING):
        text = options.get(name, "")
        if name == "only-local":
            if not text or not values.boolean(text):
                continue
            text = "true"
        elif name == "white-table-list":
            text = ",".join(sorted(f"{s}.{t}" for s, t in values.tables(text, blanks=True)))
        elif text:
            text = ",".join(sorted(set(text.split(","))))
        if text:
            out[name] = text
    return out


def removing_text(options: Mapping[str, str]) -> str:
    """Return them as one line; "" where nothing is removed.

    >>> removing_text({"only-local": "on", "exclude-users": "b,a", "sender-timeout": "60s"})
    'exclude-users=a,b; only-local=true'
    """
    return "; ".join(f"{name}={text}" for name, text in removing(options).items())


def why_not_full(options: Mapping[str, str]) -> str:
    """Return the sentence that `status` shows; "" where the target can be a full copy."""
    if not (found := removing(options)):
        return ""
    reasons = [f"{name} = {text} omits {BY_NAME[name].removes}" for name, text in found.items()]
    return f"the target is not a full copy because {', and '.join(reasons)}"
