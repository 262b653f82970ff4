"""What `run` says of the way it decodes."""

import pytest

from gauss_cdc.proof import proof
from producer.sources.gauss.options import Product, Terms, effective
from producer.sources.gauss.server import Product as ServerProduct
from producer.sources.gauss.server import Server

SEVEN = Server(ServerProduct.OPENGAUSS, "7.0.0-RC2", True, "bank", "UTF8")
SIX = Server(ServerProduct.OPENGAUSS, "6.0.0", True, "bank", "UTF8")
GAUSSDB = Server(ServerProduct.GAUSSDB, "505.2.0", True, "bank", "UTF8")


def decided(**options: str):
    terms = Terms(product=Product.OPENGAUSS, plugin="mppdb_decoding")
    return effective({name.replace("_", "-"): text for name, text in options.items()}, terms)


@pytest.mark.parametrize("style", ["b", "j", "t"])
@pytest.mark.parametrize("batch", ["0", "1"])
def test_parallel_decoding_with_what_we_set_was_seen_on_a_server(style: str, batch: str) -> None:
    options = {"parallel_decode_num": "4", "decode_style": style, "sending_batch": batch}

    assert proof(SEVEN, decided(**options)) == "proven"


def test_serial_decoding_without_empty_transactions_was_seen_without_xids_only() -> None:
    assert proof(SEVEN, decided()) == "unproven: these options together were not recorded"


def test_another_version_or_product_is_unproven() -> None:
    assert proof(SIX, decided()).startswith("unproven: openGauss 6")
    assert "GaussDB" in proof(GAUSSDB, decided())


def test_an_option_that_no_recording_has_is_named() -> None:
    said = proof(SEVEN, decided(white_table_list="public.*"))

    assert said.startswith("unproven: white-table-list")
