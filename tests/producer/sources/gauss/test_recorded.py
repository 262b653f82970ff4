"""What `run` says of the way it decodes, and that recordings bear it out."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from producer.sources.decoders import Format
from producer.sources.gauss.options import Decoding, Effective, Terms, Vendor, effective
from producer.sources.gauss.recorded import (
    PROVEN,
    UNPROVEN,
    StreamForm,
    evidence,
    evidence_rows,
    form_of,
)
from producer.sources.gauss.server import Product as ServerProduct
from producer.sources.gauss.server import Server

GOLDEN = Path(__file__).parents[3] / "golden" / "opengauss"
STREAMS = ("capture_txns_*", "session_*", "restart_*")
SEVEN = Server(ServerProduct.OPENGAUSS, "7.0.0-RC2", True, "bank", "UTF8")
SERVERS = {
    "og3": replace(SEVEN, version="3.0.5"),
    "og5": replace(SEVEN, version="5.0.1"),
    "og6": replace(SEVEN, version="6.0.0"),
    "og7": SEVEN,
    "gaussdb": Server(ServerProduct.GAUSSDB, "505.2.0", True, "bank", "UTF8"),
}


def asked(plugin: str, **options: str) -> Effective:
    """What a stream that was started with exactly these options is."""
    named = {name.replace("_", "-"): text for name, text in options.items()}
    is_parallel = int(named.get("parallel-decode-num", "1")) > 1
    return Effective(
        options=tuple(named.items()),
        format=Format(
            plugin, named.get("decode-style", "")[:1], named.get("sending-batch") == "1", "utf-8"
        ),
        mode=Decoding.PARALLEL if is_parallel else Decoding.SERIAL,
        product=Vendor.OPENGAUSS,
        plugin=plugin,
        interface="stream",
        ordered_by="lsn",
        status_seconds=10.0,
    )


def decided(**options: str) -> Effective:
    """What we ask for with these options in the configuration."""
    terms = Terms(product=Vendor.OPENGAUSS, plugin="mppdb_decoding")
    return effective({name.replace("_", "-"): text for name, text in options.items()}, terms)


def recorded_forms() -> set[StreamForm]:
    forms = set()
    for path in sorted(path for name in STREAMS for path in GOLDEN.glob(f"{name}.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            header = json.loads(next(file))
        if "plugin" in header and header.get("options") is not None:
            options = {name.replace("-", "_"): text for name, text in header["options"]}
            forms.add(form_of(asked(header["plugin"], **options)))
    return forms


def test_proven_is_what_was_recorded_and_nothing_else() -> None:
    assert recorded_forms() == PROVEN


@pytest.mark.parametrize("style", ["b", "j", "t"])
@pytest.mark.parametrize("batch", ["0", "1"])
def test_parallel_decoding_with_what_we_set_was_seen_on_a_server(style: str, batch: str) -> None:
    options = {"parallel_decode_num": "4", "decode_style": style, "sending_batch": batch}

    said = {name: evidence(server, decided(**options)) for name, server in SERVERS.items()}

    assert said.pop("og7") == "proven"
    assert all(words.startswith("unproven: ") for words in said.values())


def test_another_version_or_product_is_named() -> None:
    assert evidence(SERVERS["og6"], decided()).startswith("unproven: openGauss 6")
    assert "GaussDB" in evidence(SERVERS["gaussdb"], decided())


def test_serial_decoding_without_empty_transactions_was_seen_without_xids_only() -> None:
    assert evidence(SEVEN, decided()) == "unproven: these options together were not recorded"


@pytest.mark.parametrize(
    "stream",
    [
        asked("mppdb_decoding", include_xids="false"),
        asked("sql_decoding", skip_empty_xacts="true"),
        asked("mppdb_decoding", white_table_list="public.*"),
        asked("mppdb_decoding", parallel_decode_num="2", skip_empty_xacts="true"),
        asked("mppdb_decoding", parallel_decode_num="2"),
        asked("test_decoding", parallel_decode_num="2", include_timestamp="true"),
        asked("mppdb_decoding", parallel_decode_num="2", include_originid="true"),
    ],
    ids=lambda stream: str(stream.options),
)
def test_one_more_option_is_not_proven(stream: Effective) -> None:
    assert evidence(SEVEN, stream).startswith("unproven: ")


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("include_user", "user names"),
        ("enable_heartbeat", "heartbeats"),
        ("enable_ddl_decoding", "DDL in parallel"),
        ("output_order", "CSN"),
        ("white_table_list", "white-table-list"),
    ],
)
def test_what_only_the_manual_knows_is_named(option: str, word: str) -> None:
    value = {"output_order": "1", "white_table_list": "public.*"}.get(option, "true")
    stream = asked("mppdb_decoding", parallel_decode_num="2", **{option: value})

    assert word in evidence(SERVERS["gaussdb"], stream)


def test_the_number_of_decoders_does_not_matter() -> None:
    stream = asked("mppdb_decoding", parallel_decode_num="20", include_timestamp="true")

    assert evidence(SEVEN, stream) == "proven"


def test_every_row_of_the_table_names_its_source() -> None:
    assert all(each.source for each in UNPROVEN)
    assert all(source for _, _, source in evidence_rows())
