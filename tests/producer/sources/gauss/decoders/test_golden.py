"""What a real openGauss sent is what its ledgers say, in every mode."""

import pytest

from producer.sources.gauss.decoders.messages import NamedChange, TxBegin, TxCommit
from tests.producer.sources.gauss.decoders.ledgers import (
    CAPTURES,
    capture,
    expected,
    matches,
    reported,
    transactions,
)


def test_captures_of_every_mode_are_there() -> None:
    modes = {name.split("_", 2)[2] for name in CAPTURES if name.startswith("capture_txns")}

    assert len(CAPTURES) == 90
    assert modes == {
        *("ser_mppdb", "ser_mppdb_skip", "ser_sql", "ser_test"),
        *(f"par_{style}_batch{batch}" for style in "bjt" for batch in "01"),
    }


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_decodes_to_its_ledger(name: str) -> None:
    read = capture(name)
    want = expected(read)

    got = transactions(reported(read))

    assert len(got) == len(want)
    for (xid, changes), (wanted_xid, wanted) in zip(got, want, strict=True):
        assert matches(read, changes, wanted), (changes, wanted)
        assert xid == (None if read.is_sql or name.endswith("skip") else wanted_xid)


@pytest.mark.parametrize("name", CAPTURES)
def test_only_rows_may_wait_undecoded(name: str) -> None:
    read = capture(name)
    decoder = read.decoder()

    for start, payload in read.payloads:
        for position, record in decoder.split(start, payload):
            is_row = isinstance(decoder.decode(position, record), NamedChange)
            assert decoder.is_row(record) is is_row


@pytest.mark.parametrize("workload", sorted({name.split("_")[1] for name in CAPTURES} - {"types"}))
def test_modes_agree_about_positions_numbers_and_times(workload: str) -> None:
    def ends(mode: str) -> dict[int, TxCommit]:
        messages = reported(capture(f"capture_{workload}_{mode}"))
        found = {m.xid: m for m in messages if isinstance(m, TxCommit) and m.xid}
        assert found
        return found

    def begins(mode: str) -> dict[int, TxBegin]:
        messages = reported(capture(f"capture_{workload}_{mode}"))
        found = {m.xid: m for m in messages if isinstance(m, TxBegin) and m.xid}
        assert found
        return found

    serial, binary = ends("ser_test"), ends("par_b_batch1")
    started = begins("par_b_batch1")
    for xid, end in serial.items():
        assert end.end_lsn == binary[xid].end_lsn
        assert end.committed_at == binary[xid].committed_at
        assert end.csn == started[xid].csn
    for mode in ("par_b_batch0", "par_j_batch1", "par_t_batch1"):
        assert ends(mode) == binary
    for mode in ("par_b_batch0", "par_t_batch0", "par_j_batch1"):
        assert begins(mode) == started
    for mode in ("par_t_batch0", "par_j_batch0"):
        for xid, end in ends(mode).items():
            assert end.end_lsn is None
            assert started[xid].first_lsn <= end.commit_lsn < binary[xid].end_lsn
