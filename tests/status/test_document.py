"""The documents of the API and the card made of them: their fields, and their numbers beside those of a scrape."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from rlexporter import Exporter
from rlexporter.catalog.languages import Language, language
from rlexporter.catalog.metrics import CATALOG, NAMED
from rlexporter.catalog.questions import QUESTIONS
from rlexporter.conditions.table import CONDITION_NAMED, CONDITIONS, sources
from rlexporter.feed.feed import Feed
from rlexporter.feed.keys import clip
from rlexporter.frameworks.known import FRAMEWORKS
from rlexporter.logs.saved_state import read_saved_state
from rlexporter.model.condition import Family
from rlexporter.model.metric import Kind, Series
from rlexporter.model.snapshot import RunState, Snapshot
from rlexporter.model.step import RunFacts
from rlexporter.outputs import prometheus, state_file
from rlexporter.outputs.notebook import card as drawn
from rlexporter.status import cards, document
from rlexporter.status.history import History
from tests.conftest import DATA, observe
from tests.status.runs import NOW, judged, recorded

Json = dict[str, Any]
Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]

_TEXT, _NUMBER, _WHOLE, _BOOL = (str,), (int, float, str), (int,), (bool,)
_ABSENT = (type(None),)
SCHEMA: dict[str, Any] = {
    "version": _WHOLE,
    "language": _TEXT,
    "time": _NUMBER,
    "run": {
        **dict.fromkeys(("name", "rank", "algorithm", "trainer", "model", "state", "exception"), _TEXT),
        **dict.fromkeys(("attempt", "step", "steps_planned", "last_checkpoint_step"), _WHOLE + _ABSENT),
        **dict.fromkeys(("last_good_checkpoint_step",), _WHOLE + _ABSENT),
        "last_good_checkpoint": (*_TEXT, *_ABSENT),
        **dict.fromkeys(("started", "steps_per_second", "seconds_left"), _NUMBER + _ABSENT),
        **dict.fromkeys(("last_step_seconds_ago", "stall_after_seconds"), _NUMBER + _ABSENT),
        "labels": (dict,),
        "info": (dict,),
    },
    "process": (dict, *_ABSENT),
    "verdict": {
        **dict.fromkeys(("word", "code", "text", "runbook"), _TEXT),
        "conditions": [_TEXT],
        "actions": [_TEXT],
        "steps": [{"text": _TEXT, "command": _TEXT}],
        "curve": (dict, *_ABSENT),
    },
    "conditions": [
        {
            **dict.fromkeys(
                ("name", "severity", "alert", "summary", "meaning", "signal", "signal_unit", "runbook"), _TEXT
            ),
            **dict.fromkeys(("subject", "series", "word", "standing", "cause"), _TEXT),
            **dict.fromkeys(("below", "holds", "symptom"), _BOOL),
            **dict.fromkeys(("count", "since", "step"), _WHOLE),
            "over": _WHOLE + _ABSENT,
            **dict.fromkeys(("timestamp", "value", "threshold"), _NUMBER + _ABSENT),
            "causes": [_TEXT],
            "actions": [_TEXT],
        }
    ],
    "cards": [
        {
            **dict.fromkeys(("question", "title", "state"), _TEXT),
            "main": [
                {
                    **dict.fromkeys(("name", "series", "kind", "unit", "healthy"), _TEXT),
                    "labels": (dict,),
                    "value": _NUMBER,
                    "threshold": _NUMBER + _ABSENT,
                    "limits": [
                        {
                            **dict.fromkeys(("condition", "severity"), _TEXT),
                            **dict.fromkeys(("below", "relative"), _BOOL),
                            "threshold": _NUMBER,
                        }
                    ],
                    "prominent": _BOOL,
                    "distribution": _TEXT,
                }
            ],
        }
    ],
    "rewards": [{"function": _TEXT, "mean": _NUMBER + _ABSENT, "std": _NUMBER + _ABSENT}],
    "distributions": [
        {
            **dict.fromkeys(("series", "unit", "help"), _TEXT),
            "labels": (dict,),
            "edges": [_NUMBER],
            "counts": [_WHOLE],
            "recent": [_WHOLE],
            "recent_steps": _WHOLE + _ABSENT,
            **dict.fromkeys(("smallest", "largest"), _NUMBER + _ABSENT),
            "count": _WHOLE,
            "sum": _NUMBER,
            "nonfinite": (dict, *_ABSENT),
        }
    ],
    "not_judged": [{"condition": _TEXT, "cause": _TEXT, "reason": _TEXT}],
    "unavailable": [{"signal": _TEXT, "cause": _TEXT, "reason": _TEXT}],
    "guesses": [{"key": _TEXT, "series": _TEXT}],
    "nonfinite": [{"metric": _TEXT, "kind": _TEXT, "count": _WHOLE}],
    "undefined": [{"metric": _TEXT, "count": _WHOLE}],
    "series": [
        {
            **dict.fromkeys(("name", "key", "kind", "unit", "level", "help", "reading", "healthy"), _TEXT),
            "labels": (dict,),
            "value": _NUMBER + _ABSENT,
            "step": _WHOLE + _ABSENT,
        }
    ],
    "hyperparameters": (dict,),
    "links": dict.fromkeys(("metrics", "status", "history", "docs", "runbooks"), _TEXT),
}
"""The fields of version 1, written by hand: a tuple holds the types of a value, a list that of its items."""


def check(found: Any, schema: Any, where: str = "") -> None:
    """Assert that a document has these fields and no others, of these types."""
    if isinstance(schema, tuple):
        assert type(found) in schema, f"{where}: {found!r}"
    elif isinstance(schema, list):
        assert isinstance(found, list), where
        for each in found:
            check(each, schema[0], f"{where}[]")
    else:
        assert set(found) == set(schema), where
        for name, of in schema.items():
            check(found[name], of, f"{where}.{name}")


def served(snapshot: Snapshot, history: History | None = None, now: float = NOW) -> Json:
    """The document, as a client reads it: no number is none of JSON."""
    text = json.dumps(document.status(snapshot, history or History(), now), allow_nan=False)
    found: Json = json.loads(text)
    check(found, SCHEMA)
    return found


COMPOSED = ("text", "reason", "summary", "actions")
"""Texts with values in them; the others are those of the catalog."""


def _translated(found: Any, say: Language, name: str = "") -> Any:
    """The document with the catalog's texts in a language, without those that are composed, all else as it is."""
    if isinstance(found, dict):
        return {key: _translated(value, say, key) for key, value in found.items() if key not in COMPOSED}
    if isinstance(found, list):
        return [_translated(value, say, name) for value in found]
    return say(found) if name == "title" else found


def _composed(found: Any) -> list[str]:
    """The texts with values in them, in their order."""
    if isinstance(found, dict):
        own = [value for key, value in found.items() if key in COMPOSED and value]
        texts = [text for each in own for text in (each if isinstance(each, list) else [each])]
        return texts + [text for value in found.values() for text in _composed(value)]
    return [text for each in found for text in _composed(each)] if isinstance(found, list) else []


@pytest.mark.parametrize("code", ["vi", "zh"])
@pytest.mark.parametrize("run", ["ppo-healthy_accum-0.jsonl", "ppo-value_nan-0.jsonl", "rloo-reward_inf-0.jsonl"])
def test_texts_are_in_the_language_and_nothing_else_is(data: Path, run: str, code: str) -> None:
    """What programs read is the same in each language, and so is what the catalog says of series; numbers are too."""
    snapshot, history, now = recorded(data / "runs" / run)
    english = document.status(snapshot, history, now)
    found = document.status(snapshot, history, now, language(code))
    check(json.loads(json.dumps(found)), SCHEMA)

    expected = _translated({**english, "language": code}, language(code))
    for card in expected["cards"]:
        for each in card["main"]:
            each["name"] = language(code)(each["name"])
    assert _translated(found, language("en")) == expected
    texts, before = _composed(found), _composed(english)
    assert len(texts) == len(before) > 5
    for text, was in zip(texts, before, strict=True):
        assert (text == was) == (not re.search("[a-z]", was)), was
        assert sorted(re.findall(r"[\d.]*\d", text)) == sorted(re.findall(r"[\d.]*\d", was)), was


SPOKEN = {
    "vi": "Một phần thưởng (reward) là NaN hoặc vô cùng. Bắt đầu ở bước 4. "
    "Lần chạy đã hỏng với MemoryError sau bước 4.",
    "zh": "某个奖励为 NaN 或无穷。始于第 4 步。运行因 MemoryError 失败，停在第 4 步之后。",  # noqa: RUF001
}


@pytest.mark.parametrize("code", SPOKEN)
def test_a_verdict_is_read_as_it_is_spoken(code: str) -> None:
    """Whole sentences in their order; Chinese has no space between them."""
    feed = judged()
    feed.enter(RunState.RUNNING)
    for step in range(1, 5):
        feed.record({"reward": math.nan if step == 4 else 1.0, "kl": 0.01}, step)
    feed.settle()
    feed.enter(RunState.FAILED, "MemoryError")
    found = document.status(feed.snapshot, History(), NOW, language(code))
    assert found["verdict"]["text"] == SPOKEN[code]
    assert found["verdict"]["word"] == "act"


def scraped(snapshot: Snapshot) -> Scraped:
    """Every sample of a scrape, without the labels of the run."""
    text = prometheus.encode(snapshot, "")[0].decode()
    own = set(snapshot.labels)
    return {
        (sample.name, frozenset((k, v) for k, v in sample.labels.items() if k not in own)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def real(value: float | str | None) -> float:
    """A number of the document."""
    assert value is not None
    return float(value)


def same(one: float, other: float) -> bool:
    """Equal, or both NaN."""
    return one == other or (math.isnan(one) and math.isnan(other))


RUNS = sorted(path.name for path in (DATA / "runs").glob("*.jsonl"))


@pytest.mark.parametrize("run", RUNS)
def test_every_number_is_that_of_a_scrape(data: Path, run: str) -> None:
    """Of the same snapshot, for each trainer, healthy and broken; no series is missing."""
    snapshot, history, now = recorded(data / "runs" / run)
    found, scrape = served(snapshot, history, now), scraped(snapshot)
    names = {name for name, _ in scrape}

    def at(name: str, /, **labels: str) -> float:
        return scrape[name, frozenset(labels.items())]

    for each in found["series"]:
        if each["kind"] != "histogram":
            assert same(real(each["value"]), at(each["name"], **each["labels"])), each["name"]
    shown = {each["name"] for each in found["series"]}
    assert {name for name in names if name in NAMED or name.startswith("rl_eval_")} <= shown
    for each in found["distributions"]:
        total = 0
        for edge, count in zip(each["edges"], each["counts"], strict=True):
            total += count
            le = "+Inf" if edge == "+Inf" else floatToGoString(edge)  # type: ignore[no-untyped-call]
            assert total == at(f"{each['series']}_bucket", le=le, **each["labels"])
        assert total == each["count"]
        if f"{each['series']}_sum" in names:
            assert each["sum"] == at(f"{each['series']}_sum", **each["labels"])
    for card in found["cards"]:
        for each in card["main"]:
            if each["kind"] == "gauge":
                assert same(real(each["value"]), at(each["series"], **each["labels"]))
            elif each["kind"] == "counter":
                assert each["value"] == sum(value for (name, _), value in scrape.items() if name == each["series"])
            for limit in each["limits"]:
                of = {name: limit[name] for name in ("condition", "severity")}
                assert limit["threshold"] == at("rl_threshold", **of)
    for each in found["conditions"]:
        of = {"condition": each["name"], "severity": each["severity"]}
        assert each["holds"] is (at("rl_condition", **of) == 1.0)
        for field, name in (("step", "step"), ("timestamp", "timestamp_seconds")):
            assert each[field] == at(f"rl_condition_last_event_{name}", **of)
        finding = CONDITION_NAMED[each["name"]].finding
        assert each["value"] == (None if finding else at("rl_condition_last_event_value", **of))
        assert each["threshold"] == (None if finding else at("rl_condition_last_event_threshold", **of))
        assert each["count"] == at("rl_condition_events_total", **of)
    for each in found["nonfinite"]:
        assert each["count"] == at("rl_nonfinite_values_total", metric=each["metric"], kind=each["kind"])
    assert found["run"]["step"] == at("rl_step")
    for each in found["rewards"]:
        assert same(real(each["mean"]), at("rl_reward_function_mean", reward_function=each["function"]))
    curves = {(each["series"], tuple(each["labels"].values())): each for each in document.curves(history)["curves"]}
    for (name, labels), curve in curves.items():
        if NAMED[name].kind is Kind.GAUGE:
            last = snapshot.samples.get(Series(NAMED[name], labels))
            assert last is None or same(real(curve["values"][-1]), last)


def test_heat_maps_hold_all_that_the_distributions_count() -> None:
    """In columns of equal length, by the steps that it was counted in; only where they are asked for."""
    feed, history = judged(), History()
    ratio = Series(NAMED["rl_policy_ratio_dist"])
    for step in range(1, 251):
        feed.record({"reward": 1.0}, step)
        if step > 100:
            observe(feed, ratio, [0.95, 1.0, 0.5 if step > 200 else 1.0])
        history.see(feed.snapshot)
    found = document.curves(history, heat_maps=True)["heat_maps"]
    (heat,) = [each for each in found if each["series"] == "rl_policy_ratio_dist"]
    (whole,) = [each for each in served(feed.snapshot)["distributions"] if each["series"] == "rl_policy_ratio_dist"]

    assert document.curves(history)["heat_maps"] == []
    assert heat["edges"] == whole["edges"]
    assert [sum(column) for column in zip(*heat["counts"], strict=True)] == whole["counts"]
    assert (heat["smallest"], heat["largest"]) == (whole["smallest"], whole["largest"]) == (0.5, 1.0)
    every = heat["every"]
    assert every == 2
    assert heat["steps"] == [*range(100, 252, every)]
    low = [sum(counts[: heat["edges"].index(0.5) + 1]) for counts in heat["counts"]]
    assert [step for step, count in zip(heat["steps"], low, strict=True) if count] == [*range(200, 252, every)]


def test_numbers_that_are_none_are_words() -> None:
    """In each place, as a NaN in JSON is no JSON."""
    feed, history = judged(), History()
    feed.enter(RunState.RUNNING)
    for step, value in enumerate((1.0, math.nan, math.inf, -math.inf), 1):
        feed.record({"reward": value, "rewards/f/mean": value}, step)
        history.see(feed.snapshot)
    observe(feed, Series(NAMED["rl_policy_ratio_dist"]), [1.0, math.nan, math.inf])
    found = served(feed.snapshot, history)

    assert found["cards"][0]["main"][0]["value"] == "-Inf"
    assert found["cards"][0]["state"] == "act", "the condition on NaN is one of another card"
    assert found["rewards"] == [{"function": "f", "mean": "-Inf", "std": None}]
    assert {"metric": "rl_reward_mean", "kind": "nan", "count": 1} in found["nonfinite"]
    (ratio,) = [each for each in found["distributions"] if each["series"] == "rl_policy_ratio_dist"]
    assert ratio["nonfinite"] == {"nan": 1, "+inf": 1, "-inf": 0}
    assert ratio["recent"] == ratio["counts"]
    (curve,) = document.curves(history, ["rl_reward_mean"])["curves"]
    assert curve == {
        "series": "rl_reward_mean",
        "labels": {},
        "steps": [1, 2, 3, 4],
        "values": [1.0, "NaN", "+Inf", "-Inf"],
    }


HOSTILE = ("<script>alert(1)</script>", "a" * 10_000, "\u202egnp.exe", "</script><!--", '"\\\n\x00\x1b[2J', "\ud800")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_are_text(name: str) -> None:
    """What a name holds is a JSON string, as it is; the feed has cut it at 128 characters."""
    feed = judged()
    feed.begin(RunFacts(algorithm="grpo", step=0, info={"model": name}), {"run": name, "rank": "0", "team": name})
    function = name.replace("/", "")
    feed.record({f"rewards/{function}/mean": 1.0}, 1)
    feed.enter(RunState.FAILED, name)
    found = served(feed.snapshot)
    cut = found["run"]["name"]

    assert len(cut) <= 128
    assert cut == clip(name)
    assert found["run"]["labels"] == {"team": cut}
    assert found["run"]["model"] == found["run"]["exception"] == cut
    assert [each["function"] for each in found["rewards"]] == [clip(function)]


def test_a_run_that_has_just_begun(feed: Feed) -> None:
    """Every field is there, and what is not known is null or empty."""
    found = served(feed.snapshot)
    assert (found["run"]["state"], found["run"]["step"]) == ("unknown", None)
    found = served(judged().snapshot)
    assert found["run"]["steps_per_second"] is None
    assert [card["state"] for card in found["cards"]] == ["unknown", "unknown", "unknown", "fine"]
    nothing = served(Snapshot())  # a replayed file may have no state
    assert (nothing["series"], nothing["verdict"]["word"], nothing["verdict"]["code"]) == ([], "look", "unknown")


@pytest.mark.parametrize(
    ("framework", "family", "keys"),
    [
        ("trl", "grpo", ("reward", "kl", "entropy")),
        ("verl", "grpo", ("critic/score/mean", "actor/kl_loss", "actor/entropy")),
        ("verl", "ppo", ("critic/score/mean", "actor/reward_kl_penalty, critic/kl", "actor/entropy")),
        ("ms-swift", "grpo", ("reward", "kl", "entropy/mean")),
        ("my-own", "grpo", ("reward", "kl", "entropy")),
    ],
)
def test_keys_are_those_of_the_framework(tmp_path: Path, framework: str, family: str, keys: tuple[str, ...]) -> None:
    """Of a framework whose trainers are TRL's too, its own come first; an unknown one logs TRL's."""
    values = (0.5, 0.25, 2.0)
    line = dict(zip((key.partition(",")[0] for key in keys), values, strict=True))
    feed = Feed(CATALOG, clock=lambda: NOW, frameworks=FRAMEWORKS)
    feed.begin(RunFacts(algorithm="gspo", framework=framework, judged_as=family, step=0), {"run": "a", "rank": "0"})
    feed.record(line, step=1)
    saved = tmp_path / "state.json"
    saved.write_text(state_file.text(feed.snapshot))
    kept = read_saved_state(saved)
    assert kept is not None

    for snapshot in (feed.snapshot, kept.snapshot):
        found = {each["name"]: (each["key"], each["value"]) for each in served(snapshot)["series"]}
        names = ("rl_reward_mean", "rl_kl_per_token", "rl_entropy_per_token")
        assert [found[name] for name in names] == list(zip(keys, values, strict=True))
        assert found["rl_step"][0] == ""


def test_the_time_left_is_that_of_the_last_minute() -> None:
    """Null where the plan or the pace is not known, and when the run is over."""
    clock = [1000.0]
    feed, history = judged(), History()
    feed._clock = lambda: clock[0]
    feed.change(lambda builder: builder.set("rl_steps_planned", 600.0))
    feed.enter(RunState.RUNNING)
    for step in range(1, 101):
        clock[0] += 0.5
        feed.record({"reward": 1.0}, step)
        history.see(feed.snapshot)
    run = served(feed.snapshot, history, clock[0] + 3)["run"]
    assert (run["steps_per_second"], run["seconds_left"], run["last_step_seconds_ago"]) == (2.0, 250.0, 3.0)
    feed.enter(RunState.FINISHED)
    run = served(feed.snapshot, history, clock[0])["run"]
    assert (run["steps_per_second"], run["seconds_left"]) == (None, None)


def test_a_run_that_hangs_has_no_pace() -> None:
    """It is stuck, and the card says for how long."""
    feed, history = judged(), History()
    feed.change(lambda builder: builder.set("rl_steps_planned", 600.0))
    feed.enter(RunState.RUNNING)
    for step in (1, 2, 3):
        feed.record({"reward": 1.0}, step)
        history.see(feed.snapshot)
    found = served(feed.snapshot, history, NOW + 700)
    run, fast = found["run"], found["cards"][2]
    assert (run["state"], run["steps_per_second"], run["seconds_left"]) == ("stuck", None, None)
    assert (fast["question"], fast["state"]) == ("fast", "act")
    assert [fast["main"][0][each] for each in ("name", "value", "threshold")] == ["no step for", 700.0, 600.0]


def test_what_cannot_be_judged_says_why() -> None:
    """By the configuration, by an error, or since nothing has come."""
    feed = judged()
    feed.signal("kl", "beta is 0")
    feed.signal("ratio", "KeyError: 'x'", error=True)
    feed.record({"reward": 1.0}, 1)
    found = served(feed.snapshot)
    why = {each["condition"]: (each["cause"], each["reason"]) for each in found["not_judged"]}
    assert why["kl_high"] == ("configuration", "beta is 0")
    assert why["reward_hacking"] == ("configuration", "beta is 0")
    assert why["ratio_tail"] == ("error", "KeyError: 'x'")
    assert why["truncation"][0] == "waiting"
    assert "rl_completion_truncated_fraction" in why["truncation"][1]
    assert {each["signal"] for each in found["unavailable"]} == {"kl", "ratio"}


def test_each_family_answers_one_question() -> None:
    """So that every condition is on one card."""
    families = [family for question in QUESTIONS for family in question.families]
    assert sorted(families) == sorted(Family)
    assert [question.name for question in QUESTIONS] == ["learning", "stable", "samples", "fast", "hidden"]


def test_what_a_card_shows_is_a_series_of_a_signal() -> None:
    """Each can be read, and its limits are those of conditions where there are any."""
    judged_by = {condition.signal for condition in CONDITIONS}
    for shown in (shown for question in QUESTIONS for shown in question.main):
        assert sources(shown)
        assert all(source.series in NAMED for source in sources(shown))
        assert not shown.signal or shown.signal in judged_by | {"reward"}
    assert set(cards.curves()) >= {"rl_reward_mean", "rl_kl_per_token", "rl_step_duration_seconds"}
    assert len(cards.curves()) <= 50


def test_a_limit_is_shown_where_it_has_the_unit_of_the_number() -> None:
    """The KL of a sequence is not measured by a limit on that of a token."""
    (kl,) = [shown for question in QUESTIONS for shown in question.main if shown.signal == "kl"]
    found = {source.series: source.limited for source in sources(kl)}
    assert found == {
        "rl_kl_per_token": True,
        "rl_kl_per_token_dist": True,
        "rl_kl_k1_per_token": True,
        "rl_kl_penalty_per_token": True,
        "rl_kl_per_sequence": False,
    }
    assert sources(kl)[0].series == "rl_kl_per_token"


def test_a_symptom_is_seen_on_its_card_only(data: Path) -> None:
    """The verdict does not speak of it; the card says look."""
    snapshot, history, now = recorded(data / "runs/ppo-value_nan-0.jsonl")
    found = served(snapshot, history, now)
    symptoms = [each["name"] for each in found["conditions"] if each["symptom"]]
    assert symptoms
    assert not set(symptoms) & set(found["verdict"]["conditions"])
    assert [card["state"] for card in found["cards"] if card["question"] == "hidden"] == ["act"]


# The card of a notebook


def _seen(html: str) -> str:
    """What a person reads: the text without its tags."""
    return re.sub(r"<[^>]*>", " ", html)


@pytest.mark.parametrize(
    ("file", "word", "cause"),
    [("grpo-healthy_multi-0", "fine", "The run has finished"), ("ppo-value_nan-0", "act", "NaN or infinite")],
)
def test_a_card_says_how_the_run_is(data: Path, file: str, word: str, cause: str) -> None:
    """In a notebook, with its name, its step, and its numbers as the document has them."""
    found: Json = document.status(*recorded(data / "runs" / f"{file}.jsonl"))
    html = drawn(found, "http://127.0.0.1:9750")
    text = _seen(html)

    assert text.split()[0] == word
    assert cause in text
    assert f"{found['run']['name']} · {found['run']['algorithm']} · {found['run']['state']} · step" in text
    reward = next(each["value"] for each in found["cards"][0]["main"] if each["name"] == "reward")
    assert f"reward {reward if isinstance(reward, str) else format(reward, '.3g')}" in text
    assert 'href="http://127.0.0.1:9750/"' in html


def test_the_card_of_a_run_that_has_just_begun() -> None:
    """It has no step, no numbers and no page, and its card says nothing of them."""
    feed = judged()
    feed.enter(RunState.RUNNING)
    html = drawn(document.status(feed.snapshot, History(), NOW), None)

    assert "test · grpo · running · step 0" in html
    assert "None" not in html
    assert "href" not in html


def test_names_on_a_card_are_text() -> None:
    """Whatever they are."""
    with Exporter(run="<script>alert(1)</script>", port=0) as exporter:
        exporter.log({"reward": float("nan")}, step=3)
        html = exporter._repr_html_() or ""
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "reward NaN" in html
    assert _seen(html).split()[0] == "act"
    assert repr(exporter).startswith("<Exporter of run <script>")
