"""Which conditions on the samples of large runs can be judged in which framework's logs, into docs/frameworks.md."""

from __future__ import annotations

from collections.abc import Iterator

from rlexporter.catalog.conditions import CONDITION_NAMED
from rlexporter.conditions.from_catalog import SIGNAL_NAMED
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.model.condition import Condition
from scripts.pack.markdown import table

BEGIN, END = "<!-- large runs: begin -->", "<!-- large runs: end -->"
_NAMES = (
    *("sampling_drift", "sampling_probabilities", "sampling_uncorrelated", "samples_ineffective", "samples_stale"),
    *("samples_dropped", "samples_masked", "rollouts_failing", "experts_unbalanced", "routing_uncertain"),
    *("evaluation_diverges", "agent_reward_drop", "advantage_impossible", "completions_repetitive", "waiting_more"),
    "rollout_tail",
)
"""One condition of each kind, in the order of the table."""


def page(text: str) -> str:
    """Return docs/frameworks.md with the table between its marks written anew."""
    head, rest = text.split(BEGIN)
    rows = [(f"`{name}`", "; ".join(_keys(CONDITION_NAMED[name])) or "-") for name in _NAMES]
    columns = ("Condition", "From the first of these keys that is logged")
    return f"{head}{BEGIN}\n{table(columns, rows)}\n{END}{rest.split(END)[1]}"


def _keys(condition: Condition) -> Iterator[str]:
    """Yield the frameworks that log what ``condition`` reads, with the keys; of several series the first one's."""
    sources = SIGNAL_NAMED[condition.signal].sources
    wanted = [source.series for source in sources if not source.derived]
    if len(wanted) < len(sources):
        wanted += condition.related
    titles: dict[str, list[str]] = {}
    for framework in FRAMEWORKS.values():
        fed: dict[str, list[str]] = {}
        for key in framework.keys:
            fed.setdefault(key.series, []).append(f"`{key.name}`")
        keys = ", ".join(dict.fromkeys(next((fed[series] for series in wanted if series in fed), ())))
        if keys:
            titles.setdefault(keys, []).append(framework.title.partition(", ")[0])
    return (f"{', '.join(dict.fromkeys(each))}: {keys}" for keys, each in titles.items())
