"""`gauss-cdc doctor`: what is wrong, or soon will be, at all places and in all programs.

It asks what `check` and `status` ask, and each program's `[serve]`.  What they find is judged by
the table of metrics, and named by the table of alarms.
"""

from __future__ import annotations

import json
import platform
import ssl
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gauss_cdc.config import Config
from gauss_cdc.config_serve import ServeSection, address
from gauss_cdc.inspect.check import check_all
from gauss_cdc.inspect.places import ENDPOINTS, Endpoints, ReplicationStatus
from gauss_cdc.secrets import masked
from gauss_cdc.serve.alarms import ALARMS, BY_ERROR, Alarm
from gauss_cdc.serve.server import is_well
from gauss_cdc.serve.standing import Gauges, WalLeft, of_standing, of_target
from gauss_cdc.serve.table import METRICS, PREFIX, STATUS
from producer.errors import CdcError
from schemas.errors import shortened
from schemas.findings import Finding, Level, refused
from schemas.version import VERSION

_PATIENCE: Final = 10.0  # seconds for one answer of a program
_UNAUTHORIZED, _NOT_WELL = 401, 503
_ORDER: Final = {name: at for at, name in enumerate(ALARMS)}


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


@dataclass(slots=True)
class Answers:
    """What all places and programs said."""

    standing: ReplicationStatus
    checked: list[Finding]
    programs: list[ProgramAnswer]
    samples: list[tuple[str, Sample]] = field(default_factory=list)  # of a target, or of all


def ask(
    config: Config,
    listens: Sequence[str],
    places: Endpoints,
    checked: list[Finding] | None = None,
    *,
    compared_within: float = 0.0,
) -> Answers:
    """Ask everything once; `listens`: addresses of programs beside [serve] listen.

    `checked` are findings of `check` that are still good; None: it is asked, too.
    `compared_within`: see `Endpoints.standing`.
    """
    listens = [at for at in dict.fromkeys([*config.listens, *listens]) if address(at)[1]]
    with ThreadPoolExecutor() as pool:
        looking = pool.submit(places.standing, compared_within=compared_within)
        asking = [pool.submit(_program, config.serve, at) for at in listens]
        if checked is None:
            checked = list(check_all(config, fix=False))
        standing, wal = looking.result(), WalLeft()
        gauges, kept = Gauges(config.kafka.prefix, STATUS), config.kafka.retention.total_seconds()
        list(of_standing(standing, gauges, wal, kept))
        later = standing
        if standing.source is not None and standing.source.safe_bytes is not None:
            later = _with_source(standing, places)  # its log grew meanwhile: a rate
        made = [("", one) for one in of_standing(later, gauges, wal, kept)]
        for other in standing.others:
            made += [(other.name, one) for one in of_target(other, gauges, kept)]
        found = [(name, sample) for name, one in made for sample in one.samples]
        return Answers(standing, checked, [one.result() for one in asking], found)


def findings(answers: Answers) -> list[Finding]:
    """Name what is wrong, the most urgent first; the subject of each is its alarm."""
    found: dict[tuple[str, str, str], Finding] = {}
    for what, finding in (*_of_places(answers), *_of_programs(answers), *_of_metrics(answers)):
        found.setdefault((finding.subject, what, finding.target), finding)
    return sorted(found.values(), key=lambda one: _ORDER[one.subject])


def as_json(finding: Finding) -> dict[str, str]:
    """Plain values; `paragraph` is where it is explained."""
    said = asdict(finding)
    return {"name": said.pop("subject"), **said, "paragraph": ALARMS[finding.subject].paragraph}


def write_bundle(file: Path, config: Config, answers: Answers, found: Sequence[Finding]) -> None:
    """Write all of it, for a report: no secrets, no rows, no statements."""
    texts = {
        "doctor.json": json.dumps([as_json(one) for one in found], indent=1),
        "check.json": json.dumps([asdict(one) for one in answers.checked], indent=1),
        "status.json": json.dumps(answers.standing.as_json(), indent=1),
        "config.json": config.shown(),
        "versions.json": json.dumps(
            {"gauss-cdc": VERSION, "python": platform.python_version(), "on": platform.platform()}
        ),
    } | {
        f"program-{number}.txt": "\n".join(
            [f"# {one.name}: {one.why or one.ready}", one.metrics, *one.log]
        )
        for number, one in enumerate(answers.programs, 1)
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, masked(text))


# ---------------------------------------------------------------- asking
def _program(section: ServeSection, at: str) -> ProgramAnswer:
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


def _with_source(standing: ReplicationStatus, places: Endpoints) -> ReplicationStatus:
    try:
        return replace(standing, source=places.source().standing())
    except CdcError:
        return standing


# ---------------------------------------------------------------- judging
def _found(alarm: Alarm, what: str, hint: str = "", error: str = "", target: str = "") -> Finding:
    return Finding(alarm.level, alarm.name, what, hint, error, target)


def _of_places(answers: Answers) -> Iterator[tuple[str, Finding]]:
    """What `status` and `check` say; the first of each is the key that tells two apart."""
    standing = answers.standing
    silent = [
        replace(refused(place, error), target=_name(standing, one) * (place == "target"))
        for one in standing.each
        for place, error in one.down.items()
    ]
    for finding in (*silent, *answers.checked):
        if (alarm := _alarm_of(finding, standing)) is not None:
            what = f"{finding.subject}: {finding.what}"
            place = finding.subject.lower()
            key = place if finding.error and place in ENDPOINTS else what
            yield key, _found(alarm, what, finding.hint, finding.error, finding.target)
    for one in standing.each:
        if one.target is not None and one.target.inexact:
            what = shortened([f"{table}: {why}" for table, why in one.target.inexact.items()])
            hint, name = "\n".join(one.notes), _name(standing, one)
            yield "", _found(ALARMS["CdcTableInexact"], what, hint, target=name)


def _name(standing: ReplicationStatus, one: ReplicationStatus) -> str:
    """Return a target's name where there are several."""
    return one.name if standing.others else ""


def _alarm_of(finding: Finding, standing: ReplicationStatus) -> Alarm | None:
    """Name what was found; None: nothing, or the target's marks say it."""
    if finding.level is Level.WARNING:
        targets = [one.target for one in standing.each if one.target is not None]
        marked = [f"table {table}" for target in targets for table in target.inexact]
        return None if finding.subject in marked else ALARMS["CdcDoubtful"]
    if finding.level is not Level.ERROR:
        return None
    if (known := BY_ERROR.get(finding.error)) is not None:
        return known
    if finding.subject.startswith("table "):
        return ALARMS["CdcTableRefused"]
    return ALARMS["CdcRightsMissing" if finding.subject == "role" else "CdcStartBarred"]


def _of_programs(answers: Answers) -> Iterator[tuple[str, Finding]]:
    for one in answers.programs:
        if one.why:
            yield one.at, _found(ALARMS["CdcProgramGone"], f"{one.name}: {one.why}")
        elif not is_well(one.ready):
            yield one.at, _found(ALARMS["CdcNotReady"], f"{one.name} is {one.ready}")


def _of_metrics(answers: Answers) -> Iterator[tuple[str, Finding]]:
    """Judge values by the table; `ready` was said by the probe."""
    known = [("", target, one) for target, one in answers.samples]
    for program in answers.programs:
        who = f"{program.name}: "
        known += [(who, "", one) for one in program.samples]
    there = {one.name.removeprefix(PREFIX) for *_, one in known}
    for who, target, one in known:
        measured = METRICS.get(one.name.removeprefix(PREFIX))
        if measured is None or measured.name == "ready":
            continue
        if not measured.is_alarming(one.value, there):
            continue
        key = " ".join(one.labels[label] for label in measured.labels)
        said = f"{measured.name} is {one.value:,.6g}: {measured.meaning.partition(';')[0]}"
        what = f"{who}{key}{': ' * bool(key)}{said}"
        yield key, _found(ALARMS[measured.raises], what, target=target)
