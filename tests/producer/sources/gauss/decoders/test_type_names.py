"""Types that recorded streams tell by name are those of the recorded catalog."""

import gzip
import json
from pathlib import Path

import pytest

from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.decoders.messages import NamedChange
from schemas.types.names import oid_of

GOLDEN = Path(__file__).parents[4] / "golden" / "opengauss"
FORMATS = {
    "ser_mppdb": Format("mppdb_decoding"),
    "ser_test": Format("test_decoding"),
    "par_t_batch0": Format("mppdb_decoding", "t"),
    "par_j_batch1": Format("mppdb_decoding", "j", batch=True),
}
CLOB, TEXT = 90, 25


def unpacked(name: str) -> bytes:
    return gzip.decompress((GOLDEN / name).read_bytes())


def told_types(workload: str, mode: str) -> dict[tuple[str, str], str]:
    """Table and column -> the type's name in the stream."""
    form, reported = FORMATS[mode], {}
    naming = NAMING[form.plugin, form.style](form)
    for line in unpacked(f"capture_{workload}_{mode}.jsonl.gz").splitlines()[1:]:
        message = json.loads(line)
        if message.get("sub") != "w":
            continue
        for position, record in naming.split(0, bytes.fromhex(message["hex"])[25:]):
            change = naming.decode(position, record)
            if isinstance(change, NamedChange):
                for row in filter(None, (change.new, change.old)):
                    for name, type_name in zip(row.shape.names, row.shape.types, strict=True):
                        reported[change.table, name] = type_name
    return reported


@pytest.mark.parametrize("mode", FORMATS)
@pytest.mark.parametrize("workload", ["types_a", "types_pg"])
def test_names_in_streams_lead_to_the_catalogs_oids(workload: str, mode: str) -> None:
    tables = json.loads(unpacked(f"tables_{workload}.json.gz"))["tables"]
    real = {(t["table"], c["name"]): c["type_oid"] for t in tables for c in t["columns"]}

    reported = told_types(workload, mode)

    assert len(reported) == len(real)
    found = {place: oid_of(name) for place, name in reported.items()}
    other = {(oid, real[place]) for place, oid in found.items() if oid != real[place]}
    assert other - {(None, oid) for oid in real.values() if oid >= 16384} == {(TEXT, CLOB)}
