"""Recorded sessions with an openGauss 7 server: tests/golden/opengauss, README there."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden" / "opengauss"
SESSIONS = sorted(
    path.name.removesuffix(".jsonl.gz")
    for kind in ("session", "restart")
    for path in GOLDEN.glob(f"{kind}_*.jsonl.gz")
)


@dataclass
class Conversation:
    """One TCP connection: what was said in order, and how the recording names its case."""

    header: dict[str, Any]
    case: str = ""
    said: list[tuple[str, bytes]] = field(default_factory=list)  # (C or S, message)

    @property
    def client(self) -> list[bytes]:
        return [message for who, message in self.said if who == "C"]

    @property
    def server(self) -> list[bytes]:
        return [message for who, message in self.said if who == "S"]


def conversations(name: str) -> list[Conversation]:
    found: dict[int, Conversation] = {}
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        header = json.loads(next(lines))
        for line in lines:
            event = json.loads(line)
            talk = found.setdefault(event["conn"], Conversation(header))
            if "hex" in event:
                talk.said.append((event["dir"], bytes.fromhex(event["hex"])))
            elif event["note"].startswith("CASE: "):
                talk.case = event["note"].removeprefix("CASE: ")
    return list(found.values())


def all_conversations() -> Iterator[Conversation]:
    for name in SESSIONS:
        yield from conversations(name)
