"""When a target holds a position: what `wait` decides by."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gauss_cdc.config import load
from gauss_cdc.inspect.places import (
    CutsStanding,
    Endpoints,
    Goal,
    ReplicationStatus,
    SourceStanding,
)
from producer.errors import CdcError, ConnectionLost
from producer.sources.base import ServerNow, SourceInspector
from producer.sources.kinds import SOURCES
from schemas.control import Identity, LoadPhase
from spark_consumers.model import Ledger

CUTS = CutsStanding(1, 4, 0, 0x50, 1, "a", {}, 0)


def standing(cuts: CutsStanding | None, n: int, epoch: int = 1) -> ReplicationStatus:
    return ReplicationStatus(None, cuts, Ledger("bank", epoch=epoch, n=n))


def test_a_target_that_has_applied_the_record_of_a_position_holds_it() -> None:
    goal = Goal(0x50)

    assert not goal.is_reached(standing(None, 4))
    assert not goal.is_reached(ReplicationStatus(None, CUTS, None))
    assert not goal.is_reached(standing(CUTS, 3))
    assert goal.is_reached(standing(CUTS, 4))
    assert not Goal(0x51).is_reached(standing(CUTS, 4))


@pytest.mark.parametrize("phase", ["PENDING", LoadPhase.BEGIN, LoadPhase.CHUNK])
def test_nothing_is_held_before_the_first_load_ends(phase: str) -> None:
    """START names the consistent point before a row is loaded."""
    goal = Goal(0x50)
    done = dict.fromkeys(("public.a", "public.b"), LoadPhase.END.value)
    loading = replace(CUTS, loads={**done, "public.b": phase})

    assert not goal.is_reached(standing(loading, 4))
    ended = replace(CUTS, n=9, loads=done)
    assert not goal.is_reached(standing(ended, 8))
    assert goal.is_reached(standing(ended, 9))


def test_an_epoch_that_loads_again_is_waited_for() -> None:
    goal = Goal(0x50)
    assert not goal.is_reached(standing(CUTS, 3))

    loading = replace(CUTS, epoch=2, n=5, loads={"public.a": LoadPhase.BEGIN})
    assert not goal.is_reached(standing(loading, 5, epoch=2))
    ended = replace(loading, n=7, loads={"public.a": LoadPhase.END})
    assert not goal.is_reached(standing(ended, 6, epoch=2))
    assert goal.is_reached(standing(ended, 7, epoch=2))


# ---------------------------------------------------------------- a source that cannot be asked
def test_a_dsn_that_cannot_be_read_is_said_of_the_source_only(tmp_path: Path) -> None:
    file = tmp_path / "gauss-cdc.toml"
    file.write_text(
        '[source]\ndsn = "host=127.0.0.1 nonsense"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
    )

    with Endpoints(load(file)) as places, pytest.raises(CdcError, match="dsn cannot be read"):
        places.source()


class Source(SourceInspector):
    """Does not answer the first questions; closed, it does not answer any more."""

    def __init__(self, losses: list[str], left: list[str] | None = None) -> None:
        """`left`: what it names at one look each."""
        self._losses, self._left, self._is_closed = losses, left or [], False

    def server(self) -> ServerNow:
        assert not self._is_closed
        if self._losses:
            raise ConnectionLost(self._losses.pop())
        return ServerNow("7", 1, 0x60, is_standby=False)

    def unexplained(self, *_: object) -> str:
        return self._left.pop(0) if self._left else ""

    def close(self) -> None:
        self._is_closed = True


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "gauss-cdc.toml"
    written.write_text(
        '[source]\ndsn = "postgresql://cdc@127.0.0.1:1/bank"\n'
        '[kafka]\nprefix = "bank"\n[kafka.client]\n"bootstrap.servers" = "127.0.0.1:1"\n'
        '[registry]\nurl = "http://127.0.0.1:1"\n'
    )
    return written


def asks(
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[], Source],
    *standings: CutsStanding,
    lag: int = 0,
) -> None:
    """Let each look meet the next record of cuts; the target holds it, or is `lag` behind."""
    left = [*standings]
    at = Ledger("bank", epoch=1, n=4, seq=0, resume=0x50)
    made = SOURCES["postgres"]._replace(inspector=lambda _: source())
    monkeypatch.setitem(SOURCES, "postgres", made)
    monkeypatch.setattr(Endpoints, "cuts", lambda _: left[0])
    monkeypatch.setattr(
        Endpoints,
        "target",
        lambda _: replace(at, n=(left.pop(0) if left[1:] else left[0]).n - lag),
    )
    monkeypatch.setattr(Endpoints, "known_tables", lambda *_: {})


@pytest.mark.parametrize(("is_given", "left"), [(False, 0), (True, 1)])
def test_a_source_that_went_away_is_compared_when_it_is_back(
    is_given: bool, left: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `wait` ends with 0, and nobody knows whether the source still is the same one."""
    losses, notes = ["gone", "gone"], list[str]()
    cuts = replace(CUTS, identity=Identity("7", 1, "bank", "s", "pgoutput"))
    asks(monkeypatch, lambda: Source(losses), cuts)

    with Endpoints(load(file)) as places:
        found = places.wait(0x50, lambda _: False, lambda _: None, notes.append, is_given=is_given)

    assert found is not None
    assert len(losses) == left
    assert notes == ["the source was not compared: gone"]


@pytest.mark.parametrize(
    ("cuts", "said"),
    [
        (None, "`run` has written nothing yet"),
        (replace(CUTS, resume=0x40), "`run` has not delivered 0/50 yet"),
        (
            replace(CUTS, loads={"public.t": "PENDING"}),
            "a load is under way, or cannot begin, as `run` logs; to be loaded: public.t",
        ),
        (replace(CUTS, n=9), "`apply` has not applied yet what is in Kafka"),
    ],
)
def test_what_keeps_a_wait_is_said_once(
    cuts: CutsStanding | None, said: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoints, "cuts", lambda _: cuts)
    monkeypatch.setattr(Endpoints, "target", lambda _: Ledger("bank", epoch=1, n=4, resume=0x30))
    notes, looks = list[str](), iter(range(200))

    with Endpoints(load(file)) as places:
        left = places.wait(0x50, lambda _: next(looks, None) is None, lambda _: None, notes.append)

    assert left is None
    assert notes == [said]


def test_a_table_that_is_waited_for_is_there_when_its_load_has_ended(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the target is marked: `wait` ended with 6 in the midst of the load."""
    loading, ended = (
        replace(CUTS, n=n, loads={"public.b": phase}) for n, phase in ((6, "BEGIN"), (8, "END"))
    )
    source = Source([], ["public.b is not loaded yet"])
    asks(monkeypatch, lambda: source, CUTS, loading, loading, ended)

    with Endpoints(load(file)) as places:
        found = places.wait(0x50, lambda _: False, lambda _: None)

    assert found is not None
    assert found.cuts == ended


def test_a_target_is_compared_as_it_is_when_it_holds_what_was_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` may have written what lasts until its next look, as the target came so far."""
    left = ["", "public.gauss_cdc_7 is public.b now", "", ""]
    source = Source([], left)
    # It is always one record behind; the position's own is the first.
    each = [replace(CUTS, n=n) for n in (4, 5, 6, 7, 8, 9, 10, 11)]
    asks(monkeypatch, lambda: source, *each, lag=1)

    with Endpoints(load(file)) as places:
        found = places.wait(0x50, lambda _: False, lambda _: None)

    assert found is not None
    assert left == []


# ---------------------------------------------------------------- lag
def test_lag_in_seconds_is_there_whenever_lag_in_commits_is() -> None:
    now = int(time.time() * 1e6)
    started = replace(CUTS, seq=3, written_at=now, state_at=now - 60_000_000)
    only_loaded = ReplicationStatus(None, started, Ledger("bank", epoch=1, n=4))

    assert only_loaded.commits_behind == 3
    assert 59 < (only_loaded.seconds_behind or 0) < 600

    behind = Ledger("bank", epoch=1, n=4, seq=2, committed_at=now - 5_000_000)
    assert 4 < (ReplicationStatus(None, started, behind).seconds_behind or 0) < 600
    level = replace(behind, seq=3)
    assert ReplicationStatus(None, started, level).seconds_behind == 0
    assert (
        ReplicationStatus(None, replace(started, seq=0), Ledger("b", epoch=1)).seconds_behind == 0
    )


def test_a_target_to_which_nothing_was_applied_is_behind_all_of_kafka() -> None:
    started = replace(CUTS, seq=3, state_at=int(time.time() * 1e6) - 60_000_000)
    nothing = ReplicationStatus(None, started, None, is_unapplied=True)

    assert nothing.commits_behind == 3
    assert 59 < (nothing.seconds_behind or 0) < 600


def test_a_target_that_was_read_a_moment_after_the_cuts_is_not_ahead() -> None:
    ahead = Ledger("bank", epoch=1, n=5, seq=5)

    assert ReplicationStatus(None, replace(CUTS, seq=3), ahead).commits_behind == 0


def test_csns_that_the_source_gave_out_are_lag_where_its_order_is_theirs() -> None:
    source = SourceStanding(1 << 40, "s", True, 1, 1, 0, "", ordered_by="csn")
    told = replace(CUTS, resume=0x50, source_end=0x90)

    assert ReplicationStatus(source, told, None).csns_behind == 0x40
    assert ReplicationStatus(source, CUTS, None).csns_behind is None
    assert ReplicationStatus(replace(source, ordered_by="lsn"), told, None).csns_behind is None


def test_an_unknown_lag_is_omitted() -> None:
    assert (
        ReplicationStatus(None, None, Ledger("bank", epoch=1, committed_at=1)).seconds_behind
        is None
    )
    assert ReplicationStatus(None, CUTS, None).seconds_behind is None
