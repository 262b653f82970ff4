"""What the stream is made of; the stream itself runs in tests/integration."""

from pathlib import Path

from spark_consumers.stream import Checkpoint, make_foreach_batch, reason
from tests.spark_consumers.feed import insert
from tests.spark_consumers.test_job import A, make


# ---------------------------------------------------------------- a micro-batch
def test_a_batch_drains_once_and_its_content_is_not_used() -> None:
    _feed, sink, applier = make(2)

    make_foreach_batch(applier.drain)(None, 7)

    assert sink.seqs == [1, 2]


def test_a_batch_that_lingers_takes_what_comes_until_its_time_is_over() -> None:
    feed, sink, applier = make(1)
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds
        feed.commits([insert(A, "9", "x")])

    make_foreach_batch(applier.drain, linger=0.35, wait=wait, clock=lambda: now[0])(None, 0)

    assert sink.seqs == [1, 2, 3, 4, 5]


def test_a_stop_ends_the_linger() -> None:
    _feed, sink, applier = make(1)

    make_foreach_batch(applier.drain, linger=9e9, stop=lambda: bool(sink.seqs))(None, 0)

    assert sink.seqs == [1]


# ---------------------------------------------------------------- the checkpoint
def test_a_checkpoint_that_cannot_be_written_is_replaced_and_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    checkpoint = Checkpoint(str(tmp_path / "file" / "state"), warnings.append)

    first, second = checkpoint.folder(), checkpoint.folder()

    assert Path(first).is_dir()
    assert second != first
    (warning,) = warnings
    assert "Not a directory" in warning
    assert "it decides nothing" in warning


def test_a_checkpoint_that_can_be_written_or_is_not_ours_to_judge_stays(tmp_path: Path) -> None:
    for configured in (
        str(tmp_path / "new" / "state"),
        f"file://{tmp_path}/x",
        "hdfs://host/state",
    ):
        assert Checkpoint(configured).folder() == configured


def test_after_a_query_that_ended_by_itself_another_folder_is_used(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.folder() == str(tmp_path)

    checkpoint.give_up("No space left on device")

    assert checkpoint.folder() != str(tmp_path)


def test_a_stack_is_recognised_by_its_first_line() -> None:
    assert reason(ValueError("first\n\tat second")) == "first"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 1000))) == 300
