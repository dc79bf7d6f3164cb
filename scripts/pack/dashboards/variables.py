"""Variables of dashboards: the shown jobs, runs and ranks, and the width of a heatmap's columns."""

from __future__ import annotations

from rlexporter.commands.generate import OWNERS, PLACES
from scripts.pack.dashboards.any_series import NAMES
from scripts.pack.dashboards.frame import RUN, ZERO, Json, select, skeleton

_APART = (*PLACES, *OWNERS)
"""Labels by which runs of one name are told apart; many setups have none of them."""
_NUMBER = "/ (\\d+) /"
_INFO = 'rl_run_info{job=~"$job"}'
_RUNNING = select('rank="0"', 'state="running"')
_AGE = (
    f"(time() - max by (job) (rl_last_step_timestamp_seconds{{{ZERO}}})) "
    f"and on (job) max by (job) (rl_run_state{{{_RUNNING}}}) == 1"
)
_ALL = select('rank="0"', 'le="+Inf"')
_COMPLETIONS = (
    f"(sum by (rank) (rl_reward_dist_bucket{{{_ALL}}}) or sum by (rank) (rl_completion_length_dist_bucket{{{_ALL}}})) "
    f"and on (rank) max by (rank) (rl_run_state{{{_RUNNING}}}) == 1"
)
_LOOKED = f"({_COMPLETIONS})[$__range:15s]"
PACE = (
    f"max(max by ({RUN}) (rl_step_time_seconds{{{ZERO}}}) "
    f"or quantile_over_time(0.95, ({_AGE})[$__range:15s]) "
    f"or 15 * count_over_time({_LOOKED}) / (changes({_LOOKED}) > 1))"
)
"""Seconds between steps: the longest of the logged step time, the last step's age, and the time between generations.

The logged time is of the last step only: if one generation serves many short steps, the long one is rarely the last.
The age is its 95th percentile over time, so that one pause does not widen every column. Rewards, advantages and
lengths come with a generation, perhaps only every tenth step.
"""
_TWO, _FOUR = "$__interval_ms / 500", "$__interval_ms / 250"
"""The seconds of two and of four scrapes: in a variable an interval is a scrape's."""
WINDOW = f"ceil(clamp_min(1.2 * {PACE} + {_TWO}, {_FOUR})) or vector({_FOUR})"
"""Width of a column in seconds: a step and a fifth, for slower ones, and two scrapes; at least four scrapes."""


def common(*more: Json) -> list[Json]:
    """Return the variables that every dashboard has, and ``more``."""
    # A variable, because nothing else is filled in by provisioning as well as by an import.
    apart = (_variable(name, f"label_values({_INFO}, {name})", multi=True, absent=True) for name in _APART)
    return [
        skeleton("datasource"),
        _variable("job", "label_values(rl_run_info, job)", multi=True, absent=True),
        *apart,
        *more,
    ]


def run(*, multi: bool = False, of: str = "") -> Json:
    """Return the variable for the run; ``of``: a matcher of `rl_run_info` for those to choose from."""
    matchers = ",".join(filter(None, ('job=~"$job"', *(f'{name}=~"${name}"' for name in _APART), of)))
    return _variable("run", f"label_values(rl_run_info{{{matchers}}}, run)", multi=multi)


def series() -> Json:
    """Return the variable for a series of the run."""
    made = _variable("series", f"label_values({{{select(NAMES)}}}, __name__)", multi=False)
    made["current"] = {"text": "rl_learning_rate", "value": "rl_learning_rate"}
    return made


def rank() -> Json:
    """Return the variable for the ranks."""
    return _variable("rank", f"label_values(rl_step_duration_seconds_count{{{select()}}}, rank)", multi=True)


def reward_function() -> Json:
    """Return the hidden variable by which a panel is repeated."""
    query = f"label_values(rl_reward_function_dist_bucket{{{select()}}}, reward_function)"
    return {**_variable("reward_function", query, multi=True), "hide": 2}


def window() -> Json:
    """Return the variable for the width in seconds of a heatmap's columns, so that each holds a step."""
    made = _variable("window", f"query_result({WINDOW})", multi=False)
    made.update(hide=2, regex=_NUMBER, description="Seconds from one column of a heatmap to the next.")
    return made


def apart() -> Json:
    """Return the variable for the seconds between two points of a line: Grafana rates over four times as much.

    So a rate looks back as far as a column of a heatmap, and a run of two minutes has more points than two.
    """
    made = _variable("apart", "query_result(ceil(vector($window / 4)))", multi=False)
    made.update(hide=2, regex=_NUMBER, description="Seconds from one point of a line to the next.")
    return made


def behind() -> list[Json]:
    """Return the variables for the condition that the verdict names, and for the number that it is judged by.

    Both are empty while nothing is wrong. They are asked for once, in queries of their own: what chose them in each
    point of a curve would look at every number and limit that there is.
    """
    return [
        _newest("condition", "The condition that is the newest cause."),
        _newest("signal", "The number that it is judged by."),
    ]


def _newest(label: str, description: str) -> Json:
    """Return a hidden variable: what the newest cause has as ``label``."""
    named = f"max_over_time(timestamp(rl_run_cause_info{{{select()}}})[$__range:$__interval])"
    made = _variable(label, f"query_result(topk by ({RUN}) (1, max by ({RUN}, {label}) ({named})))", multi=False)
    made.update(hide=2, regex=f'/[{{,]{label}="([^"]+)"/', description=description)
    return made


def _variable(name: str, query: str, *, multi: bool, absent: bool = False) -> Json:
    """Return a variable. With ``absent`` all of its values are those that have no such label, too."""
    made = skeleton("variable")
    made.update(name=name, label=name, multi=multi, includeAll=multi)
    made["query"].update(query=query, refId=f"variable-{name}")
    if multi:
        made.update(current={"text": ["All"], "value": ["$__all"]}, allValue=".*" if absent else ".+")
    return made
