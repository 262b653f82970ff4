"""From transactions to the bytes that a walsender sends, one encoder a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gauss_cdc_lab.emulator.formats.binary import BinaryRecords
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.formats.parallel import Parallel, RecordStyle, TextRecords
from gauss_cdc_lab.emulator.formats.rows import (
    JsonRowWriter,
    RowFormat,
    SqlRowWriter,
    TextRowWriter,
)
from gauss_cdc_lab.emulator.formats.serial import NamedFrame, Serial, SerialFrame, SqlFrame
from gauss_cdc_lab.emulator.frames import FEATURE_NOT_SUPPORTED, ErrorResponse
from gauss_cdc_lab.emulator.model import Encoder, Mode, Profile

_SERIAL_ROWS: Final[Mapping[str, Callable[[Names], RowFormat]]] = {
    "mppdb_decoding": JsonRowWriter,
    "test_decoding": lambda names: TextRowWriter(names, parallel=False),
    "sql_decoding": SqlRowWriter,
}


def encoder(mode: Mode, profile: Profile, encoding: str) -> Encoder:
    """The encoder of a stream that was started like this, by such a product.

    `encoding` is Python's name of the database's encoding.  Raises Refused if the
    product has no such mode.
    """
    names = Names(profile, encoding)
    if not mode.parallel:
        rows = _SERIAL_ROWS.get(mode.plugin)
        if rows is None or (not profile.gauss and mode.plugin != "test_decoding"):
            raise ErrorResponse(
                f"{profile.name} has no output plugin {mode.plugin} in serial decoding",
                FEATURE_NOT_SUPPORTED,
            )
        frame: SerialFrame = (
            SqlFrame() if mode.plugin == "sql_decoding" else NamedFrame(mode, profile)
        )
        return Serial(mode, profile, names=names, frame=frame, rows=rows(names))
    if not profile.gauss:
        raise ErrorResponse(f"{profile.name} has no parallel decoding", FEATURE_NOT_SUPPORTED)
    records: RecordStyle
    match mode.style:
        case "b":
            records = BinaryRecords(mode, profile, names)
        case "j":
            records = TextRecords(mode, profile, JsonRowWriter(names))
        case "t":
            records = TextRecords(mode, profile, TextRowWriter(names, parallel=True))
        case style:
            raise ErrorResponse(f"no such decode-style: {style}", FEATURE_NOT_SUPPORTED)
    return Parallel(mode, profile, records)
