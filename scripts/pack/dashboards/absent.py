"""Panels that a healthy run may leave empty, and why. A test of live runs fails on any other."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.pack.dashboards.families import SAMPLERS, SAMPLES
from scripts.pack.dashboards.panels import capital

GOOD: Mapping[str, str] = {
    "Wrong now": "nothing is wrong: good",
    "NaN and infinite values": "every value was a number: good",
    "Values that were not given": "every value was given: good",
    "Conditions that have begun": "nothing has been wrong: good",
    "Signals that this run does not have": "every signal can be seen: good",
    "Checkpoint of step": "none yet",
    "Nearest to an alert": "nothing comes near a limit: good",
    "Nearest to an alert, by number": "nothing has come near a limit: good",
}
"""By the title of the panel, in runs of any algorithm."""

_NO_SAMPLER = dict.fromkeys((*map(capital, SAMPLES), *(title for title, _ in SAMPLERS)), "not logged by this trainer")
LACKING: Mapping[str, Mapping[str, str]] = {
    "grpo": {"Sequence ratio": "the ratio is one of tokens", **_NO_SAMPLER},
    "rloo": {"Policy ratio": "the ratio is one of sequences", **_NO_SAMPLER},
    "ppo": _NO_SAMPLER,
    "ppo-legacy": {"Entropy per token": "this version of TRL has the mean only", **_NO_SAMPLER},
}
"""By algorithm, then by the title of the panel."""


def reason(algorithm: str, title: str) -> str:
    """Return why a panel may be empty in a healthy run of ``algorithm``; empty if it may not."""
    return GOOD.get(title) or LACKING.get(algorithm, {}).get(title, "")
