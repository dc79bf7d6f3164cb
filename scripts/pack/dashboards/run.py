"""Dashboards of a run, one for each family of algorithms: a verdict, the questions, and rows that open."""

from __future__ import annotations

from rlexporter.catalog.questions import QUESTIONS
from scripts.pack.dashboards import any_series, beside, learning, pace, process, spread, variables, verdict
from scripts.pack.dashboards.curves import curve, lines
from scripts.pack.dashboards.families import FAMILIES, SAMPLERS, SAMPLES, Family
from scripts.pack.dashboards.frame import Json, Page, dashboard, evaluations


def build() -> list[Json]:
    """Return a dashboard for each family."""
    return [_of(family) for family in FAMILIES]


def _of(family: Family) -> Json:
    page, titles = Page(), {question.name: question.title for question in QUESTIONS}
    page.row(verdict.TITLE)
    verdict.build(page)
    process.numbers(page)
    page.row(titles["learning"])
    learning.build(page, family)
    page.row(titles["stable"])
    for name in family.answers["stable"]:
        page.add(curve(name), 6)
    page.row(titles["fast"])
    pace.speed(page)
    page.row(titles["hidden"])
    pace.truth(page)
    page.row(titles["samples"], collapsed=True)
    _samples(page)
    page.row("The main curves over the steps", collapsed=True)
    learning.over_steps(page, family)
    page.row("How it spreads: 5, 50 and 95 %", collapsed=True)
    spread.quantiles(page, family)
    page.row("Distributions, seen at the tensor", collapsed=True)
    spread.heatmaps(page, family)
    page.row("What else the trainer logs", collapsed=True)
    for title, names in family.more:
        page.add(lines(title, names), 8)
    page.row("Alerts and conditions", collapsed=True)
    process.conditions(page)
    page.row("The process and its settings", collapsed=True)
    process.settings(page)
    beside.build(page)
    page.row("Any series", collapsed=True)
    any_series.build(page)
    made = dashboard(
        family.uid,
        family.title,
        "One run: is it healthy, and why not; is it learning, stable and fast; and what was hidden.",
        page.panels,
        variables=variables.common(
            variables.run(of=family.runs),
            variables.reward_function(),
            variables.window(),
            variables.apart(),
            *variables.behind(),
            variables.series(),
        ),
    )
    made["annotations"]["list"].append(evaluations())
    return made


def _samples(page: Page) -> None:
    for name in SAMPLES:
        page.add(curve(name), 6)
    for title, names in SAMPLERS:
        page.add(lines(title, names), 8)
