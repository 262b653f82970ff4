"""Rules are run by Prometheus' own promtool; no Grafana runs: its schema judges the dashboard."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from gauss_cdc.cli import cli
from gauss_cdc.serve.alarms import ALARMS
from gauss_cdc.serve.dashboard import rules
from gauss_cdc.serve.table import METRICS, PREFIX
from tests.test_documents import ROOT, anchors

# Values each 30 s, as promtool writes them: at which each alarm comes, and at which none does.
VALUES = {
    "build_info": ("1x5 _x130", "1x135"),
    "capture_lag_seconds": ("301x65", "300x65"),
    "clock_ahead_seconds": ("31x65", "30x65"),
    "cuts_age_seconds": ("121x65", "120x65"),
    "foreign_cuts": ("1x65", "0x65"),
    "inexact_tables": ("1x135", "0x135"),
    "lag_seconds": ("301x65", "300x65"),
    "loop_age_seconds": ("901x65", "900x65"),
    "missing_rows": ("1x65", "0x65"),
    "overwritten_rows": ("_x40 1x25", "0x65"),
    "place_up": ("0x65", "1x65"),
    "ready": ("0x65", "1x65"),
    "retention_left_seconds": ("300x65", "300x65"),  # beside lag_seconds
    "retries_total": ("0x50 1x15", "7x65"),
    "slot_active": ("0x65", "1x65"),
    "slot_lost": ("1x65", "0x65"),
    "table_errors_total": ("1x50 2x15", "7x65"),
    "table_gap": ("1x135", "0x135"),
    "wal_left_seconds": ("14399x65", "14400x65"),
}


@pytest.fixture
def monitoring(tmp_path: Path) -> Path:
    """What `gauss-cdc dashboard` writes."""
    done = CliRunner().invoke(cli, ["dashboard", str(tmp_path), "--runbook", "https://wiki/cdc"])
    assert done.exit_code == 0
    return tmp_path


def run(promtool: Path, *words: str, folder: Path) -> str:
    ran = subprocess.run(
        [promtool, *words], check=False, cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_rules_are_rules_of_prometheus(promtool: Path, monitoring: Path) -> None:
    said = run(promtool, "check", "rules", "gauss-cdc-rules.yml", folder=monitoring)

    assert f"{len(VALUES)} rules found" in said


def labels(name: str, source: str) -> str:
    own = {"program": "run", "place": "kafka", "table": "public.t", "version": "1"}
    own["state"] = "loading"
    found = {"source": source} | {one: own[one] for one in METRICS[name].labels}
    return ", ".join(f'{label}="{value}"' for label, value in found.items())


def series() -> Iterator[dict[str, str]]:
    for name, (bad, good) in VALUES.items():
        for source, values in (("bad", bad), ("good", good)):
            one = f"{PREFIX}{name}{{{labels(name, source)}}}"
            yield {"series": one, "values": values}
    for name, value in {"slot_active": 0, "load_rows": 7, "ready": 0, "state": 1}.items():
        one = f"{PREFIX}{name}{{{labels(name, 'loads')}}}"
        yield {"series": one, "values": f"{value}x65"}
    for name, values in {"build_info": "1x135", "table_errors_total": "_x40 1x95"}.items():
        one = f"{PREFIX}{name}{{{labels(name, 'born')}}}"
        yield {"series": one, "values": values}


def firing(at: str, *names: str, born: tuple[str, ...] = ()) -> dict[str, Any]:
    """Exactly these metrics have a firing alarm, each under its name and its source."""
    samples = [
        {"labels": f'{{metric="{n}", alertname="{METRICS[n].raises}", source="{s}"}}', "value": 1}
        for s, some in (("bad", names), ("born", born))
        for n in some
    ]
    expr = 'count by (metric, alertname, source) (ALERTS{alertstate="firing"})'
    return {"expr": expr, "eval_time": at, "exp_samples": samples}


def test_each_alarm_comes_when_its_metric_is_bad_for_long_enough(
    promtool: Path, monitoring: Path
) -> None:
    at_once = {name for name in VALUES if not METRICS[name].hold}
    soon = at_once - {"overwritten_rows", "retries_total", "table_errors_total"}  # not bad yet
    late = {name for name in VALUES if METRICS[name].hold == "1h"}
    plan = {
        "rule_files": ["gauss-cdc-rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [*series()],
                "promql_expr_test": [
                    firing("1m", *soon),
                    firing("30m", *VALUES.keys() - late, born=("table_errors_total",)),
                    firing("65m", *late, "build_info"),
                ],
            }
        ],
    }
    (monitoring / "test.yml").write_text(json.dumps(plan))

    assert "SUCCESS" in run(promtool, "test", "rules", "test.yml", folder=monitoring)


def test_each_alarm_of_a_metric_is_tried() -> None:
    assert {name for name, one in METRICS.items() if one.alarm} == set(VALUES)


def test_each_link_leads_to_the_paragraph_of_its_symptom() -> None:
    """Also of what only `doctor` names."""
    page = ROOT / "docs" / "operations.md"
    there, text = anchors(page), page.read_text("utf-8")

    assert {a.name for a in ALARMS.values() if a.paragraph.partition("#")[2] not in there} == set()
    lost = {a.name for a in ALARMS.values() if f"### {a.symptom}\n\n`{a.name}`" not in text}
    assert lost == set()
    assert 'runbook_url: "x#a-place-does-not-answer"' in rules("x")


def test_the_dashboard_is_one_by_grafanas_schema_and_shows_every_metric(monitoring: Path) -> None:
    plugins.register_default_plugins()
    made = json.loads((monitoring / "gauss-cdc-dashboard.json").read_text())

    read = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(made)))
    shown = {panel["title"] for panel in made["panels"]}

    assert kept(made, read)
    assert not kept({"panels": [{"titel": "x"}]}, read)
    assert set(METRICS) - shown == {"build_info"}
    places = [tuple(panel["gridPos"][at] for at in "xy") for panel in made["panels"]]
    assert len(set(places)) == len(places)


def kept(made: Any, read: Any) -> bool:
    """Whether all that was written was understood: Grafana's types drop what they do not know."""
    match made:
        case dict():
            return all(key in read and kept(value, read[key]) for key, value in made.items())
        case list():
            return len(made) <= len(read) and all(map(kept, made, read))
        case _:
            return bool(made == read)
