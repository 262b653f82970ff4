"""Our table against the emulator's, which somebody else wrote from the same texts."""

from collections.abc import Callable, Iterator

import pytest

from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.options import parallel_decode_num, read, read_of_function
from producer.errors import OptionRefused
from producer.sources.gauss.options import (
    BY_NAME,
    OPTIONS,
    PLUGINS,
    Decoding,
    Effective,
    Terms,
    Vendor,
    effective,
)

PROFILES = {Vendor.OPENGAUSS: "og7", Vendor.GAUSSDB: "gaussdb"}
VALUES = (
    *("true", "false", "of", "o", "", "0", "1", "2", "3", "4", "20", "21", "100", "101", "1024"),
    *("1023", "8192", "65535", "65536", "-1", "0x10", "010", "08", "b", "jx", "x", "60s", "30000"),
    *("a.b", "a.b,c.*", "a b.c", "abc", "u1,u2", "10,11", "1/2", "1"),
)
THREADS = ({}, {"parallel-decode-num": "1"}, {"parallel-decode-num": "3"})

# What neither text decides, where the two of us read it differently; none was ever seen.
UNDECIDED = {
    # options of the distributed group in serial decoding
    (Vendor.GAUSSDB, "logical-receiver-num", Decoding.SERIAL),
    (Vendor.GAUSSDB, "slice-id", Decoding.SERIAL),
    (Vendor.GAUSSDB, "start-position", Decoding.SERIAL),
}


def cases(
    product: Vendor, plugin: str, interface: str
) -> Iterator[tuple[str, Decoding, Effective]]:
    """Everything of one option with one value that we would send."""
    terms = Terms(
        product=product,
        plugin=plugin,
        interface=interface,  # type: ignore[arg-type]
    )
    for option in OPTIONS:
        for value in VALUES:
            for threads in THREADS:
                more = {"output-order": "1"} if option.group == "distributed" else {}
                try:
                    found = effective({**threads, **more, option.name: value}, terms)
                except OptionRefused:
                    continue
                yield option.name, found.mode, found


def is_undecided(product: Vendor, plugin: str, name: str, mode: Decoding) -> bool:
    if (product, name, mode) in UNDECIDED:
        return True
    # Which of GaussDB's options its sql_decoding knows is said nowhere.
    return product is Vendor.GAUSSDB and plugin == "sql_decoding" and mode is not Decoding.PARALLEL


PAIRS = [
    (product, plugin, interface)
    for product in Vendor
    for plugin in PLUGINS[product]
    for interface in ("stream", "sql")
    if not plugin.startswith("parallel_")  # the emulator knows styles by decode-style only
    and (product, plugin, interface) != (Vendor.GAUSSDB, "sql_decoding", "sql")  # all undecided
]


@pytest.mark.parametrize(("product", "plugin", "interface"), PAIRS)
def test_whatever_we_send_is_taken(product: Vendor, plugin: str, interface: str) -> None:
    profile, count = PROFILES[product], 0
    for name, mode, found in cases(product, plugin, interface):
        if is_undecided(product, plugin, name, mode):
            continue
        count += 1
        if interface == "sql":
            read_of_function(found.options, plugin=plugin, product=profile)
            continue
        number = parallel_decode_num(found.options)
        assert (number > 1) is (mode is Decoding.PARALLEL)
        asked = read(found.options, plugin=plugin, product=profile, number=number)
        assert asked.mode.decode_style == found.format.style
        assert asked.mode.sending_batch is found.format.batch
    assert count > 30


@pytest.mark.parametrize("product", Vendor)
def test_what_the_emulator_refuses_of_a_value_we_refuse(product: Vendor) -> None:
    profile = PROFILES[product]

    def refuses(ask: Callable[[], object]) -> bool:
        try:
            ask()
        except (ErrorResponse, OptionRefused, ValueError):
            return True
        return False

    count = 0
    for option in OPTIONS:
        for value in VALUES:
            options = {"parallel-decode-num": "3", option.name: value}
            if BY_NAME[option.name].group == "distributed":
                options["output-order"] = "1"
            given, terms = (
                list(options.items()),
                Terms(product=product, plugin="mppdb_decoding"),
            )
            if not refuses(
                lambda given=given: read(
                    given,
                    plugin="mppdb_decoding",
                    product=profile,
                    number=parallel_decode_num(given),
                )
            ):
                continue
            count += 1
            assert refuses(lambda o=options, t=terms: effective(o, t)), options
    assert count > 100
