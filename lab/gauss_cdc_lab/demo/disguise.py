"""The demo's PostgreSQL, presented as openGauss or GaussDB by a separate process."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import gauss_cdc
from gauss_cdc_lab.services.process import (
    LOOPBACK,
    Process,
    ProcessCommand,
    accepts,
    end_session,
    free_ports,
    is_free,
    poll,
)

Kind = Literal["postgres", "opengauss", "gaussdb"]

USER: Final = "cdc_user"
_PRODUCTS: Final = {"opengauss": "og7", "gaussdb": "gaussdb"}
_START_SECONDS: Final = 30.0
_TRIES: Final = 50


class NoDisguise(Exception):
    """The emulator did not start."""


@dataclass
class Disguise:
    """`gauss-cdc emulator --facade`, from `start` to `stop`."""

    kind: Kind
    folder: Path
    source: str  # the real PostgreSQL
    port: int = 0
    password: str = field(default_factory=lambda: secrets.token_hex(8), repr=False)
    _process: Process | None = None

    def start(self) -> None:
        """Return when it takes connections."""
        self.port = next(port for port in free_ports(_TRIES) if is_free(port + 1))
        root = str(Path(gauss_cdc.__file__).parents[1])
        command = ProcessCommand(
            (
                *(sys.executable, "-m", "gauss_cdc", "emulator", "--facade", self.source),
                *("--port", str(self.port), "--user", USER),
                *("--product", _PRODUCTS[self.kind]),
            ),
            directory=self.folder,
            environment={
                "GAUSS_CDC_EMULATOR_PASSWORD": self.password,
                "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
                "PYTHONUNBUFFERED": "1",
            },
        )
        (self.folder / "logs").mkdir(exist_ok=True)
        log = self.folder / "logs" / "emulator.log"
        process = self._process = command.spawn(log)
        poll(lambda: accepts(self.port + 1) or not process.alive, _START_SECONDS)
        if not process.alive or not accepts(self.port + 1):
            said = log.read_text("utf-8", "replace")
            self.stop()
            raise NoDisguise(f"`gauss-cdc emulator` did not start:\n{said}")

    def stop(self) -> None:
        """Leave nothing of it running."""
        process, self._process = self._process, None
        if process is not None:
            end_session(process.pid)

    def lines(self, slot: str) -> str:
        """The configuration's [source]; the password is in a file next to it."""
        secret = self.folder / "source-password"
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        database = self.source.rpartition("/")[2]
        return (
            "[source]\n"
            f'kind = "{self.kind}"\n'
            f'dsn = "postgresql://{USER}@{LOOPBACK}:{self.port}/{database}?sslmode=disable"\n'
            f"ha-port = {self.port + 1}\n"
            f'password-file = "{secret}"\n'
            f'slot = "{slot}"\n'
            "\n[source.options]\n"
            "parallel-decode-num = 4\n"
            'decode-style = "b"\n'
            "sending-batch = 1\n"
        )
