"""Writing and running `promtool test rules` cases."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.tools import ROOT, require_tools

RULES = ROOT / "alerts/rlexporter.rules.yml"


@dataclass
class Case:
    """Series by name, as promtool writes their values; at each time the runs for which each alert fires.

    The run of a case is ``a``, where it has only one.
    """

    series: Mapping[str, str]
    expect: Mapping[str, Mapping[str, Iterable[str]]]
    """Time -> alert -> values of the label ``run``; none: it must be silent.

    An alert is `RLKL`, or one of a severity or condition: `RLKL/critical`, `RLKL/kl_jump`.
    """

    def checks(self, among: str = "") -> list[dict[str, object]]:
        """What promtool compares. Alerts are the series ALERTS here: what one says is tested where it arrives."""
        return [
            {"expr": f"count by (run) ({_firing(alert, among)})", "eval_time": time, "exp_samples": _each(runs)}
            for time, alerts in self.expect.items()
            for alert, runs in alerts.items()
        ]

    def called(self, run: str) -> Case:
        """The same case for a run of another name."""
        series = {name.replace('run="a"', f'run="{run}"'): values for name, values in self.series.items()}
        expect = {
            time: {alert: [run if each == "a" else each for each in runs] for alert, runs in alerts.items()}
            for time, alerts in self.expect.items()
        }
        return Case(series, expect)


def of(series: Mapping[str, str], checks: list[dict[str, object]]) -> dict[str, object]:
    """Series and what to ask of them as a test of promtool."""
    assert checks
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": checks,
    }


def check(expression: str, seconds: int, samples: Mapping[str, float]) -> dict[str, object]:
    """What to ask at a time of the test, and the samples of the answer by their labels."""
    answer = [{"labels": labels, "value": value} for labels, value in samples.items()]
    return {"expr": expression, "eval_time": f"{seconds}s", "exp_samples": answer}


def together(cases: Iterable[Case]) -> dict[str, object]:
    """Cases of one run each, as one test of promtool: the rules are then evaluated once for all of them."""
    named = [(f"run-{i}", case.called(f"run-{i}")) for i, case in enumerate(cases)]
    series = {name: values for _, case in named for name, values in case.series.items()}
    return of(series, [check for run, case in named for check in case.checks(f',run=~"{run}|"')])


def alone(case: Case) -> dict[str, object]:
    """A case as a test of promtool."""
    return of(case.series, case.checks())


def run(generation: str, folder: Path, tests: list[dict[str, object]], rules: Path = RULES, every: str = "15s") -> str:
    """What promtool says; empty where every case holds. Only names, severities and runs are compared."""
    tools = require_tools(generation)
    file = folder / "cases.yml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": every, "tests": tests}))
    done = subprocess.run(
        [str(tools / "promtool"), "test", "rules", str(file)], capture_output=True, text=True, timeout=600
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _firing(alert: str, among: str) -> str:
    name, _, one = alert.partition("/")
    label = "severity" if one in ("", "info", "warning", "critical") else "condition"
    return f'ALERTS{{alertname="{name}",alertstate="firing"' + (f',{label}="{one}"' if one else "") + among + "}"


def _each(runs: Iterable[str]) -> list[dict[str, object]]:
    return [{"labels": f'{{run="{each}"}}' if each else "{}", "value": 1} for each in runs]
