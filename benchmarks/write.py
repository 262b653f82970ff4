"""What a record costs on its way into Kafka, by writer.

    python benchmarks/write.py [--rows N] [--kafka HOST:PORT]

All writers send the same groups of 20,000 records of 180 bytes with four headers, each group with
its cut in one Kafka transaction, to a broker that is started for it (or `--kafka`).  Records
are made before: as Python objects, as without the native walker, or in one of its batches.
Prints CPU-seconds per million records of this process with its threads, best of the
rounds, which are taken in turn, and ratios to the first line.
"""

# ruff: noqa: INP001  a command, not a package

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports without __all__
    AdminClient,
    NewTopic,
)
from rich.console import Console
from rich.table import Table

from gauss_cdc_lab.services import LocalServices
from producer.core.events import Record, Records
from producer.kafka.delivery import Delivery
from producer.kafka.native_writer import NativeWriter
from producer.kafka.writer import ConfluentWriter, MakeWriter, Writer
from producer.native import NativeParts, _native, parts
from schemas.headers import row_headers, transaction_headers
from schemas.positions import CommitKey, Lsn

_GROUP, _TRANSACTION, _BYTES, _EPOCH = 20_000, 500, 180, 1_700_000_000
_ROUNDS = 3
_LSN = 0x16_B374_D848


def objects(topic: str) -> list[Record]:
    """One group as Python makes it: constants once a transaction, the rest per row."""
    out: list[Record] = []
    for at in range(_GROUP):
        seq, ordinal = divmod(at, _TRANSACTION)
        if not ordinal:
            constant = transaction_headers(70_000 + seq, _LSN + seq)
        headers = row_headers(constant, Lsn(_LSN + at), CommitKey(_EPOCH, seq, ordinal))
        out.append((topic, 0, b"key", bytes(_BYTES), headers))
    return out


def batch(native: NativeParts, topic: str) -> Records:
    """Make the same group as the walker does."""
    count = _GROUP // _TRANSACTION
    return _native.batch_of(
        native.places,
        _EPOCH,
        [(seq, 70_000 + seq, _LSN + seq, None) for seq in range(count)],
        [
            (at // _TRANSACTION, topic, 0, b"key", bytes(_BYTES), at % _TRANSACTION, _LSN + at)
            for at in range(_GROUP)
        ],
    )


def cost(make: MakeWriter, kafka: str, prefix: str, records: Records, groups: int) -> float:
    """CPU-seconds per million records."""
    delivery = Delivery(
        {"bootstrap.servers": kafka},
        prefix=prefix,
        cuts_topic=f"{prefix}.cuts",
        transaction_timeout=60,
        exactly_once=True,
        max_row_bytes=1 << 20,
        make=make,
    )
    delivery.init_transactions(60)
    delivery.write_now([records], lambda _: [(b"bench", b"cut")])  # leaders are known now
    began = time.process_time()
    for _ in range(groups):
        acknowledged, _ = delivery.write_now([records], lambda _: [(b"bench", b"cut")])
        assert sum(end - start for *_, start, end in acknowledged) == len(records)
    used = time.process_time() - began
    delivery.close()
    return used / groups / len(records) * 1e6


@contextmanager
def broker(address: str | None) -> Iterator[str]:
    """Start Kafka, unless there is one."""
    if address is not None:
        yield address
        return
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-bench-"))
    try:
        services = LocalServices(folder)
        yield services.start("kafka").kafka_bootstrap
        services.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure the writers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="in each round")
    parser.add_argument("--kafka", help="bootstrap.servers")
    asked = parser.parse_args()
    native = parts("auto")
    if native is None:
        raise SystemExit("the native module was not built")
    made = native

    def by_librdkafka(settings: Any) -> Writer:
        return NativeWriter(settings, made)

    with broker(asked.kafka) as kafka:
        prefix = f"bench{uuid.uuid4().hex[:8]}"
        names = [f"{prefix}.rows", f"{prefix}.cuts"]
        admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
        for topic in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            topic.result(60)
        in_python, in_a_batch = objects(names[0]), batch(native, names[0])
        assert list(in_a_batch) == in_python
        contestants: dict[str, tuple[Callable[..., Writer], Records]] = {
            "confluent_kafka, Python objects": (ConfluentWriter, in_python),
            "confluent_kafka, a batch": (ConfluentWriter, in_a_batch),
            "native, Python objects": (by_librdkafka, in_python),
            "native, a batch": (by_librdkafka, in_a_batch),
        }
        best = dict.fromkeys(contestants, float("inf"))
        for _ in range(_ROUNDS):
            for name, (make, records) in contestants.items():
                found = cost(make, kafka, prefix, records, max(1, asked.rows // _GROUP))
                best[name] = min(best[name], found)
    table = Table("writer", "CPU-s/Mrow", "of the first")
    first = next(iter(best.values()))
    for name, found in best.items():
        table.add_row(name, f"{found:.2f}", f"{found / first:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
