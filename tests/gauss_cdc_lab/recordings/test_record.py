"""What `record` writes of what it receives."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from gauss_cdc_lab.recordings.record import RecordingPlan, _File
from producer.sources.decoders import Format


def recorded(body: bytes, *, redact: bool) -> tuple[list[dict[str, Any]], _File]:
    """Lines of a file that takes one CopyData; the stream itself is not read."""
    out = io.BytesIO()
    form = Format("mppdb_decoding", "b")
    file = _File(out, {"kind": "header"}, form, RecordingPlan(Path("unused"), redact=redact))
    file.take(b"d" + (4 + len(body)).to_bytes(4, "big") + body)
    return [json.loads(line) for line in out.getvalue().splitlines()], file


@pytest.mark.parametrize("body", [b"zpassword", b"wpassword"])
def test_unknown_copydata_is_kept_unless_redacted(body: bytes) -> None:
    *_, plain = recorded(body, redact=False)[0]
    (*_, blank), file = recorded(body, redact=True)

    assert bytes.fromhex(plain["hex"]) == body
    assert bytes.fromhex(blank["hex"]) == body[:1] + bytes(8)
    assert file.recorded.blanked == 1
