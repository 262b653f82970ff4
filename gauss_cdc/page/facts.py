"""One look at all places and programs, as the plain values that the page shows.

The places are those of `status --json`, the findings those of `doctor --json`: the page knows
nothing that they do not.
"""

from __future__ import annotations

from typing import Any, Final

from gauss_cdc import doctor
from gauss_cdc.config import Config
from gauss_cdc.inspect.places import ReplicationStatus
from gauss_cdc.secrets import masked
from gauss_cdc.serve.answers import ProgramAnswer, ways
from gauss_cdc.serve.table import PREFIX
from schemas.control import LoadPhase
from schemas.version import VERSION
from spark_consumers.cuts.ledger import is_unloaded

# Metrics of `run` and `apply` that have a table -> the column of the page.
_COLUMNS: Final = {
    "table_records_total": "records",
    "table_bytes_total": "bytes",
    "table_errors_total": "errors",
}
_EXACT: Final = "exact"


def facts(config: Config, answers: doctor.Answers) -> dict[str, Any]:
    """Return what was found; texts are of others, and are to be shown as text."""
    return {
        "version": VERSION,
        "source": config.kafka.prefix,
        "kinds": {
            "source": config.source.kind,
            "targets": {one.name: one.target.kind for one in config.targets if one.target},
        },
        "status": answers.standing.as_json(),
        "findings": [doctor.as_json(found) for found in doctor.findings(answers)],
        "programs": [_program(one) for one in answers.programs],
        "tables": tables(answers),
        "config": masked(config.shown()),
    }


def _program(one: ProgramAnswer) -> dict[str, Any]:
    return {"name": one.name, "ready": one.ready.strip(), "why": one.why, "log": one.log}


def tables(answers: doctor.Answers) -> list[dict[str, Any]]:
    """What is known of each table, by its name."""
    found = _states(answers.standing)
    for sample in (one for program in answers.programs for one in program.samples):
        column = _COLUMNS.get(sample.name.removeprefix(PREFIX))
        if column is not None and (table := sample.labels.get("table")) is not None:
            found.setdefault(table, {"state": ""})[column] = int(sample.value)
    for table, read in ways(answers.programs).items():
        found.setdefault(table, {"state": ""}).update(read)
    return [{"table": table, **found[table]} for table in sorted(found)]


def _states(standing: ReplicationStatus) -> dict[str, dict[str, Any]]:
    cuts = standing.cuts
    loads = {} if cuts is None else cuts.loads
    inexact: dict[str, list[tuple[str, str]]] = {}  # target and why, of each
    for one in standing.each:
        for table, why in one.target.inexact.items() if one.target is not None else ():
            inexact.setdefault(table, []).append((one.name, why))
    # Else its rows are older, whatever cuts say, or nobody knows.
    holds_epoch = cuts is not None and all(
        one.target is not None and one.target.epoch >= cuts.epoch for one in standing.each
    )
    out: dict[str, dict[str, Any]] = {}
    for table in {*loads, *inexact}:
        marks = inexact.get(table, [])
        said = _state(loads.get(table), [why for _, why in marks])
        named = [f"{name}: {why}" if standing.others else why for name, why in marks]
        out[table] = {
            "state": said if holds_epoch or said != _EXACT else "not known",
            "why": "; ".join(named),
        }
    return out


def _state(phase: str | None, marks: list[str]) -> str:
    """One word: what cuts say, unless a target knows better."""
    if phase in {LoadPhase.BEGIN, LoadPhase.CHUNK} or (marks and all(map(is_unloaded, marks))):
        return "loading"
    if marks:
        return "not exact"
    return _EXACT if phase == LoadPhase.END else (phase or "").lower()
