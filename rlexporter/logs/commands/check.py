"""`rlexporter check`: prints which alerts recorded runs would have raised.

For a person these are the verdict, and incidents as they would page, a cause with its symptoms below it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator

from rlexporter.catalog.alerts import RUN_FAILED, RUN_VANISHED
from rlexporter.catalog.algorithms import ALGORITHMS
from rlexporter.catalog.metrics import NAMED
from rlexporter.conditions.table import CONDITION_NAMED, SIGNAL_NAMED, series_of
from rlexporter.config.mapping import proposed
from rlexporter.config.settings import Settings
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.logs import reader
from rlexporter.logs.recorded_alerts import NOTHING_JUDGED, Fired, NotJudged, Report, judge
from rlexporter.model.condition import Severity
from rlexporter.model.errors import SetupError, UnreadableError
from rlexporter.model.incident import WORDS
from rlexporter.status.samples import COUNTED, quantity
from rlexporter.status.verdict import LEAST_STEPS
from rlexporter.terminal import wrapped

_WORST_FIRST = (UnreadableError.status, 2, NOTHING_JUDGED, 1, 0)
"""The exit statuses: the worst of all files counts."""
_EPILOG = """\
what is read, told apart by what a file holds:
  trainer_state.json, or a checkpoint or output folder with one (of several checkpoints the newest)
  JSON lines, one object a log line: of rlexporter's own recorder, verl's `file` logger, ms-swift (logging.jsonl),
    LLaMA-Factory (trainer_log.jsonl), a W&B history
  JSON with the histories of several runs, by name or in a list, as rows or columns
  notebooks: what their cells have printed, and the tables of progress in them
  console output of TRL (dicts, between progress bars), of verl (step:1 - key:value - ...) and trlX (on its bar),
    and any that prints numbers again and again, such as DeepSpeed-Chat's (Reward: 0.5 | Actor Loss: 0.1 ...)
  CSV, as W&B exports it or pandas writes it
  TensorBoard event files, or a folder of them (pip install tensorboard)

a file with several trainings, such as SFT before GRPO, is split: each is judged, those by RL first

exit status, of several files or trainings the worst in this order:
  3 a file cannot be read, 2 a critical alert, 4 nothing could be judged, or fewer than 3 steps are too short to judge,
  1 a warning, 0 no alert
"""

WIDTH = 80
_NAMED_KEYS = 8
_SUMMARIES = {alert.alert: alert.summary for alert in (RUN_FAILED, RUN_VANISHED)}
_ORDER = [severity.value for severity in Severity]


def define(parser: argparse.ArgumentParser) -> None:
    """Define the command."""
    parser.epilog = _EPILOG
    parser.add_argument("files", nargs="+", metavar="FILE", help="a log, or the folder of a run")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--algorithm", choices=list(ALGORITHMS), default="", help="where a file does not say")
    parser.add_argument("--thresholds", metavar="LIMITS", help="kl_high=0.5,entropy_low=off, or a TOML file")
    parser.add_argument("--map", metavar="KEYS", help="what unknown keys mean: train/score=reward, or a TOML file")
    parser.add_argument("--verbose", action="store_true", help="list what could not be judged, and why")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Check each file and return the worst exit status. Raises SetupError for unusable limits."""
    own = Settings.load({"thresholds": options.thresholds, "map": options.map})
    reports, statuses = [], [0]
    for file in options.files:
        try:
            found = [judge(each, own.thresholds, own.map) for each in reader.read_all(file, options.algorithm)]
        except SetupError as error:
            print(f"rlexporter: {error}", file=sys.stderr)
            statuses.append(UnreadableError.status)
            continue
        statuses += [report.status for report in found]
        reports += found
        if not options.json:
            print(*(written(report, verbose=options.verbose) for report in found), sep="\n")
    if options.json:
        print(json.dumps([report.as_json() for report in reports], indent=1))
    return min(statuses, key=_WORST_FIRST.index)


def written(report: Report, *, verbose: bool = False) -> str:
    """Return the report as text, in lines of at most 80 characters where words allow it."""
    word, text = said(report)
    lines = wrapped(f"{word:5} {text}" if word in WORDS else f"{word}. {text}", WIDTH, later=" " * 6)
    lines.append(f"  {report.file}: {report.algorithm} run {report.run}, {_steps(report.steps)}")
    if report.part:
        lines += _body_line(report.part)
    lines += [f"  note: {note}" for note in report.notes]
    if report.guesses:
        taken = ", ".join(f"{key} for {series}" for key, series in report.guesses.items())
        lines += _body_line(f"guessed by the names of keys: {taken}; --map says otherwise")
    for cause, symptoms in incidents(report.alerts):
        lines += _incident(cause, symptoms)
    if (stop := report.stop) is not None:
        where = f"step {stop.step:,} of {report.steps:,} ({report.saved} % saved)"
        lines += _body_line(f"on_critical=stop would have stopped it at {where}")
    keys = report.unknown_keys
    if not report.judged:
        more = f" and {len(keys) - _NAMED_KEYS} more (--json)" if len(keys) > _NAMED_KEYS else ""
        named = f"unknown keys {', '.join(keys[:_NAMED_KEYS])}{more}"
        why = named if keys else "the log has no number that an alert is judged by"
        lines += _body_line(f"nothing could be judged: {why}")
    elif not report.alerts:
        lines.append("  no alert")
    lacking = {missing.lacks for missing in report.not_judged}  # what the log has by another name is not proposed
    looks = {key: name for key, name in proposed(keys).items() if not report.judged or name in lacking}
    if looks:
        lines.append("  unknown keys that look like something judged; if they are that, add:")
        mapped = ",".join(f"{key}={name}" for key, name in looks.items())
        lines.append(f"    --map '{mapped}'")
    if verbose:
        lines += _missing(report)
    ran, of = sum(report.checks.values()), len(report.checks)
    others = "." if verbose or ran == of else "; --verbose lists the others and why."
    lines.append(f"  {ran} of {of} checks ran{others}")
    return "\n".join(lines)


def said(report: Report) -> tuple[str, str]:
    """Return the word of the verdict and its text; another word where nothing, or too little, was judged."""
    if report.status != NOTHING_JUDGED:
        return report.verdict.word, report.verdict.text
    if report.too_short:
        return "too short to judge", f"The log has {_steps(report.logged)}, and {LEAST_STEPS} are the least."
    return "not judged", "No alert is judged by what the log has."


def _body_line(text: str) -> list[str]:
    return wrapped(text, WIDTH, " " * 2, " " * 4)


def incidents(alerts: Iterable[Fired]) -> list[tuple[Fired, list[Fired]]]:
    """Return each alert that would have been sent, with its symptoms, in the order of steps."""
    order = sorted(alerts, key=lambda fired: (fired.step, _ORDER.index(fired.severity)))
    causes: list[tuple[Fired, list[Fired]]] = [(fired, []) for fired in order if fired.cause is None]
    for symptom in order:
        if symptom.cause is None:
            continue
        own = [pair for pair in causes if pair[0].condition == symptom.cause and pair[0].step <= symptom.step]
        if own:
            _, beside = max(own, key=lambda pair: (-_ORDER.index(pair[0].severity), pair[0].step))
        else:  # its cause may have been a symptom itself before
            beside = next(symptoms for _, symptoms in causes for other in symptoms if other.condition == symptom.cause)
        beside.append(symptom)
    return causes


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _incident(cause: Fired, symptoms: list[Fired]) -> Iterator[str]:
    yield f"  {cause.severity:8}  step {cause.step:<6} {cause.alert}"
    for text in (_summary(cause), _numbers(cause)):
        yield from wrapped(text, WIDTH, " " * 6, " " * 6)
    others = [symptom for symptom in symptoms if symptom.condition != cause.condition]
    if others:
        yield "    symptoms:"
    for symptom in others:
        what = _numbers(symptom, brief=True) or _summary(symptom)
        if symptom.own_step is not None:
            what += f"; its own alert from step {symptom.own_step}"
        yield from wrapped(f"step {symptom.step:<5} {symptom.alert}: {what}", WIDTH, " " * 6, " " * 8)


def _summary(fired: Fired) -> str:
    condition = CONDITION_NAMED.get(fired.condition)
    if fired.unit == "values":
        return ""
    return condition.summary if condition else _SUMMARIES[fired.alert]


def _numbers(fired: Fired, *, brief: bool = False) -> str:
    """Return value and limit with their units, and the setting of the limit. ``brief``: without what the alert says."""
    if fired.value is None or fired.threshold is None:
        return ""
    if fired.unit == "values":
        bad = "" if brief else " was NaN or infinite" if fired.value == 1 else " were NaN or infinite"
        return f"{quantity(fired.value, fired.unit)}{bad} in {fired.metric}"
    signal = SIGNAL_NAMED[CONDITION_NAMED[fired.condition].signal]
    setting = f"{fired.condition}.{fired.severity}"
    derived = all(source.derived for source in signal.sources)
    if derived and not fired.unit and fired.value == 1:
        return f"limit: {setting}"
    value = quantity(fired.value, fired.unit)
    if fired.unit in COUNTED:
        return f"{value}, limit: {setting}"
    where = "" if derived or not fired.metric else f"{fired.metric} "
    limit = quantity(fired.threshold, fired.unit if fired.unit == "fraction" else "")
    relative = f": {fired.limit}" if fired.limit else ""
    return f"{where}{value}, limit {limit}{relative} ({setting})"


def _missing(report: Report) -> Iterator[str]:
    """Say which conditions could not be judged, and what the log lacks for them."""
    by_reason: dict[str, list[str]] = {}
    for missing in report.not_judged:
        by_reason.setdefault(_why(missing, report), []).extend(missing.conditions)
    told = {name for missing in report.not_judged for name in missing.conditions}
    waiting = [name for name, ran in report.checks.items() if not ran and name not in told]
    if waiting:
        why = "too few values for it in the log" if report.judged else "nothing in the log shows it"
        by_reason[why] = waiting
    if by_reason:
        yield "  not judged:"
    for why, conditions in by_reason.items():
        yield from wrapped(f"{', '.join(dict.fromkeys(conditions))}: {why}", WIDTH, " " * 4, " " * 6)


def _why(missing: NotJudged, report: Report) -> str:
    metrics = [NAMED[series] for series in series_of(missing.lacks)] if missing.lacks else []
    if not metrics:
        return missing.reason
    own = FRAMEWORKS.get(report.framework)
    keys = [key.name for metric in metrics for key in (own.keys if own else ()) if key.series == metric.series]
    of_trl = [key for metric in metrics for key in metric.keys]  # they count in the log of any framework
    keys = keys or [key.name for key in of_trl if report.algorithm in key.algorithms]
    if there := [key for key in keys if key in report.keys]:
        return f"{' or '.join(dict.fromkeys(there))} in the log does not show it"
    if keys := keys or [key.name for key in of_trl if not key.only and key.name not in report.keys]:
        return f"no {' or '.join(dict.fromkeys(keys))} in the log"
    return "only seen at the tensors of a live trainer"
