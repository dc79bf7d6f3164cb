"""What Grafana does with a dashboard: walks its panels, fills in the variables, and asks Prometheus.

What it makes of the answers is in `transformations.py`. The pictures of the README are drawn by both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlexporter.catalog.metrics import CATALOG
from scripts.pack.dashboards import beside, dashboards, defaults
from tests.tools import Prometheus

Json = dict[str, Any]
Variables = Mapping[str, str | Sequence[str]]
Ask = Callable[[str, Mapping[str, str]], Any]
"""The data of an answer of the HTTP API to a path and its parameters."""

ANY: Variables = {
    **dict.fromkeys(("cluster", "namespace", "team", "user"), ".*"),
    **dict.fromkeys(("rank", "reward_function"), ".+"),
    "window": "60",
    "apart": "15",
    **dict.fromkeys(("condition", "signal"), ""),
    "series": "rl_learning_rate",
}
"""What a dashboard shows that nobody has touched, but for its job and run."""

# A number (`$1` of label_replace) is no variable, and Grafana leaves what it does not know as it is.
_VARIABLE = re.compile(r"\$([^\W\d]\w*)|\$\{([^\W\d]\w*)(?::\w+)?\}")
# Upper end of a raw interval in milliseconds, and what Grafana makes of it: rangeutil.ts, roundInterval.
_ROUNDED = (
    *((10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1500, 1000), (3500, 2000)),
    *((7500, 5000), (12500, 10000), (17500, 15000), (25000, 20000), (45000, 30000), (90000, 60000), (210000, 120000)),
    *((450000, 300000), (750000, 600000), (1250000, 900000), (1750000, 1200000), (2700000, 1800000)),
    *((5400000, 3600000), (9000000, 7200000), (16200000, 10800000), (32400000, 21600000), (64800000, 43200000)),
)
_DAY = 86_400_000
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
_RESULT = re.compile(r"query_result\((.+)\)")


def loaded(dashboard: Json) -> Json:
    """A dashboard with all that Grafana fills in when it loads it."""
    variables = [
        _over(defaults.VARIABLE, each) if each["type"] == "query" else each for each in dashboard["templating"]["list"]
    ]
    return {
        **dashboard,
        "templating": {**dashboard["templating"], "list": variables},
        "panels": [_filled(panel) for panel in dashboard["panels"]],
    }


def _filled(panel: Json) -> Json:
    if panel["type"] == "row":
        return {**panel, "panels": [_filled(each) for each in panel["panels"]]}
    kind = panel["type"]
    fields = _over({**defaults.FIELDS, "custom": defaults.CUSTOM.get(kind, {})}, panel["fieldConfig"]["defaults"])
    return {
        **_over(defaults.PANEL, panel),
        "targets": [
            _over({**defaults.TARGET, "instant": False, "range": not each.get("instant")}, each)
            for each in panel["targets"]
        ],
        "options": _over(defaults.OPTIONS.get(kind, {}), panel["options"]),
        "fieldConfig": {**panel["fieldConfig"], "defaults": fields},
    }


def _over(filled_in: Json, said: Json) -> Json:
    """What is said, over what is filled in: dictionaries deeply, lists as a whole, as `getPanelOptionsWithDefaults`."""
    both = {
        name: _over(filled_in[name], value)
        if isinstance(value, dict) and isinstance(filled_in.get(name), dict)
        else value
        for name, value in said.items()
    }
    return {**filled_in, **both}


def own_panels(dashboard: Json) -> Iterator[tuple[str, Json]]:
    """Every panel of our own series, with the title of its row: not those of what runs beside."""
    row = ""
    for each in dashboard["panels"]:
        if each["type"] == "row":
            row = each["title"]
        for panel in each.get("panels", ()) if each["type"] == "row" else [each]:
            if not any(beside.is_foreign(target["expr"]) for target in panel["targets"]):
                yield row, panel


def panels(dashboard: Json) -> Iterator[Json]:
    """Every panel, those of collapsed rows among them; no rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def panel(dashboard: Json, title: str) -> Json:
    """The panel of a dashboard with this title."""
    [found] = [each for each in panels(dashboard) if each["title"] == title]
    return found


def variable(dashboard: Json, name: str) -> Json:
    """A variable of a dashboard."""
    found: Json = next(each for each in dashboard["templating"]["list"] if each["name"] == name)
    return found


@dataclass(frozen=True)
class View:
    """A dashboard as somebody looks at it. ``seconds``: of the time that is shown; ``scrape``: between two scrapes.

    ``aligned``: points are at multiples of the step, as Grafana has them; the last ones before now may be missing then.
    """

    variables: Variables
    seconds: float
    scrape: float
    aligned: bool = False

    def fill(self, text: str, interval: float = 0.0, least: float = 0.0) -> str:
        """The text with its variables filled in; ``least``: the smallest interval that its target asks for, if it does.

        Rates look back over four times as much: calculateRateInterval in pkg/promlib/models/query.go. Raises KeyError
        for a variable that is not there.
        """
        least = least or self.scrape
        own = {
            "__interval": _seconds(interval),
            "__interval_ms": f"{round(interval * 1000)}",
            "__rate_interval": _seconds(max(interval + least, 4 * least)),
            "__range": _seconds(self.seconds),
        }
        known: Variables = {**ANY, **self.variables, **own}
        return _VARIABLE.sub(lambda found: _text(known[found[1] or found[2]]), text)

    def interval(self, panel: Json, target: Json, points: int = 1000) -> float:
        """Seconds between two points of a target, in a panel that has room for so many of them."""
        least = self.least(target) or self.least(panel) or self.scrape
        raw = self.seconds * 1000 / panel.get("maxDataPoints", points)
        return max(_rounded(raw) / 1000, least)

    def least(self, of: Json) -> float:
        """The smallest interval in seconds that a target, or its panel, asks for; 0 if it asks for none."""
        return float(self.fill(of["interval"]).removesuffix("s")) if of.get("interval") else 0.0


WRITTEN: Mapping[str, Json] = {each["uid"]: each for each in map(json.loads, dashboards(CATALOG).values())}
"""Our dashboards as they are written, by their uid."""
DASHBOARDS: Mapping[str, Json] = {uid: loaded(each) for uid, each in WRITTEN.items()}
"""The same as Grafana loads them."""


def asking(server: Prometheus) -> Ask:
    """Ask this server."""
    return lambda path, query: server.get(path, **query)


def answer(ask: Ask, view: View, panel: Json, target: Json, at: float, points: int = 1000) -> list[Json]:
    """What a panel gets for one of its targets; ``at``: the end of what is shown."""
    step = view.interval(panel, target, points)
    query = {"query": view.fill(target["expr"], step, view.least(target))}
    if target["instant"]:
        return list(ask("query", {**query, "time": f"{at:.3f}"})["result"])
    end = at // step * step if view.aligned else at
    span = {"start": f"{end - view.seconds // step * step:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
    return list(ask("query_range", {**query, **span})["result"])


def answers(ask: Ask, view: View, panel: Json, at: float, points: int = 1000) -> dict[str, list[Json]]:
    """What a panel gets for each target, by its letter."""
    return {each["refId"]: answer(ask, view, panel, each, at, points) for each in panel["targets"]}


def newest(found: Sequence[Json], label: str) -> str:
    """The value of a label in the newest row of a table; empty where there is no row."""
    return str(max(found, key=lambda each: _last(each)[0])["metric"].get(label, "")) if found else ""


def _last(result: Json) -> tuple[float, str]:
    at, value = result["values"][-1] if "values" in result else result["value"]
    return float(at), value


def mapped(text: str, mappings: Sequence[Json]) -> Json | None:
    """What Grafana makes of a text: the first mapping of it, or of a regular expression, with its groups filled in."""
    for mapping in mappings:
        options = mapping["options"]
        if mapping["type"] == "value" and text in options:
            return dict(options[text])
        if mapping["type"] == "regex" and (found := re.search(options["pattern"].strip("/"), text)):
            return {**options["result"], "text": found.expand(options["result"]["text"].replace("$", "\\"))}
    return None


def legend(target: Json, labels: Mapping[str, str]) -> str:
    """The legend of a series with these labels."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], found[0]), target["legendFormat"])


def query_of(variable: Json) -> str:
    """The expression that the values of a variable are from."""
    text = variable["query"]["query"]
    found = _LABEL_VALUES.fullmatch(text) or _RESULT.fullmatch(text)
    assert found, text
    return found[1]


def values(ask: Ask, view: View, variable: Json, at: float) -> list[str]:
    """The values that a variable gets, as the data source makes them."""
    query, labels = view.fill(query_of(variable), view.scrape), _LABEL_VALUES.fullmatch(variable["query"]["query"])
    if labels:
        matching = {"match[]": query, "start": f"{at - view.seconds:.3f}", "end": f"{at:.3f}"}
        return sorted({series[labels[2]] for series in ask("series", matching) if labels[2] in series})
    wanted = re.compile(variable["regex"].strip("/"))
    texts = [_sample(each) for each in ask("query", {"query": query, "time": f"{at:.3f}"})["result"]]
    return [match[1] for text in texts if (match := wanted.search(text))]


def resolved(ask: Ask, view: View, dashboard: Json, at: float) -> View:
    """The view with the hidden variables of a dashboard as Grafana fills them in; empty where nothing is found."""
    for each in dashboard["templating"]["list"]:
        if "query_result" in str(each["query"]):  # one may ask for those before it
            found = {each["name"]: "".join(values(ask, view, each, at)[:1])}
            view = replace(view, variables={**view.variables, **found})
    return view


def _sample(result: Json) -> str:
    """What `query_result` makes of a sample."""
    labels = ",".join(f'{name}="{value}"' for name, value in result["metric"].items() if name != "__name__")
    return f"{result['metric'].get('__name__', '')}{{{labels}}} {result['value'][1]} {result['value'][0] * 1000:.0f}"


def _text(value: str | Sequence[str]) -> str:
    """Several values that were chosen become alternatives of a regular expression."""
    return value if isinstance(value, str) else value[0] if len(value) == 1 else f"({'|'.join(value)})"


def _seconds(value: float) -> str:
    return f"{round(value * 1000)}ms"


def _rounded(milliseconds: float) -> float:
    for limit, rounded in _ROUNDED:
        if milliseconds < limit:
            return rounded
    return _DAY * max(1, round(milliseconds / _DAY))
