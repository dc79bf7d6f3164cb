"""Causes and symptoms -> alerts/alertmanager.yml: receivers, routes, and inhibitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

from rlexporter.commands.generate import IDENTITY
from rlexporter.model.condition import Family
from scripts.pack import first_steps
from scripts.pack.outside import MANY_RUNS, WATCHDOG
from scripts.pack.template import filled, template

_OURS = 'alertname=~"RL.+"'
# Without it, an alert that has no run would hide, and be hidden by, every other that has none: absent labels are equal.
_HAS_RUN = 'run=~".+"'
_NO_STORM = f'alertname!="{MANY_RUNS.alert}"'
_TOLD_APART = (Family.CRASH, Family.EXPORTER, MANY_RUNS.family)
"""What a warning is told of beside something critical: the process, its exporter, and many runs."""


class Inhibition(NamedTuple):
    """An inhibit rule, with matchers in Alertmanager's syntax: `name="value"`, `name=~"regex"`."""

    comment: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


def config(hides: Sequence[tuple[Sequence[str], Sequence[str]]], order: Sequence[str] = ()) -> str:
    """Return the file; each entry of ``hides`` is families of causes, and families of the symptoms that they hide.

    ``order``: conditions of which each hides those after it.

    Raises:
        ValueError: a family would hide itself, if only through others: nobody would be notified of any of them.
    """
    return filled(
        "alertmanager.yml",
        identity=", ".join(IDENTITY),
        watchdog=WATCHDOG,
        storm=MANY_RUNS.alert,
        inhibit_rules="\n".join(map(_rule, inhibitions(hides, order))),
        slack=template("alertmanager-slack.yml"),
    )


def messages() -> str:
    """Return the file of templates, with the labels that tell runs apart, and with what to do first."""
    text = template("rlexporter.tmpl").replace("IDENTITY", '" "'.join(IDENTITY))
    return text.replace("REMEDIES", first_steps.as_template())


def inhibitions(hides: Sequence[tuple[Sequence[str], Sequence[str]]], order: Sequence[str] = ()) -> list[Inhibition]:
    """Return the inhibit rules for ``hides`` and ``order``; see `config`."""
    _refuse_cycles(hides)
    return list(_inhibitions(hides, order))


def _refuse_cycles(hides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
    order: TopologicalSorter[str] = TopologicalSorter()
    for causes, symptoms in hides:
        for symptom in symptoms:
            order.add(symptom, *causes)
    order.prepare()


def _inhibitions(hides: Sequence[tuple[Sequence[str], Sequence[str]]], order: Sequence[str]) -> Iterator[Inhibition]:
    apart = "|".join(family.label for family in _TOLD_APART)
    yield Inhibition(
        "A run that pages is one message: its warnings wait, but for those on its process and its exporter.",
        (_OURS, _HAS_RUN, 'severity="critical"'),
        (_OURS, _HAS_RUN, 'severity="warning"', f'family!~"{apart}"'),
        IDENTITY,
    )
    comment = "A cause hides its symptoms, but none that is worse than itself."
    for causes, symptoms in hides:
        yield Inhibition(
            comment,
            (_OURS, _HAS_RUN, _families(causes)),
            (_OURS, _HAS_RUN, _families(symptoms)),
            (*IDENTITY, "severity"),
        )
        comment = ""
    comment = "What comes first in a step hides what comes after it; mostly the rules of Prometheus have done so."
    one = (_OURS, _HAS_RUN, _NO_STORM)
    for place, condition in enumerate(order[:-1], 1):
        later = f'condition=~"{"|".join(order[place:])}"'
        yield Inhibition(comment, (*one, f'condition="{condition}"'), (*one, later), IDENTITY)
        comment = ""
    yield Inhibition(
        "A storm hides what began in it, and nothing that begins later or is worse.",
        (f'alertname="{MANY_RUNS.alert}"', 'condition=~".+"'),
        (_OURS, _NO_STORM, 'condition=~".+"'),
        (*IDENTITY, "condition", "severity"),
    )


def _families(names: Sequence[str]) -> str:
    return f'family="{names[0]}"' if len(names) == 1 else f'family=~"{"|".join(names)}"'


def _rule(each: Inhibition) -> str:
    comment = f"  # {each.comment}\n" if each.comment else ""
    return (
        f"{comment}  - source_matchers: {_quoted(each.source)}\n"
        f"    target_matchers: {_quoted(each.target)}\n"
        f"    equal: [{', '.join(each.equal)}]\n"
    )


def _quoted(matchers: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{matcher}'" for matcher in matchers) + "]"
