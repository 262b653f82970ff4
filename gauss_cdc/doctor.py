"""`gauss-cdc doctor`: what is wrong, or soon will be, at all places and in all programs.

It asks what `check` and `status` ask, and each program's `[serve]`.  What they find is judged by
the table of metrics, and named by the table of alarms.
"""

from __future__ import annotations

import json
import platform
import zipfile
from collections import ChainMap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from prometheus_client.samples import Sample

from gauss_cdc.config import Config
from gauss_cdc.inspect.check import check_all
from gauss_cdc.inspect.places import ENDPOINTS, Endpoints, ReplicationStatus
from gauss_cdc.logs import printable
from gauss_cdc.secrets import masked
from gauss_cdc.serve.alarms import ALARMS, BY_ERROR, Alarm
from gauss_cdc.serve.answers import ProgramAnswer, addresses, ask_program
from gauss_cdc.serve.server import is_well
from gauss_cdc.serve.standing import Gauges, WalLeft, of_standing, of_target
from gauss_cdc.serve.table import METRICS, PREFIX, STATUS
from producer.errors import CdcError
from schemas.errors import shortened
from schemas.findings import Finding, Level, refused
from schemas.version import VERSION

_UNAPPLIED: Final = "the target holds no commit of this source"
_APPLY: Final = "start `gauss-cdc apply`; if it runs, its log says what it waits for"
_ORDER: Final = {name: at for at, name in enumerate(ALARMS)}


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
    with ThreadPoolExecutor() as pool:
        looking = pool.submit(places.standing, compared_within=compared_within)
        asking = [pool.submit(ask_program, config.serve, at) for at in addresses(config, listens)]
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
            hint, name = "\n".join(map(printable, one.notes)), _name(standing, one)
            yield "", _found(ALARMS["CdcTableInexact"], what, hint, target=name)
        if one.is_unapplied and one.cuts is not None:
            name = _name(standing, one)
            yield "unapplied", _found(ALARMS["CdcTargetBehind"], _UNAPPLIED, _APPLY, target=name)


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
    values: dict[tuple[str, str], dict[str, float]] = {}  # of a program, or of a target
    for who, target, one in known:
        values.setdefault((who, target), {})[one.name.removeprefix(PREFIX)] = one.value
    there = ChainMap(*values.values())
    for who, target, one in known:
        measured = METRICS.get(one.name.removeprefix(PREFIX))
        if measured is None or measured.name == "ready":
            continue
        if not measured.is_alarming(one.value, ChainMap(values[who, target], there)):
            continue
        key = " ".join(one.labels[label] for label in measured.labels)
        said = f"{measured.name} is {one.value:,.6g}: {measured.meaning.partition(';')[0]}"
        what = f"{who}{key}{': ' * bool(key)}{said}"
        yield key, _found(ALARMS[measured.raises], what, target=target)
