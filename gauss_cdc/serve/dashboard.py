"""Rules of Prometheus and a dashboard of Grafana, made from the tables of metrics and alarms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from gauss_cdc.serve.alarms import ALARMS, PAGE, Alarm
from gauss_cdc.serve.table import METRICS, PREFIX, Measured
from schemas.findings import Level

_SEVERITY: Final = {Level.ERROR: "critical", Level.WARNING: "warning", Level.NOTE: "info"}
_UNITS: Final = {"_seconds": "s", "_bytes": "bytes"}
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 24  # of a panel, and of the page, in Grafana's units
_DATA: Final = {"type": "prometheus", "uid": "${datasource}"}
_OURS: Final = '{source=~"$source"}'


# ---------------------------------------------------------------- rules
def rules(base: str) -> str:
    """A file of rules, which is YAML; `base`: what the links to docs/operations.md begin with."""
    lines = ["groups:", "- name: gauss-cdc", "  rules:"]
    for alarm in ALARMS.values():
        for one in METRICS.values():
            if one.raises == alarm.name:
                lines += _rule(alarm, one, base)
    return "\n".join([*lines, ""])


def _rule(alarm: Alarm, one: Measured, base: str) -> Iterator[str]:
    """Lines of a rule; the metric is a label, since several may raise one alarm."""
    labels = ["source", *(label for label in one.labels if label != "version")]
    named = ", ".join(f"{{{{ $labels.{label} }}}}" for label in labels)
    said = f"{one.name} is {{{{ $value | humanize }}}}: {one.meaning}"
    yield f"  - alert: {alarm.name}"
    yield f"    expr: {_quoted(one.condition(f'{PREFIX}{one.name}'))}"
    if one.hold:
        yield f"    for: {one.hold}"
    yield f"    labels: {{severity: {_SEVERITY[alarm.level]}, metric: {one.name}}}"
    yield "    annotations:"
    yield f"      summary: {_quoted(f'{named}: {alarm.symptom}')}"
    yield f"      description: {_quoted(said)}"
    yield f"      runbook_url: {_quoted(alarm.paragraph.replace(PAGE, base, 1))}"


def _quoted(text: str) -> str:
    """A scalar of YAML, as JSON writes it."""
    return json.dumps(text, ensure_ascii=False)


# ---------------------------------------------------------------- dashboard
def dashboard() -> dict[str, Any]:
    """A page: alarms, what raises them, what does not, and what stands by table."""
    shown = [one for one in METRICS.values() if one.name != "build_info"]
    by_table = [one for one in shown if "table" in one.labels]
    others = [one for one in shown if "table" not in one.labels]
    rows = {
        "What raises alarms": [one for one in others if one.raises],
        "Rates and positions": [one for one in others if not one.raises],
        "By table": by_table,
    }
    panels: list[dict[str, Any]] = [_alerts()]
    for title, found in rows.items():
        panels += _row(title, found, panels[-1]["gridPos"]["y"] + _HEIGHT)
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "uid": "gauss-cdc",
        "title": "gauss-cdc",
        "tags": ["gauss-cdc"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": panels,
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    yield {
        "name": "source",
        "type": "query",
        "datasource": _DATA,
        "query": f"label_values({PREFIX}build_info, source)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
    }


def _alerts() -> dict[str, Any]:
    return {
        **_panel("Alarms", "What Prometheus holds for true now; `doctor` says more.", 0, 0),
        "type": "table",
        "gridPos": {"x": 0, "y": 0, "w": _ACROSS, "h": _HEIGHT},
        "targets": [
            _target('ALERTS{alertname=~"Cdc.+", source=~"$source"}', "")
            | {"instant": True, "format": "table"}
        ],
    }


def _row(title: str, found: list[Measured], top: int) -> Iterator[dict[str, Any]]:
    place = {"x": 0, "y": top, "w": _ACROSS, "h": 1}
    yield {"type": "row", "title": title, "collapsed": False, "gridPos": place}
    across = _ACROSS // _WIDTH
    for number, one in enumerate(found):
        x, y = number % across * _WIDTH, top + 1 + number // across * _HEIGHT
        panel = _panel(one.name, one.meaning, x, y)
        unit = next((unit for end, unit in _UNITS.items() if one.name.endswith(end)), "short")
        yield {
            **panel,
            "type": "timeseries",
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [_target(expr, legend) for expr, legend in _series(one)],
        }


def _panel(title: str, description: str, x: int, y: int) -> dict[str, Any]:
    return {
        "title": title,
        "description": description,
        "datasource": _DATA,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
    }


def _target(expression: str, legend: str) -> dict[str, Any]:
    return {"refId": "A", "datasource": _DATA, "expr": expression, "legendFormat": legend}


def _series(one: Measured) -> Iterator[tuple[str, str]]:
    """Expressions and legends: of a counter its rate, of a histogram its quantiles."""
    name = f"{PREFIX}{one.name}"
    legend = " ".join(f"{{{{{label}}}}}" for label in ("source", "job", *one.labels))
    match one.kind:
        case "counter":
            yield f"rate({name}{_OURS}[$__rate_interval])", legend
        case "histogram":
            for share in (0.5, 0.99):
                rates = f"sum by (source, le) (rate({name}_bucket{_OURS}[$__rate_interval]))"
                yield f"histogram_quantile({share}, {rates})", f"{{{{source}}}} {share:.0%}"
        case _:
            yield f"{name}{_OURS}", legend
