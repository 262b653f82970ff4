"""Feed walker and encoder with mutated payloads: each is a row as Python writes it, or a stop.

    python -m tests.producer.native.any_bytes [seconds] [seed]

Under AddressSanitizer: CONTRIBUTING.md.
"""

# ruff: noqa: T201  a command

from __future__ import annotations

import random
import struct
import sys
import time
from dataclasses import dataclass

from producer.core.changes import Delete, Insert, Update
from producer.core.records.encode import (
    RowEncoder,
    TransactionConstants,
    compile_encoder,
    key_columns,
)
from producer.core.records.reference import NullInRequired
from producer.core.records.row_plan import KeyPlan
from producer.core.stream.walk import Lent, Stage, Walker
from producer.errors import DecodeError
from producer.sources.postgres.pgoutput import decode
from producer.wire.replication import EPOCH_2000_US, WalMessage
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from schemas.types import type_of
from tests.producer.native import twins
from tests.producer.native.gauss_twins import Gauss, agree
from tests.producer.sources.gauss.decoders.ledgers import CAPTURES, capture
from tests.producer.sources.gauss.test_stream import messages_of, tables
from tests.schemas.types.values import SAMPLES

TABLES = 40
MOST_BYTES = 60_000  # of a row
ODD = b"0123456789-+.:,eE _TZxabcdefNnIi{}\\\"'\x00\x7f\x80\xc3\xa9\xed\xa0\xf4\x90\xff"
NUMBERS = (0, 1, 2, 5, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
WITH_OPCODE = [sample for sample in SAMPLES if type_of(sample.column()).opcode]
LENT = Lent(Stage.BEGUN, 7, 0, 0, 5_000, 800_000_000_000_000, 701)
CONSTANTS = TransactionConstants(
    xid=LENT.xid,
    csn=LENT.commit_lsn,
    epoch=twins.EPOCH,
    seq=LENT.seq + 1,
    committed_at_us=LENT.committed_at + EPOCH_2000_US,
    now_us=twins.NOW_US,
    commit_lsn=LENT.commit_lsn,
)


@dataclass
class Fuzz:
    """Tables of every type, bound to a walker, and chances."""

    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.tables = [self._table(f"t{n}") for n in range(TABLES)]
        self.encoders = [
            compile_encoder(table, prefix="bank", schema_id=7, database="bank")
            for table in self.tables
        ]
        module = twins.native()
        self.own = [
            compile_encoder(
                table,
                prefix="bank",
                schema_id=7,
                database="bank",
                native=lambda plan, slow: module.CellEncoder(plan, slow).encode,
            )
            for table in self.tables
        ]
        self.walker: Walker = module.Walker(
            module.Places(), epoch=twins.EPOCH, resume=500, max_row_bytes=MOST_BYTES
        )
        for number, encoder in enumerate(self.encoders):
            assert encoder.plan is not None
            self.walker.bind(
                number,
                encoder.plan,
                topic=f"t{number}",
                partition=0,
                key=b"k",
                by_key=self._by_key(self.tables[number]),
            )
        self.rows = self.stops = 0

    def _table(self, name: str) -> TableSchema:
        of = WITH_OPCODE if self.random.random() < 0.8 else SAMPLES
        samples = self.random.choices(of, k=self.random.randint(1, 4))
        columns = tuple(
            Column(f"c{at}", one.oid, one.type_mod, one.type_name, self.random.random() < 0.7)
            for at, one in enumerate(samples)
        )
        key = tuple(c.name for c in columns if self.random.random() < 0.3)
        return TableSchema(TableId("s", name), columns, key, (), identity_columns=key)

    def _by_key(self, table: TableSchema) -> KeyPlan | None:
        """Place a table's rows by primary key, key them, or do neither."""
        if not table.key or self.random.random() < 0.8:
            return None
        partitions = self.random.choice((0, 5))
        return KeyPlan(key_columns(table), self.random.choice((None, b"\0\0\0\0\7")), partitions)

    # ------------------------------------------------------------ one round
    def once(self) -> None:
        """Make a payload, mutate it, and compare what is taken of it with Python's."""
        payload = self._payload()
        for _ in range(self.random.choice((0, 0, 0, 0, 1, 2, 5))):
            payload = self._mutated(payload)
        message = (1_000, 1_000, payload)
        self._compare(message)
        self._any_stage([message, *(self._message() for _ in range(self.random.randint(0, 3)))])

    def _compare(self, message: WalMessage) -> None:
        """Take a row from its bytes, and from its cells."""
        by_python = self._encoded(message, self.encoders)
        assert self._encoded(message, self.own) == by_python, message[2].hex()
        walk = self.walker.walk([message], 0, LENT, now_us=twins.NOW_US, max_rows=1)
        if not walk.walked:
            self.stops += 1
            return
        (walked,) = walk.walked
        (record,) = walked.records
        self.rows += 1
        assert record[3] == by_python, message[2].hex()

    @staticmethod
    def _encoded(message: WalMessage, encoders: list[RowEncoder]) -> bytes | str:
        try:
            said = decode(message[2])
            if not isinstance(said, Insert | Update | Delete) or said.relation >= TABLES:
                return "no row of ours"
            encode = encoders[said.relation].encode
            match said:
                case Insert(_, new):
                    return encode("c", "", None, new, CONSTANTS, message[0], 0)
                case Update(_, kind, old, new):
                    return encode("u", kind, old, new, CONSTANTS, message[0], 0)
                case Delete(_, kind, old):
                    return encode("d", kind, old, None, CONSTANTS, message[0], 0)
        except (DecodeError, NullInRequired) as error:
            return f"Python refuses it: {type(error).__name__}"

    def _any_stage(self, messages: list[WalMessage]) -> None:
        """Walk on in any stage: whatever comes, the answer is a place and what was done."""
        stage = Stage(self.random.randint(0, 3))
        lent = LENT._replace(stage=stage, is_plain=self.random.random() < 0.8)
        most = self.random.randint(0, 3)
        walk = self.walker.walk(messages, 0, lent, now_us=twins.NOW_US, max_rows=most)
        assert 0 <= walk.at <= len(messages)
        assert sum(len(list(walked.records)) for walked in walk.walked) <= most

    # ------------------------------------------------------------ payloads
    def _message(self) -> WalMessage:
        """A message of a stream, which may be broken."""
        lsn = self.random.choice((0, 499, 500, 10_000, 2**63 - 1, 2**63, 2**64 - 1))
        payload = self.random.choice(
            (
                twins.begin(lsn, 5, self.random.choice((0, 2**63 - 1, -(2**63)))),
                twins.commit(lsn, lsn),
                self._payload(),
                self.random.randbytes(self.random.randint(0, 30)),
            )
        )
        return lsn, lsn, self._mutated(payload) if self.random.random() < 0.3 else payload

    def _payload(self) -> bytes:
        number = self.random.randrange(TABLES)
        match self.random.randint(0, 5):
            case 0:
                return twins.delete(number, self.random.choice("KO"), self._row(number))
            case 1:
                return twins.update(number, self._row(number))
            case 2:
                kind = self.random.choice("KO")
                return twins.update(number, self._row(number), kind, self._row(number))
            case _:
                return twins.insert(number, self._row(number))

    def _row(self, number: int) -> list[twins.Cell]:
        return [self._cell(column) for column in self.tables[number].columns]

    def _cell(self, column: Column) -> twins.Cell:
        chance = self.random.random()
        if chance < 0.1 and column.nullable:
            return None
        if chance < 0.13:
            return UNCHANGED
        sample = next(one for one in SAMPLES if one.type_name == column.type_name)
        text = bytearray(self.random.choice(sample.texts).encode())
        if chance > 0.8 and len(text) < 1_000:
            for _ in range(self.random.randint(1, 3)):
                at = self.random.randint(0, len(text))
                text[at : at + self.random.randint(0, 2)] = self.random.choices(
                    ODD, k=self.random.randint(0, 2)
                )
        return bytes(text)

    def _mutated(self, payload: bytes) -> bytes:
        at = self.random.randint(0, len(payload))
        match self.random.randint(0, 6):
            case 0:
                return payload[:at]
            case 1:
                return payload[:at] + self.random.randbytes(self.random.randint(1, 4))
            case 2:
                return payload[:at] + self.random.choices(ODD)[0].to_bytes() + payload[at + 1 :]
            case 3:
                number = struct.pack(">I", self.random.choice(NUMBERS))
                return payload[:at] + number + payload[at + 4 :]
            case 4:
                number = struct.pack(">H", self.random.choice(NUMBERS) & 0xFFFF)
                return payload[:6] + number + payload[8:]
            case 5:
                return payload[:at] + payload[at + 1 :]
            case _:
                return payload[:5] + self.random.choices(b"NKOtnu")[0].to_bytes() + payload[6:]


# ---------------------------------------------------------------- GaussDB
@dataclass
class GaussFuzz:
    """Recorded streams of GaussDB's decode-styles, mutated, and taken by both."""

    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        workload = self.random.choice(("txns", "identity", "names", "toast", "types_a"))
        names = [name for name in CAPTURES if name.startswith(f"capture_{workload}_par_")]
        self.read = capture(self.random.choice(names))
        self.tables = tables(self.read.workload)
        self.rows = self.stops = 0

    def once(self) -> None:
        """Mutate some messages of a stretch, and compare what both take of it."""
        messages = messages_of(self.read)
        some = messages[: self.random.choice((5, 20, 60))]
        if self.read.written.batch:
            some = [self._cut(message) for message in some]
        for _ in range(self.random.choice((0, 1, 1, 2, 5))):
            at = self.random.randrange(len(some) // 2, len(some))
            start, end, payload = some[at]
            for _ in range(self.random.choice((1, 1, 3))):
                payload = self._mutated(payload)
            some[at] = start, end, payload
        world = twins.World(
            self.tables,
            resume=0,
            encoding=self.read.written.encoding,
            puts_aside=True,
            keyed=self.random.random() < 0.3,
        )
        gauss = Gauss(self.read.written, hold_bytes=self.random.choice((2_000, 1 << 20)))
        limits = self.random.choices((0, 1, 3, 1 << 20), k=3)
        walked = agree(world, some, gauss, [*limits, 1], self.random.choice((1, 4, 1 << 20)))
        self.rows += walked.walked_rows
        self.stops += len(walked.walks)

    def _cut(self, message: WalMessage) -> WalMessage:
        """Keep the first records of a batch."""
        start, end, payload = message
        most, pos, is_binary = self.random.randint(10, 60), 0, self.read.written.style == "b"
        for _ in range(most):
            (size,) = struct.unpack_from(">I", payload, pos)
            if not size or pos + 4 + size + is_binary + 4 > len(payload):
                return message
            pos += 4 + size + is_binary
        return start, end, payload[:pos] + b"\0\0\0\0"

    def _mutated(self, payload: bytes) -> bytes:
        at = self.random.randint(0, len(payload))
        some = payload[at : at + self.random.randint(0, 12)]
        match self.random.randint(0, 6):
            case 0:
                return payload[:at]
            case 1:
                return payload[:at] + self.random.randbytes(self.random.randint(1, 4))
            case 2:
                return payload[:at] + self.random.choices(ODD)[0].to_bytes() + payload[at + 1 :]
            case 3:
                number = struct.pack(">I", self.random.choice(NUMBERS))
                return payload[:at] + number + payload[at + 4 :]
            case 4:
                return payload[:at] + some + payload[at:]
            case 5:
                return payload[:at] + payload[at + 1 :]
            case _:
                return payload[:at] + payload[at + len(some) :]


def main() -> None:
    """Feed for some seconds."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"seed {seed}")
    until = time.monotonic() + seconds
    rounds = rows = stops = 0
    while time.monotonic() < until:
        fuzz = Fuzz(seed + rounds) if rounds % 2 else GaussFuzz(seed + rounds)
        for _ in range(2_000 if rounds % 2 else 40):
            fuzz.once()
        rounds, rows, stops = rounds + 1, rows + fuzz.rows, stops + fuzz.stops
    print(f"{rows} rows as Python writes them, {stops} stops, no other end")


if __name__ == "__main__":
    main()
