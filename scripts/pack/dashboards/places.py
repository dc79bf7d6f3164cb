"""Where a run is, in PromQL, and what other exporters say of the same place: a pod, a host, or a model server.

Series of other exporters are only ever filtered (`and on`), after their own labels were copied into a label that none
of them has, `place`. Neither can fail, whatever is scraped twice: there is no "many-to-many matching", and no two
series become one. `cluster` is part of every comparison; where neither side has it, it is equal.
"""

from __future__ import annotations

from scripts.pack.dashboards.frame import select

_ANY = "(.+)"
_ADDRESS = "(.+?)(?::[0-9]+)?"
"""The host of an `instance`, which has a port or, where it was relabelled, none."""
_POD = "(.+/.+)"
_LAST_PART = "(?:.*/)?([^/]+)/*"
"""Of a model's name, as `rl_run_info` has it."""


def gpus(series: str, *, ended: bool = False) -> str:
    """Filter series of the DCGM exporter: the GPUs of the run's pods, else those of its hosts.

    ``ended``: also those where the run was, in the time that is shown. A GPU that Kubernetes gave to a pod is known by
    that pod; `hostname` was `Hostname` until dcgm-exporter 4.8, and `node` is for where it names a pod instead.
    """
    hosts = (("instance", _ADDRESS), ("Hostname", _ANY), ("hostname", _ANY), ("node", _ANY))
    places = f"{_pods(ended)} or {_hosts(ended, podless=True)}"
    return _at(_placed(_with_pods(series), *hosts, *_PODS), places)


def pods(series: str, *, ended: bool = False) -> str:
    """Filter series about pods, of kube-state-metrics or of the kubelet: those of the run's pods.

    Their containers are in the label `part`: `container` can be the exporter's own, as `pod` can.
    """
    found = _placed(_with_pods(series), *_PODS)
    for label in ("container", "exported_container"):
        found = _replaced(found, "part", label, _ANY)
    return _at(found, _pods(ended))


def nodes(series: str) -> str:
    """Filter series of the node exporter, whose only name of its host is in `node_uname_info`."""
    names = (("nodename", _ANY), ("instance", _ADDRESS), ("node", _ANY))
    named = " or ".join(_placed("node_uname_info", name) for name in names)
    return f"{series} and on (cluster, job, instance) ({_at(f'({named})', _hosts())})"


def servers(series: str, within: str = "{}") -> str:
    """Filter ``series`` of vLLM, each of which is put ``within`` a function.

    A target with a label `run` is that run's. One without is of every run of its model in its namespace.
    """
    own, others = (within.format(f"{series}{{{matcher}}}") for matcher in ('run=~"$run"', 'run=""'))
    model = select('model!=""')
    models = f"group by (cluster, namespace, model) (rl_run_info{{{model}}})"
    named = _replaced(others, "model", "model_name", _LAST_PART)
    return f"{own} or {named} and on (cluster, namespace, model) {models}"


_PODS = (("own", _POD), ("exported", _POD))


def _with_pods(series: str) -> str:
    """Join the names of pods, those that Prometheus moved aside for the exporter's own among them (`exported_pod`)."""
    own = f'label_join({series}, "own", "/", "namespace", "pod")'
    return f'label_join({own}, "exported", "/", "exported_namespace", "exported_pod")'


def _placed(series: str, *names: tuple[str, str]) -> str:
    """Copy the last of the labels ``names`` that a series has into `place`."""
    for label, pattern in names:
        series = _replaced(series, "place", label, pattern)
    return series


def _at(series: str, places: str) -> str:
    return f"{series} and on (cluster, place) group by (cluster, place) ({places})"


def _pods(ended: bool) -> str:
    found = _processes('pod!=""', ended=ended)
    return f'label_join({found}, "place", "/", "namespace", "pod")'


def _hosts(ended: bool = False, *, podless: bool = False) -> str:
    """Return the hosts of the run's processes, by the name `node` that a target has and by the address."""
    only = ('pod=""',) if podless else ()
    named = _replaced(_processes(*only, 'node!=""', ended=ended), "place", "node", _ANY)
    return f"{named} or {_replaced(_processes(*only, ended=ended), 'place', 'instance', _ADDRESS)}"


def _processes(*more: str, ended: bool) -> str:
    """Return the processes of the run that serve, every rank's."""
    found = f"rl_run_start_timestamp_seconds{{{select(*more)}}}"
    return f"last_over_time({found}[$__range])" if ended else found


def _replaced(series: str, label: str, source: str, pattern: str) -> str:
    return f'label_replace({series}, "{label}", "$1", "{source}", "{pattern}")'
