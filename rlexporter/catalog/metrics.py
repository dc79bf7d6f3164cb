"""The table of metrics, each declared once. Registration, outputs, docs, dashboards and rules derive from it.

The order is the order of docs and panels. Names are those of Prometheus, from which those of OTLP derive; keys are
TRL's own; `rlexporter.frameworks` says which keys of other frameworks feed which. To add a metric is to add one entry
to the table of its subject, behind those that more trainers have.

Sources of the healthy ranges:
  [ranges]    PPO healthy-ranges cheat sheet (tests/data/seeds/ppo-healthy-ranges.md)
  [trl]       TRL's logging guide and FAQ
  [37]        Huang et al., The 37 Implementation Details of Proximal Policy Optimization
  [verl]      verl, rollout correction and FAQ pages
Absolute numbers exist for few quantities; where none was published the range is left open, and the reading says
what to compare with.
"""

from __future__ import annotations

from dataclasses import replace

from rlexporter.catalog.data_metrics import DATA
from rlexporter.catalog.learning_metrics import LEARNING, LOGPROBS
from rlexporter.catalog.run_metrics import RUN, SPEED, TRUTH
from rlexporter.catalog.sample_metrics import COMPLETIONS, EXPERTS, PIPELINE, SAMPLING
from rlexporter.model.metric import Metric

_DECLARED = (*RUN, *LEARNING, *COMPLETIONS, *LOGPROBS, *SAMPLING, *EXPERTS, *SPEED, *DATA, *PIPELINE, *TRUTH)


_KEYS = {metric.series: metric.keys for metric in _DECLARED}
CATALOG = tuple(replace(each, keys=_KEYS[each.of]) if each.of and not each.keys else each for each in _DECLARED)
"""All metrics. A histogram that counts one value a step has the log keys of its gauge."""

NAMED: dict[str, Metric] = {metric.series: metric for metric in CATALOG}
"""The catalog by Prometheus name."""

MAY_BE_NONFINITE = frozenset(metric.series for metric in CATALOG if metric.may_be_nonfinite)
"""The metrics in which NaN or infinities are never a fault by themselves."""
