"""The completions of the newest rollout: the best, the worst and the last, with their prompts and rewards. Pure.

They are kept in this process alone: no series, no recording and no page that is kept has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from rlexporter.model.sink import Rollout
from rlexporter.status.numbers import number

_LONGEST = 4000
_TAIL = 1000
"""The signs at the end of a longer text that are kept: an answer often stands there."""


class Completions:
    """Keeps ``most`` of each kind; 0 keeps nothing. The training thread calls `see`, any thread the others."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[str, Any] = {"step": None, "best": [], "worst": [], "last": []}

    def see(self, step: int, rollout: Rollout) -> None:
        """Keep of ``rollout``, which the training of ``step`` began with, what is worth reading."""
        count = len(rollout.completions)
        known = [i for i in range(count) if not isnan(rollout.totals[i])]
        ranked = sorted(known, key=rollout.totals.__getitem__)
        chosen = {"best": ranked[::-1], "worst": ranked, "last": range(count - 1, -1, -1)}
        kept = {kind: [_one(rollout, i) for i in places[: self.most]] for kind, places in chosen.items()}
        self._kept = {"step": step, **kept}

    def as_json(self) -> dict[str, Any]:
        """Return the document of `/api/completions`."""
        return {"version": 1, "most": self.most, **self._kept}


def _one(rollout: Rollout, place: int) -> dict[str, Any]:
    """Return one completion. ``reward``: the sum of its ``rewards``, by function, with their weights."""
    rewards = {name: number(values[place]) for name, values in rollout.rewards.items()}
    prompt, completion = (_text(texts[place]) for texts in (rollout.prompts, rollout.completions))
    reward = number(rollout.totals[place])
    return {"prompt": prompt, "completion": completion, "reward": reward, "rewards": rewards}


def _text(given: object) -> str:
    """Return a text or a conversation as one text, without its middle where it is long."""
    text = given if isinstance(given, str) else _conversation(given)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _TAIL]} [...] {text[-_TAIL:]}"


def _conversation(messages: object) -> str:
    """Return the messages of a conversation, each as ``role: content``; of images and the like their kind."""
    if not isinstance(messages, (list, tuple)):
        return str(messages)
    lines = []
    for message in messages:
        role, content = (
            (message.get("role", ""), message.get("content")) if isinstance(message, Mapping) else ("", message)
        )
        if isinstance(content, (list, tuple)):
            content = " ".join(str(part.get("text", f"[{part.get('type')}]")) for part in content)
        lines.append(f"{role}: {content}" if role else str(content))
    return "\n".join(lines)
