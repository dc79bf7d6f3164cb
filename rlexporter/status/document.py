"""The JSON documents of `/api/status` and `/api/history`, which docs/api.md describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, lru_cache
from math import isfinite
from typing import Any, NamedTuple

from rlexporter.catalog.alerts import RUNBOOKS
from rlexporter.catalog.languages import ENGLISH, Language
from rlexporter.conditions.table import CONDITION_NAMED, SIGNAL_NAMED, series_of
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.histogram import Histogram
from rlexporter.model.metric import Metric, Series
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.status import cards
from rlexporter.status.account import incidents_as_json
from rlexporter.status.curve import HeatMap, thinned
from rlexporter.status.history import History, labelled, since
from rlexporter.status.numbers import Number, number, whole
from rlexporter.status.samples import Samples
from rlexporter.status.steps import PID
from rlexporter.status.verdict import STUCK, UNKNOWN, Verdict, age, is_stalled, verdict

VERSION = 1
"""The version of both documents: it changes when a field is removed or changes its meaning, not when one is added."""

MOST_POINTS = 2000
POINTS = 500
FEW_REWARDS = 4
"""As many reward functions have their curves on the page, beside the reward."""
_MOST_CURVES = 200
_DOCS = f"{RUNBOOKS.removesuffix('/alerts/runbooks')}/docs/api.md"
_LINKS = {
    "metrics": "/metrics",
    "status": "/api/status",
    "history": "/api/history",
    "docs": _DOCS,
    "runbooks": f"{RUNBOOKS}/README.md",
}
_OWN_LABELS = ("run", "rank")


class Process(NamedTuple):
    """The process that serves a run."""

    host: str
    pid: int


def status(
    snapshot: Snapshot, history: History, now: float, language: Language = ENGLISH, process: Process | None = None
) -> dict[str, Any]:
    """Return the document of the run at this moment; ``now``: seconds since the epoch; ``process``: who serves it.

    What says how the run is and what to do is in ``language``; all else is the same in each.
    """
    samples = Samples(snapshot)
    causes, reasons = samples.of("rl_signal_unavailable_info"), snapshot.reasons
    missing = {signal: (cause, language(reasons.get(signal, ""))) for signal, cause in causes}
    past = history.past(samples.step)
    ordered = sorted(snapshot.buckets.items(), key=lambda item: (item[0].metric.series, item[0].labels))
    return {
        "version": VERSION,
        "language": language.code,
        "time": now,
        "run": _run(samples, history.steps_per_second(), now),
        "process": process._asdict() if process else None,
        "verdict": _verdict(verdict(samples, now, language), process),
        "conditions": incidents_as_json(samples, language),
        "cards": cards.as_json(samples, past.buckets, now, language),
        "rewards": _rewards(samples),
        "distributions": [
            _distribution(series, counted, since(counted, past.buckets.get(series)), past.steps)
            for series, counted in ordered
        ],
        "not_judged": _not_judged(samples, missing, language),
        "unavailable": [
            {"signal": signal, "cause": cause, "reason": reason} for signal, (cause, reason) in missing.items()
        ],
        "guesses": [{"key": key, "series": series} for key, series in samples.of("rlexporter_guessed_key_info")],
        "nonfinite": [
            {"metric": metric, "kind": kind, "count": whole(count)}
            for (metric, kind), count in sorted(samples.nonfinite.items())
        ],
        "undefined": [
            {"metric": metric, "count": whole(count)}
            for (metric,), count in sorted(samples.of("rl_undefined_values_total").items())
        ],
        "series": _series(snapshot, snapshot.family or samples.info("rl_run_info").get("algorithm", "")),
        "hyperparameters": {name: number(value) for (name,), value in samples.of("rl_hyperparameter").items()},
        "links": _LINKS,
    }


def _verdict(found: Verdict, process: Process | None) -> dict[str, Any]:
    """Return the entry of the document; commands name the process, and leave the address to who reads them."""
    pid = str(process.pid) if process else "PID"
    steps = [{"text": step.text, "command": step.command.replace(PID, pid)} for step in found.steps]
    return {**asdict(found), "steps": steps}


def curves(
    history: History, names: Sequence[str] = (), points: int = POINTS, heat_maps: bool = False, earlier: bool = False
) -> dict[str, Any]:
    """Return the document of the curves of the metrics ``names``, with at most ``points`` each.

    Without ``names``: of those that the cards may show. At most 200 curves. ``heat_maps``: of all histograms too;
    ``earlier``: of the run to compare with too.
    """
    wanted = [series for name in dict.fromkeys(names or cards.curves()) for series in history.series(name)]
    return {
        "version": VERSION,
        "curves": [_curve(history, series, points) for series in wanted[:_MOST_CURVES]],
        "marks": [mark._asdict() for mark in history.marks()],
        "heat_maps": [_heat_map(series, of) for series, of in history.heat_maps()] if heat_maps else [],
        "earlier": history.earlier.as_json() if earlier and history.earlier else None,
    }


def kept(
    snapshot: Snapshot, history: History, now: float, language: Language = ENGLISH, points: int = MOST_POINTS
) -> dict[str, Any]:
    """Return both documents of a run that is over, for `rlexporter.status.page.page`; ``points``: of a curve."""
    told = status(snapshot, history, now, language)
    names = cards.curves()
    if len(told["rewards"]) <= FEW_REWARDS:
        names.append("rl_reward_function_mean")
    if curve := told["verdict"]["curve"]:
        labels = labelled(curve["labels"], curve["labels"].values())
        names.append(f"{curve['series']}{{{labels}}}" if labels else curve["series"])
    return {"status": told, "history": curves(history, names, points, heat_maps=True, earlier=True)}


def _curve(history: History, series: Series, points: int) -> dict[str, Any]:
    curve = thinned(history.curve(series), points)
    return {
        "series": series.metric.series,
        "labels": _labels(series),
        "steps": [whole(step) for step, _ in curve],
        "values": [number(value) for _, value in curve],
    }


def _heat_map(series: Series, of: HeatMap) -> dict[str, Any]:
    columns = of.columns()
    return {
        "series": series.metric.series,
        "labels": _labels(series),
        "edges": [*map(number, of.bounds), "+Inf"],
        "smallest": _extreme(of.smallest),
        "largest": _extreme(of.largest),
        "every": of.every,
        "steps": list(columns),
        "counts": [list(counts) for counts in columns.values()],
    }


def _run(samples: Samples, pace: float | None, now: float) -> dict[str, Any]:
    snapshot, info = samples.snapshot, samples.info("rl_run_info")
    state, planned = snapshot.state, samples.value("rl_steps_planned")
    stuck = is_stalled(samples, now)
    pace = pace if state is RunState.RUNNING and not stuck else None
    left = planned - samples.step if planned is not None and samples.step is not None else None
    return {
        "name": snapshot.labels.get("run", ""),
        "rank": snapshot.labels.get("rank", ""),
        "labels": {name: text for name, text in snapshot.labels.items() if name not in _OWN_LABELS},
        "algorithm": info.get("algorithm", ""),
        "trainer": info.get("trainer", ""),
        "model": info.get("model", ""),
        "state": STUCK if stuck else state.value if state else UNKNOWN,
        "exception": samples.info("rl_run_exception_info").get("exception", ""),
        "attempt": int(info["attempt"]) if info.get("attempt", "").isdecimal() else None,
        "started": number(samples.value("rl_run_start_timestamp_seconds")),
        "step": samples.step,
        "steps_planned": whole(planned),
        "steps_per_second": number(pace),
        "seconds_left": max(0.0, left / pace) if left is not None and pace else None,
        "last_step_seconds_ago": number(age(samples, now)),
        "stall_after_seconds": number(samples.value("rl_stall_after_seconds")),
        "last_checkpoint_step": whole(samples.value("rl_last_checkpoint_step")),
        "last_good_checkpoint_step": whole(samples.value("rl_last_good_checkpoint_step")),
        "last_good_checkpoint": snapshot.good_folder or None,
        "info": info,
    }


def _rewards(samples: Samples) -> list[dict[str, Number]]:
    means, spreads = samples.of("rl_reward_function_mean"), samples.of("rl_reward_function_std")
    return [
        {"function": key[0], "mean": number(means.get(key)), "std": number(spreads.get(key))}
        for key in sorted({*means, *spreads})
    ]


def _series(snapshot: Snapshot, family: str) -> list[dict[str, Any]]:
    ordered = sorted((*snapshot.samples, *snapshot.buckets), key=lambda series: (series.metric.series, series.labels))
    return [
        {
            **_described(series.metric, snapshot.framework, family),
            "labels": _labels(series),
            "value": number(snapshot.samples.get(series)),
            "step": snapshot.steps.get(series),
        }
        for series in ordered
    ]


def _labels(series: Series) -> dict[str, str]:
    return dict(zip(series.metric.labels, series.labels, strict=True))


@lru_cache(maxsize=2048)
def _described(metric: Metric, framework: str, family: str) -> dict[str, str]:
    """Return what the catalog says of ``metric``, with the keys of ``framework`` that feed it in this ``family``."""
    return {
        "name": metric.series,
        "key": ", ".join(dict.fromkeys(_keys(metric, framework, family))),
        "kind": metric.kind.value,
        "unit": metric.unit,
        "level": metric.level.value,
        "help": metric.help,
        "reading": metric.reading,
        "healthy": metric.healthy.text if metric.healthy else "",
    }


def _keys(metric: Metric, framework: str, family: str) -> list[str]:
    """Return the log keys that feed ``metric``: a framework's own, or else TRL's if its trainers build on them."""
    known = FRAMEWORKS.get(framework)
    own = known.keys if known is not None else ()
    keys = [key.name for key in own if key.series == metric.series and (not key.families or family in key.families)]
    if keys or (known is not None and not known.of_trl):
        return keys
    return [key.name for key in metric.keys if family in key.algorithms] or [key.name for key in metric.keys]


def _distribution(series: Series, counted: Histogram, recent: Histogram, steps: int | None) -> dict[str, Any]:
    return {
        "series": series.metric.series,
        "labels": _labels(series),
        "unit": series.metric.unit,
        "help": series.metric.help,
        "edges": [*map(number, counted.bounds), "+Inf"],
        "counts": list(counted.counts),
        "smallest": _extreme(counted.minimum),
        "largest": _extreme(counted.maximum),
        "recent": list(recent.counts),
        "recent_steps": steps,
        "count": counted.count,
        "sum": number(counted.positive_sum - counted.negative_sum),
        "nonfinite": dict(counted.nonfinite.by_kind()) if counted.nonfinite else None,
    }


def _extreme(value: float) -> float | None:
    """Return the smallest or the largest of finite values; None if there are none."""
    return value if isfinite(value) else None


def _not_judged(samples: Samples, missing: Mapping[str, tuple[str, str]], language: Language) -> list[dict[str, str]]:
    """Return the conditions that this run was not judged by so far, with the reason in ``language``.

    ``missing``: cause and reason of each signal that cannot be measured.
    """
    waiting = [name for (name,), judged in samples.of("rl_condition_judged").items() if not judged]
    return [_unjudged(name, missing, language) for name in waiting if name in CONDITION_NAMED]


def _unjudged(name: str, missing: Mapping[str, tuple[str, str]], language: Language) -> dict[str, str]:
    signal = CONDITION_NAMED[name].signal
    read = _read_at(signal)
    for lacking, (cause, reason) in missing.items():
        if read & _fed(lacking) or any(series.startswith(f"rl_{lacking.removesuffix('s')}_") for series in read):
            return {"condition": name, "cause": cause, "reason": reason}
    reason = language("not enough values yet, or none: {series}", series=", ".join(sorted(read)) or signal)
    return {"condition": name, "cause": "waiting", "reason": reason}


@cache
def _fed(signal: str) -> frozenset[str]:
    """Return the series of what an adapter calls ``signal``, where a signal of conditions has that name too."""
    return frozenset(series_of(signal)) if signal in SIGNAL_NAMED else frozenset()


@cache
def _read_at(signal: str) -> frozenset[str]:
    """Return all series that ``signal`` is read at or computed from."""
    declared = SIGNAL_NAMED[signal]
    inputs = [name for name in (declared.of, *declared.after) if name]
    return frozenset(series_of(signal)).union(*(_read_at(name) for name in inputs))
