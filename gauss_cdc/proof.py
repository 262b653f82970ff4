"""Whether what a run decodes was ever seen on a real server, in a line for people."""

from __future__ import annotations

from gauss_cdc.sandbox.emulator.formats.support import support
from gauss_cdc.sandbox.emulator.model import Mode
from producer.sources.gauss.options import Effective
from producer.sources.gauss.options import Mode as Decoding
from producer.sources.gauss.options.values import boolean, integer, tables
from producer.sources.gauss.server import Product, Server


def proof(server: Server, decided: Effective) -> str:
    """Return `proven`, or `unproven: ` and what nobody has seen."""
    return support(_profile(server), _mode(decided))


def _profile(server: Server) -> str:
    """The emulator's name for a product: only what was recorded is it, and not its neighbours."""
    if server.product is not Product.OPENGAUSS:
        return server.product.value
    major = server.number[0] if server.number else 0
    return f"og{major}" if major in {3, 5, 6, 7} else f"openGauss {server.version}"


def _mode(decided: Effective) -> Mode:
    def is_on(name: str, *, default: bool) -> bool:
        text = decided.get(name)
        return default if text is None else boolean(text)

    is_parallel = decided.mode is Decoding.PARALLEL
    return Mode(
        plugin=decided.plugin,
        parallel_decode_num=integer(decided.get("parallel-decode-num") or "1"),
        decode_style=decided.format.style,
        sending_batch=decided.format.batch,
        include_xids=is_on("include-xids", default=True),
        include_timestamp=is_on("include-timestamp", default=not is_parallel),
        skip_empty_xacts=is_on("skip-empty-xacts", default=False),
        include_originid=is_on("include-originid", default=False),
        only_local=True,  # false changes no byte where nothing comes by replication
        white_table_list=tuple(tables(decided.get("white-table-list") or "", blanks=True)),
        include_user=is_on("include-user", default=False),
        enable_heartbeat=is_on("enable-heartbeat", default=False),
        exclude_users=frozenset(filter(None, (decided.get("exclude-users") or "").split(","))),
        skip_generated_columns=is_on("skip-generated-columns", default=False),
        enable_ddl_decoding=is_on("enable-ddl-decoding", default=False),
        enable_ddl_json_format=is_on("enable-ddl-json-format", default=False),
        output_order=integer(decided.get("output-order") or "0"),
    )
