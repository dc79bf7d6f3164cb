"""The rules of Grafana's dashboard-linter, and what else goes wrong in dashboards that nobody has opened yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser as promql
import pytest

from rlexporter.catalog.metrics import CATALOG
from rlexporter.commands.generate import IDENTITY
from rlexporter.feed.feed import Feed
from rlexporter.model.metric import Group, Key, Kind, Level, Metric, Series
from rlexporter.model.step import RunFacts, StepUpdate
from rlexporter.outputs.prometheus import encode
from rlexporter.tensors import host
from scripts.pack import docs
from scripts.pack.dashboards import beside, dashboards
from scripts.pack.recording_rules import RECORDING_RULES
from tests.conftest import SURPRISE
from tests.dashboards.grafana import ANY, Json, View, panels, query_of, variable

DASHBOARDS: list[Json] = [json.loads(text) for text in dashboards(CATALOG).values()]
VIEW = View({**ANY, "job": "j", "run": "r", "rank": "k", "datasource": "d"}, 10800.0, 15.0)
_COUNTING = {"rate", "increase"}
_OVER_RANGE = {"increase", "deriv", "last_over_time", "max_over_time", "min_over_time"}

# What has no label of ours, and why.
_NO_JOB = {"ALERTS": "rules on a run drop the labels of its processes"}
_NO_RUN = {
    "scrape_samples_scraped": "Prometheus knows no run: joined by instance",
    "scrape_duration_seconds": "Prometheus knows no run: joined by instance",
}

_FAMILIES = (',algorithm!~"ppo.*"', ',algorithm=~"ppo.*"')
_OFFERED = {
    'job=~"$job"',
    *(
        'job=~"$job",cluster=~"$cluster",namespace=~"$namespace",team=~"$team",user=~"$user"' + more
        for more in ("", *_FAMILIES)
    ),
}
"""What jobs, clusters, namespaces, owners and runs are chosen from."""
_MAY_BE_ABSENT = {"job", "cluster", "namespace", "team", "user"}
"""Labels that many setups do not have: all of their values are none, too."""

PANELS = [(f"{each['uid']}: {panel['title']}", panel) for each in DASHBOARDS for panel in panels(each)]
"""Every panel, with words that say where it is."""
TARGETS = [(where, panel, target) for where, panel in PANELS for target in panel["targets"]]
VARIABLES = [(each["uid"], found) for each in DASHBOARDS for found in each["templating"]["list"]]
ANNOTATIONS = [(each["uid"], found) for each in DASHBOARDS for found in each["annotations"]["list"]]


def _expressions(dashboard: Json) -> Iterator[str]:
    """Every query as it is written: of panels, annotations and variables."""
    yield from (target["expr"] for panel in panels(dashboard) for target in panel["targets"])
    yield from (annotation["expr"] for annotation in dashboard["annotations"]["list"])
    yield from (query_of(each) for each in dashboard["templating"]["list"] if each["type"] == "query")


EXPRESSIONS = sorted({expression for each in DASHBOARDS for expression in _expressions(each)})


def _nodes(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every part of a query, with the parts that it is in, the nearest last."""
    yield node, above
    children = [*getattr(node, "args", ())]
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs", "param"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, (str, int, float)):
            children.append(child)
    for child in children:
        yield from _nodes(child, (*above, node))


def _parsed(expression: str) -> Any:
    return promql.parse(VIEW.fill(expression, 15.0))


def _of(uid: str) -> Json:
    return next(each for each in DASHBOARDS if each["uid"] == uid)


def test_the_dashboards_themselves() -> None:
    """They have what provisioning needs, and Grafana 10.4 to 13 read; none would replace another one."""
    for name in ("uid", "title"):
        assert len({each[name] for each in DASHBOARDS}) == len(DASHBOARDS) == 6
    wrong = [
        each["uid"]
        for each in DASHBOARDS
        if not re.fullmatch(r"rlexporter-[a-z]+", each["uid"])
        or not 39 <= each["schemaVersion"] <= 42
        or each["editable"] is not False
        or "id" in each
        or not each["title"]
        or not each["description"]
        or {link["type"] for link in each["links"]} != {"dashboards", "link"}
    ]
    assert wrong == []


def test_variables() -> None:
    """A data source, the job as the linter wants it, and a run. No instance: a run moves from one to another."""
    expected: dict[str, Json] = {
        "datasource": {"type": "datasource", "query": "prometheus", "label": "Data source"},
        "job": {"label": "job", "multi": True, "includeAll": True},
        "run": {"label": "run"},
    }
    queried = {"datasource": {"type": "prometheus", "uid": "${datasource}"}, "refresh": 2}
    wrong = []
    for uid, each in VARIABLES:
        said = expected.get(each["name"], {})
        if each["type"] == "query":
            anything = ".*" if each["name"] in _MAY_BE_ABSENT else ".+"
            said = {**said, **queried, "allValue": anything if each["multi"] else None}
        wrong += [(uid, each["name"], key) for key, value in said.items() if each.get(key) != value]

    assert wrong == []
    for name in expected:
        assert sum(each["name"] == name for _, each in VARIABLES) == len(DASHBOARDS), name


def test_the_data_source_is_the_variable() -> None:
    """Of every panel, target and annotation."""
    used = [(where, each) for where, panel in PANELS for each in (panel, *panel["targets"])] + ANNOTATIONS

    assert [where for where, each in used if each["datasource"] != {"type": "prometheus", "uid": "${datasource}"}] == []


def test_panels_say_what_they_are() -> None:
    """Title, description, and words where there is nothing; numbers and letters once."""
    for dashboard in DASHBOARDS:
        ids = [panel["id"] for row in dashboard["panels"] for panel in (row, *row.get("panels", ()))]
        assert len(set(ids)) == len(ids), dashboard["uid"]
    wrong = []
    for where, panel in PANELS:
        refs = [target["refId"] for target in panel["targets"]]
        said = panel["title"] and len(panel["description"]) > 10 and panel["fieldConfig"]["defaults"]["noValue"]
        if not said or len(set(refs)) != len(refs):
            wrong.append(where)
    assert wrong == []


def test_units_are_those_of_grafana() -> None:
    """Any other text would be put behind the number."""
    units = pytest.importorskip("grafana_foundation_sdk.models.units", reason="it needs Python 3.11")
    known = {value for name, value in vars(units).items() if name[0].isupper()}

    assert [(where, unit) for where, panel in PANELS for unit in _units(panel) if unit not in known] == []


def _units(panel: Json) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    properties = [each for override in panel["fieldConfig"]["overrides"] for each in override["properties"]]
    yield from (each["value"] for each in properties if each["id"] == "unit")
    yield from (found for found in (defaults.get("unit"), panel["options"].get("yAxis", {}).get("unit")) if found)


def test_panels_do_not_overlap() -> None:
    """They are side by side within 24 columns, on the page and in each collapsed row."""
    pages = [
        page for each in DASHBOARDS for page in (each["panels"], *(row.get("panels", []) for row in each["panels"]))
    ]
    places = [[each["gridPos"] for each in page] for page in pages]

    assert [place for page in places for place in page if place["x"] + place["w"] > 24] == []
    assert [
        pair
        for page in places
        for pair in combinations(page, 2)
        if not (_apart(*pair, "x", "w") or _apart(*pair, "y", "h"))
    ] == []


def _apart(one: Json, other: Json, start: str, size: str) -> bool:
    return bool(one[start] + one[size] <= other[start] or other[start] + other[size] <= one[start])


def test_queries_are_of_the_chosen_job_and_run() -> None:
    """In every selector, but for those that have a reason. Series of others are compared with such a one."""
    wrong = [each for each in EXPRESSIONS if "instance=" in each]
    for expression in EXPRESSIONS:
        for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", expression):
            if beside.is_foreign(name):
                chosen = re.search(r'\brl_\w+\{job=~"\$job",.*run=~"\$run"', expression) is not None
            else:
                of_job = name in _NO_JOB or 'job=~"$job"' in matchers
                chosen = of_job and (name in _NO_RUN or 'run=~"$run"' in matchers)
            if not chosen and not (name == "rl_run_info" and matchers in _OFFERED):
                wrong.append(expression)
    assert wrong == []


def test_queries_parse_and_count_as_they_should() -> None:
    """Rates look back over `$__rate_interval`, heatmaps over their own column, a table over the time shown; counters
    are summed or rated. Where there is a window, no rate looks back less far, but for those of others.
    """
    windowed = {uid for uid, each in VARIABLES if each["name"] == "window"}
    wrong = []
    for where, panel, target in TARGETS:
        expression = target["expr"]
        for node, above in _nodes(_parsed(expression)):
            if type(node).__name__ == "VectorSelector" and str(node.name or "").endswith("_total"):
                around = {getattr(each, "func", None) and each.func.name for each in above}
                aggregated = any(type(each).__name__ == "AggregateExpr" for each in above)
                if not aggregated and not around & _COUNTING:
                    wrong.append((where, expression))
        follows = (
            panel["type"] == "timeseries" and where.partition(":")[0] in windowed and not beside.is_foreign(expression)
        )
        for function, span in re.findall(r"(\w+)\([^()]*\[([^\]]+)\]\)", expression):
            if panel["type"] == "heatmap":
                right = (function, span, panel["interval"]) == ("increase", "$__interval", "${window}s")
            elif span == "$__range":
                right = function in _OVER_RANGE
            else:
                right = span == "$__rate_interval" and (not follows or target["interval"] == "${apart}s")
            if not right:
                wrong.append((where, expression))
    assert wrong == []


def test_selected_series_exist() -> None:
    """Every name in a query is one of the catalog's, a rule's, Prometheus' own, or another exporter's."""
    known = {"ALERTS", *_NO_RUN, *(rule.name for rule in RECORDING_RULES)}
    for metric in CATALOG:
        known |= {metric.series}
        if metric.kind is Kind.HISTOGRAM:
            parts = ("positive_sum_total", "negative_sum_total") if metric.signed else ("sum", "count")
            known |= {f"{metric.series}_{part}" for part in ("bucket", *parts)}
        known |= {metric.series.replace("rl_", "rl_eval_", 1)}
    named = [each for each in EXPRESSIONS if "__name__" not in each]
    nodes = [(node, expression) for expression in named for node, _ in _nodes(_parsed(expression))]
    selected = {(node.name or "", expression) for node, expression in nodes if type(node).__name__ == "VectorSelector"}

    assert len(selected) > 200
    assert [each for each in sorted(selected) if each[0] not in known and not beside.is_foreign(each[0])] == []


def test_legends_use_labels_that_are_kept() -> None:
    """By the outermost aggregation."""
    wrong = []
    for where, _, target in TARGETS:
        wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = re.findall(r"(?<!topk )\bby \(([^)]*)\)", target["expr"])  # topk keeps every label
        if wanted and not wanted <= {label.strip() for label in kept[0].split(",")}:
            wrong.append(where)
    assert wrong == []


def _drawn(catalog: tuple[Metric, ...]) -> str:
    made = [json.loads(text) for text in dashboards(catalog).values()]
    return " ".join(expression for dashboard in made for expression in _expressions(dashboard))


def _is_in(metric: Metric, text: str) -> bool:
    parts = "(?:_bucket|_sum|_count|_positive_sum_total)" if metric.kind is Kind.HISTOGRAM else ""
    return bool(re.search(rf"\b{metric.series}{parts}\b", text))


def _is_offered(metric: Metric) -> bool:
    """Whether it can be chosen in the dashboards of a run, where any series is drawn."""
    query = variable(_of("rlexporter-run"), "series")["query"]["query"]
    wanted, unwanted = re.findall(r'__name__(?:=|!)~"([^"]+)"', query)
    name = f"{metric.series}_count" if metric.kind is Kind.HISTOGRAM else metric.series
    return bool(re.fullmatch(wanted, name)) and not re.fullmatch(unwanted, name)


def test_every_metric_is_in_a_dashboard() -> None:
    """Whatever can be drawn: in a panel of its own, or as the series that is chosen."""
    text = _drawn(CATALOG)
    drawn = {each.series for each in CATALOG if each.kind is not Kind.INFO and _is_in(each, text)}
    assert len(drawn) > 80
    left = [each for each in CATALOG if each.kind is not Kind.INFO and each.series not in drawn]
    assert [each.series for each in left if not _is_offered(each)] == []


_NEW = {
    "gauge": SURPRISE,
    "counter": Metric(
        series="rl_surprises_total",
        kind=Kind.COUNTER,
        group=Group.PROGRESS,
        help="A new one.",
        level=Level.STEP,
        keys=(Key("surprises", ("grpo",)),),
    ),
    "histogram": Metric(
        series="rl_surprise_dist",
        kind=Kind.HISTOGRAM,
        group=Group.KL,
        help="A new one.",
        level=Level.STEP,
        bounds=(-1.0, 0.0, 1.0),
    ),
    "exporter": Metric(
        series="rlexporter_naps_total", kind=Kind.COUNTER, group=Group.EXPORTER, help="A new one.", level=Level.STEP
    ),
}


@pytest.mark.parametrize("new", _NEW.values(), ids=list(_NEW))
def test_a_new_metric_needs_no_other_edit(new: Metric) -> None:
    """One entry in the catalog, and it is drawn, documented and served."""
    catalog = (*CATALOG, new)
    feed = Feed(catalog, clock=lambda: 1000.0)
    feed.begin(RunFacts(algorithm="grpo", step=0), {"run": "test", "rank": "0"})
    logs = {key.name: 3.0 for key in new.keys}
    seen = {} if new.keys else {Series(new): host.count([0.5], new.bounds)}
    feed.record(logs, 1, StepUpdate(step=1, seen=seen))

    assert _is_offered(new) or not _is_in(new, _drawn(CATALOG))
    assert _is_offered(new) or _is_in(new, _drawn(catalog))
    assert f"`{new.series}`" in docs.metrics(catalog)
    assert re.search(rf"^{new.series}(_bucket)?\{{", encode(feed.snapshot, "")[0].decode(), re.MULTILINE)


def test_nothing_is_painted_by_the_catalogue() -> None:
    """Healthy ranges are a note: limits that are fixed in a panel are of numbers that the rules have judged."""
    drawn = [each for each in PANELS if each[1]["type"] in ("timeseries", "trend", "heatmap")]
    looks = [(where, panel["fieldConfig"]["defaults"]) for where, panel in drawn]

    assert [where for where, look in looks if "thresholds" in look or "thresholdsStyle" in look.get("custom", {})] == []


_BY = re.compile(r"\b(?:(?:max|min|sum|count|avg|topk|quantile) by|on|count_values by) \(([^)]*)\)")


def test_runs_of_one_name_are_apart() -> None:
    """Whatever is worked out or joined is so for each run, by all that tells it apart, its team and user among it.

    Heat maps add up what they show.
    """
    mixed = [
        (where, labels)
        for where, panel, target in TARGETS
        for labels in _BY.findall(target["expr"])
        if not set(IDENTITY) <= set(labels.split(", "))
        if panel["type"] != "heatmap" and not beside.is_foreign(target["expr"])
        if where not in _APART
    ]
    assert mixed == []


def test_a_site_can_add_what_tells_its_runs_apart() -> None:
    """`rlexporter generate --identity project` finds each list of labels: it is written as it looks for it."""
    listed = ", ".join(IDENTITY)
    lists = [labels for expression in EXPRESSIONS for labels in _BY.findall(expression) if "namespace, " in labels]

    assert len(lists) > 300
    assert [
        labels for labels in lists if listed not in labels and "place" not in labels and "model" not in labels
    ] == []


def test_each_dashboard_can_choose_a_team_and_a_user() -> None:
    """As it can choose a cluster and a namespace; a link from one dashboard to another takes all of them along."""
    for dashboard in DASHBOARDS:
        names = [each["name"] for each in dashboard["templating"]["list"]]
        assert set(IDENTITY) <= set(names), dashboard["uid"]
    [of_runs] = [panel for where, panel in PANELS if where == "rlexporter-fleet: Runs"]
    [to_compare] = [each["url"] for each in of_runs["links"]]
    assert all(f"${{{name}:queryparam}}" in to_compare for name in IDENTITY)
    expressions = [target["expr"] for target in of_runs["targets"]]
    [addressed] = [each for each in expressions if '"dashboard"' in each]
    assert all(f"var-{name}=$1&" in addressed for name in IDENTITY if name != "run")


_APART = {
    "rlexporter-compare: Settings that differ": "the values of one setting, over all runs",
    "rlexporter-exporter: Series": "an instance has one run",
    "rlexporter-exporter: Duration of a scrape": "an instance has one run",
    "rlexporter-exporter: Clock off by": "a clock is that of a process",
}
