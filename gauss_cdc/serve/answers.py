"""What programs tell at their addresses of [serve]: asked by `status`, `doctor` and the page."""

from __future__ import annotations

import ssl
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gauss_cdc.config import Config
from gauss_cdc.config_serve import ServeSection, address
from gauss_cdc.serve.table import PREFIX

_PATIENCE: Final = 10.0  # seconds for one answer of a program
_UNAUTHORIZED, _NOT_WELL = 401, 503
_APPLIED: Final = f"{PREFIX}table_applied_total"


@dataclass
class ProgramAnswer:
    """What a program told at its address of [serve]; `why`: nothing, and why."""

    at: str
    why: str = ""
    ready: str = ""  # the word of /readyz
    metrics: str = ""  # "": not shown to us
    log: list[str] = field(default_factory=list)  # its newest lines

    @cached_property
    def samples(self) -> list[Sample]:
        """Values of its metrics: of thousands of tables, so they are read once."""
        families = text_string_to_metric_families(self.metrics)
        return [sample for family in families for sample in family.samples]

    @property
    def name(self) -> str:
        """`run` or `apply` where it says so, and the address."""
        said = (one.labels["program"] for one in self.samples if one.name.endswith("build_info"))
        return f"{next(said, 'a program')} at {self.at}"


def addresses(config: Config, more: Sequence[str] = ()) -> list[str]:
    """Where programs can be asked: of [serve] listen, and `more`; port 0 is none."""
    return [at for at in dict.fromkeys([*config.listens, *more]) if address(at)[1]]


def ways_told(config: Config) -> dict[str, dict[str, int]]:
    """Ask the programs of [serve] listen, and return `ways` of what they say."""
    with ThreadPoolExecutor() as pool:
        return ways(pool.map(lambda at: ask_program(config.serve, at), addresses(config)))


def ways(programs: Iterable[ProgramAnswer]) -> dict[str, dict[str, int]]:
    """Table -> "driver" or "tasks", who read them -> records that were applied.

    Counted since each `apply` began, and for all targets together.
    """
    found = defaultdict[str, Counter[str]](Counter)
    for sample in (one for program in programs for one in program.samples):
        if sample.name == _APPLIED:
            found[sample.labels["table"]][sample.labels["way"]] += int(sample.value)
    return {table: dict(found[table]) for table in sorted(found)}


def ask_program(section: ServeSection, at: str) -> ProgramAnswer:
    """Ask one program for all that it tells; what keeps it from answering is `why`."""
    program = ProgramAnswer(at)
    try:
        program.ready = _get(section, at, "/readyz").strip()
        program.metrics = _get(section, at, "/metrics")
        with suppress(HTTPError):  # one of an older release has none
            program.log = _get(section, at, "/log").splitlines()
        list(program.samples)  # or it is no text of metrics
    except HTTPError as error:
        with error:
            if error.code != _UNAUTHORIZED:  # its probe has told what it may
                program.why = f"answers {error.code}: is it a program of ours?"
    except (OSError, HTTPException, ValueError) as error:
        program.why, program.metrics = str(getattr(error, "reason", error)), ""
    return program


def _get(section: ServeSection, at: str, path: str) -> str:
    """Ask a program; behind TLS only the one that has the certificate of [serve] is believed."""
    context = None
    if section.certificate is not None:
        context = ssl.create_default_context(cafile=str(section.certificate))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False  # the address is the one that it listens on
    request = Request(f"http{'s' * (context is not None)}://{at}{path}")  # noqa: S310  just made
    if token := section.token.get_secret_value():
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urlopen(request, timeout=_PATIENCE, context=context) as answer:  # noqa: S310
            text: str = answer.read().decode()
    except HTTPError as error:
        if path != "/readyz" or error.code != _NOT_WELL:
            raise
        with error:  # it has a word, too
            return error.read().decode()
    return text
