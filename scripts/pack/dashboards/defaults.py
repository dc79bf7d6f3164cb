"""What Grafana fills in itself when it loads a dashboard: the JSON leaves it out, so that a change can be reviewed.

Only what Grafana 10.4 and 13 both fill in, with the same value, is here. Read in grafana/grafana, and in the packages
`@grafana/data`, `@grafana/schema` and `@grafana/ui` 10.4.19 and 13.2.2:

* `getPanelOptionsWithDefaults.ts` merges a panel's options and the defaults of its fields over those that its plugin
  registers, on every load: dictionaries deeply, lists as a whole. The tables below name the file of each plugin.
* Overrides of fields are not merged with anything, so they stay as they are.

What stays although it is a default:

* `options`, even if it is empty: where there is none, a stat shows the mean in 13 (`sharedSingleStatMigrationHandler`);
* what the types of the schema or the linter ask for: a target's data source, `overrides`, `mode` of thresholds;
* units, which say how a number is to be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from scripts.pack.dashboards.frame import Json

_GRAPH: Json = {
    # public/app/plugins/panel/timeseries/config.ts: defaultGraphConfig, getGraphFieldConfig; trend uses it too.
    "drawStyle": "line",
    "lineInterpolation": "linear",
    "lineWidth": 1,
    "fillOpacity": 0,
    "spanNulls": False,
    "showPoints": "auto",  # graphFieldOptions.showPoints[0], packages/grafana-ui/src/components/uPlot/config.ts
    "stacking": {"mode": "none", "group": "A"},
    "thresholdsStyle": {"mode": "off"},
    # packages/grafana-ui/src/options/builder/axis.tsx: addAxisConfig
    "axisPlacement": "auto",
    "scaleDistribution": {"type": "linear"},
}
_LEGEND: Json = {
    # packages/grafana-ui/src/options/builder/legend.tsx: addLegendOptions
    "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
}
CUSTOM: Mapping[str, Json] = {
    "timeseries": _GRAPH,
    "trend": _GRAPH,
    # public/app/plugins/panel/heatmap/module.tsx: useFieldConfig
    "heatmap": {"scaleDistribution": {"type": "linear"}},
    # public/app/plugins/panel/table/addTableCustomConfig.ts, before it module.tsx: defaultTableFieldOptions
    "table": {"align": "auto", "cellOptions": {"type": "auto"}},
}
"""Fields' `custom` properties, by the type of panel."""
OPTIONS: Mapping[str, Json] = {
    "timeseries": _LEGEND,  # public/app/plugins/panel/timeseries/module.tsx
    "trend": _LEGEND,  # public/app/plugins/panel/trend/module.tsx
    "heatmap": {
        # public/app/plugins/panel/heatmap/module.tsx, types.ts and panelcfg.gen.ts: defaultOptions. A panel with no
        # option at all is one of the old kind to `heatmapMigrationHandler`: gap and unit of the cells are always said.
        "calculate": False,
        "color": {
            "mode": "scheme",
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
            "fill": "dark-orange",
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False},
    },
    "stat": {
        # public/app/plugins/panel/stat/module.tsx, common.ts and panelcfg.gen.ts: defaultOptions
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "auto",
        "textMode": "auto",
        "colorMode": "value",
        "justifyMode": "auto",
        "wideLayout": True,
    },
    "table": {
        # public/app/plugins/panel/table/module.tsx and panelcfg.gen.ts: defaultOptions. In 13 a footer is a property of
        # fields, and `migrateFooterV2` drops this one; in 10.4 nothing of it is read unless it is shown.
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [],
        "footer": {"show": False, "reducer": ["sum"], "fields": ""},
    },
}
"""Options by the type of panel."""
PANEL: Json = {"links": []}
"""public/app/features/dashboard-scene/scene/PanelLinks.tsx, PanelModel.ts: a panel without links has none."""
FIELDS: Json = {"mappings": [], "links": []}
"""Registry of the standard options (getAllStandardFieldConfigs): no mappings; no links, which have no default."""
TARGET: Json = {"editorMode": "code"}
"""packages/grafana-prometheus/src/querybuilder/state.ts, getDefaultEditorMode: code for a query with an expression."""
RANGE: Json = {"range": True, "instant": False}
"""pkg/promlib/models/query.go, in 10.4 pkg/tsdb/prometheus/models/query.go: neither set is a query over a range."""
INSTANT: Json = {"range": False}
"""The same: an instant query that does not ask for a range is only that."""
VARIABLE: Json = {"hide": 0, "regex": "", "options": [], "includeAll": False}
"""public/app/features/variables/query/reducer.ts, initialQueryVariableModelState; newer: utils/variables.ts of
dashboard-scene, and buildQueryVariable in apps/dashboard/pkg/migration, where the server converts a dashboard.
"""


def without_defaults(dashboard: Json) -> Json:
    """Return ``dashboard`` without what Grafana fills in itself; what was handed in stays as it is."""
    variables = [less(each, VARIABLE) if each["type"] == "query" else each for each in dashboard["templating"]["list"]]
    return {
        **dashboard,
        "templating": {**dashboard["templating"], "list": variables},
        "panels": [_panel(each) for each in dashboard["panels"]],
    }


def less(found: Json, filled_in: Json) -> Json:
    """Return ``found`` without what ``filled_in`` says too, deeply; a list is the same as a whole or stays."""
    left = {}
    for name, value in found.items():
        default = filled_in.get(name)
        if isinstance(value, dict) and isinstance(default, dict):
            value = less(value, default)
            if not value:
                continue
        elif name in filled_in and type(value) is type(default) and value == default:
            continue
        left[name] = value
    return left


def _panel(panel: Json) -> Json:
    kind = panel["type"]
    made = less(panel, PANEL)
    if "panels" in panel:
        made["panels"] = [_panel(each) for each in panel["panels"]]
    if "targets" in panel:
        made["targets"] = [_target(each) for each in panel["targets"]]
    if "options" in panel:
        made["options"] = less(panel["options"], OPTIONS.get(kind, {}))
    if "fieldConfig" in panel:
        fields = less(panel["fieldConfig"]["defaults"], {**FIELDS, "custom": CUSTOM.get(kind, {})})
        made["fieldConfig"] = {**panel["fieldConfig"], "defaults": fields}
    return made


def _target(target: Json) -> Json:
    return less(less(target, TARGET), INSTANT if target.get("instant") else RANGE)
