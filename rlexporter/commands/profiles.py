"""The rules for the first week: few alerts, and only what these need. `rlexporter generate --profile minimal`."""

from __future__ import annotations

import re

PROFILES = ("full", "minimal")
"""What `--profile` takes, the default first."""
MINIMAL = (
    "RLNotANumber",
    "RLValueLossNonFinite",
    "RLRewardLost",
    "RLRatio",
    "RLKL",
    "RLRewardCollapse",
    "RLRunFailed",
    "RLRunVanished",
    "RLRunStalled",
    "RLExporterWatchdog",
)
"""The alerts of the profile. Without `RLRewardLost` nobody hears of a run that died of a NaN reward."""

_RULE = re.compile(r"^( *)(?:# .*\n\1)?- (?:record|alert|uid): .*\n(?:(?!\1(?:# |- )).*(?:\n|\Z))*", re.MULTILINE)
"""A rule of Prometheus with its comment, or one of Grafana, in a file of any indentation."""
_NAME = re.compile(r" (?:record|alert|title): '?([\w:]+\w)")
_ANCHOR = re.compile(r"^( *).*?&(drops|said)((?: \{[^}]*\})|(?:\n\1 .*)+)", re.MULTILINE)
_SYMPTOM = re.compile(r"\n *unless last_over_time\(rl_condition_symptom\[5m\]\) == 1")


def minimal(text: str) -> str:
    """Return a file of rules with the alerts of `MINIMAL`, and with the records that they read.

    Symptoms are alerts there: what they follow from may be left out.
    """
    rules = [found[0] for found in _RULE.finditer(text)]
    named = {rule: _NAME.findall(rule)[0] for rule in rules}
    wanted, read = set[str](), {rule for rule in rules if named[rule] in MINIMAL}
    while read:
        wanted |= read
        series = {name for rule in read for name in re.findall(r"\brl:\w+", rule)}
        read = {rule for rule in rules if named[rule] in series} - wanted
    anchors = {found[2]: found[3] for found in _ANCHOR.finditer(text)}
    kept = _SYMPTOM.sub("", _RULE.sub(lambda found: found[0] if found[0] in wanted else "", text))
    for name, of_all in anchors.items():
        if f"&{name}" not in kept:
            kept = kept.replace(f"*{name}", f"&{name}{of_all}", 1)
    return kept
