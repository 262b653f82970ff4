"""What a prefix was written with, as one number."""

from dataclasses import replace

from producer.options import Options
from producer.publish import fingerprint
from producer.sources.dial import parse_dsn

OPTIONS = Options(
    source=parse_dsn("postgresql://cdc@127.0.0.1:5432/bank"),
    slot="s",
    publication="p",
    prefix="bank",
    client={},
    registry_url="",
    include=("public.*",),
    exclude=("a.b",),
)
SAID = {"publication": "p", "plugin": "pgoutput", "options": {"binary": "false"}}


def test_the_fingerprint_of_a_running_prefix_stays_what_release_0_1_computed() -> None:
    whole, rest = fingerprint(OPTIONS, SAID).split("-")
    other = fingerprint(replace(OPTIONS, include=("a.*",)), SAID)

    assert whole == "3eaffcb0556f4a2b667ed9057ce250c2"  # as running prefixes have it
    assert other.split("-")[0] != whole
    assert other.split("-")[1] == rest


def test_what_the_source_says_is_part_of_it() -> None:
    assert fingerprint(OPTIONS, SAID) != fingerprint(OPTIONS, {**SAID, "publication": "q"})
