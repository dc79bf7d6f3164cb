"""Which completions are kept for a person to read, and as what."""

from __future__ import annotations

import json
from math import nan
from typing import Any

from rlexporter.model.sink import Rollout
from rlexporter.status.completions import Completions

NOTHING: dict[str, Any] = {"version": 1, "most": 0, "step": None, "best": [], "worst": [], "last": []}


def _texts(kept: Completions) -> dict[str, list[str]]:
    document = kept.as_json()
    return {kind: [each["completion"] for each in document[kind]] for kind in ("best", "worst", "last")}


def test_the_best_the_worst_and_the_last() -> None:
    """By what was optimized; one without a reward is neither best nor worst, and the last comes first."""
    kept = Completions(2)
    kept.see(
        7, Rollout(["p"] * 4, ["low", "none", "high", "middle"], {"f": [0.0, nan, 9.0, 1.0]}, [0.0, nan, 9.0, 1.0])
    )
    assert _texts(kept) == {"best": ["high", "middle"], "worst": ["low", "middle"], "last": ["middle", "high"]}
    document = kept.as_json()
    assert (document["most"], document["step"]) == (2, 7)
    assert document["best"][0] == {"prompt": "p", "completion": "high", "reward": 9.0, "rewards": {"f": 9.0}}

    kept.see(8, Rollout(["q"], ["only"], {"f": [nan]}, [nan]))
    assert _texts(kept) == {"best": [], "worst": [], "last": ["only"]}
    assert kept.as_json()["last"][0]["rewards"] == {"f": "NaN"}
    json.dumps(kept.as_json(), allow_nan=False)


def test_nothing_was_asked_for() -> None:
    """Then there is nothing."""
    assert Completions(0).as_json() == NOTHING


def test_a_long_text_keeps_its_ends() -> None:
    """Its beginning, and the end, where an answer stands; in 4,000 signs and a mark."""
    kept = Completions(1)
    kept.see(1, Rollout(["p"], ["a" * 9000 + "The answer is 42."], {}, [1.0]))
    (text,) = _texts(kept)["last"]
    assert len(text) == 4007
    assert text.startswith("aaa")
    assert " [...] " in text
    assert text.endswith("The answer is 42.")


def test_a_conversation_is_told_as_one() -> None:
    """With who says what; an image is named, and whatever else comes is shown as it is."""
    kept = Completions(1)
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
    ]
    kept.see(1, Rollout([asked], [[{"role": "assistant", "content": None}, "odd"]], {}, [1.0]))
    (last,) = kept.as_json()["last"]
    assert last["prompt"] == "system: Be brief.\nuser: [image] What is it?"
    assert last["completion"] == "assistant: None\nodd"
