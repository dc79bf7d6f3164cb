"""The page in a real Chromium, as people and as screen readers meet it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect

from rlexporter import Exporter
from rlexporter.catalog.languages import language
from rlexporter.catalog.metrics import NAMED
from rlexporter.commands.main import main
from rlexporter.status import earlier
from rlexporter.status.page import STRINGS
from tests.page import documents
from tests.page.browser import SIZES, Served, Watched, chromium, opened
from tests.page.documents import HOSTILE, NAME, RUNS, STEPS
from tests.tools import eventually

pytestmark = pytest.mark.slow
BOX = "node => { const { y, height } = node.getBBox(); return { y, height }; }"
MINUS = "\u2212"
_OF_THE_EXPORTER = re.compile("rl_condition|rl_threshold|rl_nearest_limit|rl_signal|rl_logged|rlexporter_")
"""Series about the watching, which the table has behind those that are watched."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with chromium() as started:
        yield started


@pytest.fixture
def served() -> Iterator[Served]:
    """The page of a healthy run."""
    with Served(documents.healthy()) as server:
        yield server


@pytest.fixture
def watched(browser: Browser, served: Served) -> Iterator[Watched]:
    """That page, open, with its first answer shown."""
    with opened(browser, served.url) as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Fine")
        yield found
        assert [each for each in found.complaints if "Failed to load resource" not in each] == []


def test_numbers_are_those_of_the_document(browser: Browser, served: Served) -> None:
    """The full number is in the title of each, and what is read is the same to three digits at least."""
    for served.data in (documents.broken(), documents.many_rewards()):
        status = served.data["status"]
        with opened(browser, served.url) as found:
            expect(found.page.locator("#rows tr")).to_have_count(len(status["series"]))
            if len(status["rewards"]) > 24:
                found.page.locator("#rewards-all").click()
            expect(found.page.locator(".reward-mean")).to_have_count(len(status["rewards"]))
            shown, rows, rewards = (
                found.page.eval_on_selector_all(where, "all => all.map((n) => [n.title, n.textContent])")
                for where in (":is(.tile, .card) .figure .number", "#rows td.value", ".reward-mean")
            )
        tiles = [main for card in status["cards"] for main in card["main"] if main["prominent"]]
        rows_of_cards = [
            main
            for card in status["cards"]
            for main in sorted(card["main"], key=lambda main: main["value"] != "NaN")  # what is wrong comes first
            if not main["prominent"]
        ]
        mains = [main["value"] for main in (*tiles, *rows_of_cards)]
        series = sorted(status["series"], key=lambda row: bool(_OF_THE_EXPORTER.match(row["name"])))
        for expected, read in (
            (mains, shown),
            ([each["value"] for each in series], rows),
            ([each["mean"] for each in status["rewards"]], rewards),
        ):
            titles, texts = ([_parsed(each[i]) for each in read] for i in (0, 1))
            assert _numbers(titles) == pytest.approx(_numbers(map(_parsed, expected)), nan_ok=True)
            assert _numbers(texts) == pytest.approx(_numbers(titles), rel=5e-3, nan_ok=True)


def _parsed(value: float | str | None) -> float | None:
    """A number as the document, a title or the text of the page has it; None where there is none."""
    if value in (None, "no value", "–"):  # noqa: RUF001
        return None
    return float(str(value).replace(MINUS, "-").replace(",", ""))


def _numbers(values: Iterable[float | None]) -> dict[int, float]:
    """Those that are there, by their places."""
    return {place: value for place, value in enumerate(values) if value is not None}


def test_hostile_names_are_text(browser: Browser, served: Served) -> None:
    """Markup is read as it is written, nothing of it runs, no link leads to a script, and no text is turned around."""
    served.data = documents.hostile()
    with opened(browser, served.url) as found:
        expect(found.page.locator("#run")).to_contain_text("<script>alert(1)</script>")
        expect(found.page.locator("#rewards-list")).to_contain_text("</script><b>")
        assert found.page.locator("img, main script, main b b, a[href^='javascript']").count() == 0
        assert found.page.locator("script").count() == 1
        text = found.page.locator("body").inner_text() + found.page.title()
        assert not set(text) & set(HOSTILE) & set("\u202e\u200f")
        assert found.complaints == []


def test_the_policy_lets_nothing_else_run(watched: Watched) -> None:
    """Neither a script, nor a handler, nor a style that somebody brings in."""
    page = watched.page
    page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'window.ran = 1';
          const box = document.createElement('div');
          box.innerHTML = '<p id="styled" style="color: rgb(1, 2, 3)" onclick="window.ran = 1">x</p>';
          document.body.append(script, box);
          box.firstChild.click();
        }"""
    )
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(1, 2, 3)"
    refused = [each for each in watched.complaints if "Content Security Policy" in each]
    assert len(refused) >= 3
    watched.complaints.clear()


def test_it_is_live(watched: Watched, served: Served) -> None:
    """A new step, a new alert and a new curve come without a reload, and the focus stays where it was."""
    page = watched.page
    page.locator("#search").focus()
    page.evaluate("window.same = true")
    news = documents.broken()
    news["status"]["run"].update(step=413)
    served.data = news

    expect(page.locator("#step")).to_have_text("step 413 of 600")
    expect(page.locator("#verdict-word")).to_have_text("Act")
    expect(page.locator("#news")).to_have_text(f"Verdict: Act. {news['status']['verdict']['text']}")
    expect(page.locator(".tile .hole")).to_have_count(1)
    assert page.title() == f"Act: {documents.NAME}"
    assert page.evaluate("window.same && document.activeElement.id") == "search"


def test_a_process_that_is_gone_is_said(watched: Watched, served: Served) -> None:
    """Since when, and which step was seen last; and it goes on by itself when it answers again."""
    page = watched.page
    served.stop()
    expect(page.locator("#verdict-word")).to_have_text("Act")
    expect(page.locator("#verdict-text")).to_contain_text("last seen at step 412")
    expect(page.locator("#link-text")).to_contain_text("not answering since")
    expect(page.locator("#verdict-more")).to_contain_text(served.data["status"]["verdict"]["text"])
    expect(page.locator("#state")).to_have_text("no answer")
    expect(page.locator("#left")).to_be_empty()

    served.start()
    expect(page.locator("#verdict-word")).to_have_text("Fine")
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#news")).to_contain_text("It answers again.")
    expect(page.locator("#link-text")).to_have_text("live")


def test_a_broken_process_that_is_gone_names_its_cause_once(watched: Watched, served: Served) -> None:
    """In the verdict before that; what else holds is listed."""
    served.data = documents.broken()
    [summary] = [
        each["summary"] for each in served.data["status"]["conditions"] if not each["symptom"] and each["holds"]
    ]
    expect(watched.page.locator("#verdict-text")).to_contain_text(summary)
    served.stop()
    expect(watched.page.locator("#verdict-text")).to_contain_text("Not answering")
    assert watched.page.locator("#verdict-more").inner_text().count(summary) == 1
    served.start()


def test_a_run_that_is_over_may_be_gone(watched: Watched, served: Served) -> None:
    """Its end was seen: that its process has ended is no fault."""
    served.data = RUNS["finished"]()
    expect(watched.page.locator("#link-text")).to_have_text("the run is over")
    served.stop()
    expect(watched.page.locator("#verdict-more")).to_contain_text("its process has ended")
    expect(watched.page.locator("#verdict-word")).to_have_text("Fine")
    served.start()


def test_a_run_that_hangs_is_not_over(watched: Watched, served: Served) -> None:
    """It may go on, and whoever looks is told at once."""
    served.data = documents.healthy()
    served.data["status"]["run"]["state"] = "stuck"
    expect(watched.page.locator("#state")).to_have_text("stuck")
    expect(watched.page.locator("#link-text")).to_have_text("live")


def test_the_last_curves_come_after_the_end(watched: Watched, served: Served) -> None:
    """They are asked for once more: the end of a fast run may be told before its last steps are in its curves."""
    eventually(lambda: len(served.times("/api/status")) >= 3)
    served.asked.clear()
    served.data = RUNS["finished"]()
    eventually(lambda: len(served.times("/api/status")) >= 4)
    assert len(served.times("/api/history")) >= 2


def test_an_answer_that_is_refused_is_said(watched: Watched, served: Served) -> None:
    """A token that was changed, say."""
    served.status = 401
    expect(watched.page.locator("#link-text")).to_contain_text("answers with status 401")


def test_the_keyboard_reaches_all_of_it(watched: Watched) -> None:
    """The skip link comes first; curves are read out by arrows; a series is found, and opens to its curve."""
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"

    curve = page.get_by_role("slider", name="KL over the steps")
    curve.focus()
    page.keyboard.press("Home")
    expect(curve).to_have_attribute("aria-valuetext", _step(1))
    page.keyboard.press("ArrowRight")
    expect(curve).to_have_attribute("aria-valuetext", _step(2))
    expect(curve.locator(".readout")).to_have_text(_step(2))

    page.get_by_label("Search by name").fill("kl beta")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#found")).to_have_text(f"1 of {len(documents.healthy()['status']['series'])}")
    page.get_by_role("button", name="rl_kl_per_token").press("Enter")
    expect(page.locator(".opened .line").first).to_be_attached()
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


def _step(step: int) -> str:
    [curve] = [each for each in documents.healthy()["history"]["curves"] if each["series"] == "rl_kl_per_token"]
    return f"step {step}: {curve['values'][step - 1]:.4g}"


def test_nan_breaks_the_line_and_marks_its_steps(browser: Browser, served: Served) -> None:
    """In the middle of a curve: two lines and a band between them."""
    data = documents.healthy()
    [curve] = [each for each in data["history"]["curves"] if each["series"] == "rl_reward_mean"]
    curve["values"][100:120] = ["NaN"] * 20
    served.data = data
    with opened(browser, served.url) as found:
        tile = found.page.locator(".tile", has_text="Mean reward")
        expect(tile.locator(".hole")).to_have_count(1)
        lines = tile.locator(".line:not(.other)").evaluate_all("all => all.map((line) => line.getAttribute('d'))")
    assert [each.count("M") for each in lines] == [2, 2]
    assert all(math.isfinite(float(x)) for each in lines for x in re.sub("M|L|h0", " ", each).split())


def test_a_curve_of_many_decades_is_drawn(browser: Browser, served: Served) -> None:
    """A gradient that falls to next to nothing: the running mean of the last steps is no 0, which has no logarithm."""
    data = documents.healthy()
    [curve] = [each for each in data["history"]["curves"] if each["series"] == "rl_reward_mean"]
    curve["values"] = [0.3 if step < STEPS / 2 else 2.8e-21 for step in curve["steps"]]
    served.data = data
    with opened(browser, served.url) as found:
        tile = found.page.locator(".tile", has_text="Mean reward")
        expect(tile.locator(".tick", has_text="log")).to_have_count(1)
        lines = tile.locator(".line:not(.other)").evaluate_all("all => all.map((line) => line.getAttribute('d'))")
        assert found.complaints == []
    assert len(lines) == 2
    assert all(math.isfinite(float(x)) for each in lines for x in re.sub("M|L|h0", " ", each).split())


@pytest.mark.parametrize(
    ("value", "words", "below"),
    [
        (1.5, "alert above 2", False),
        (9.5, "alert above 9, set by the run's own past", False),
        (0.4, "alert below 0.5", True),
    ],
)
def test_of_many_limits_one_is_said(browser: Browser, served: Served, value: float, words: str, below: bool) -> None:
    """The worst that is crossed, or else the nearest; what lies beyond it is shaded."""
    found = [(2.0, "warning", False), (9.0, "critical", False), (8.0, "warning", False), (91.0, "warning", False)]
    found += [(0.5, "critical", True), (0.2, "warning", True), (0.3, "warning", True), (1.4, "info", False)]
    data = documents.healthy()
    kl = data["status"]["cards"][1]["main"][0]
    kl["limits"] = [
        {"condition": f"c{i}", "severity": severity, "threshold": limit, "below": low, "relative": limit == 9.0}
        for i, (limit, severity, low) in enumerate(found)
    ]
    kl["value"] = value
    (curve,) = [
        each for each in data["history"]["curves"] if each["series"] == kl["series"] and each["labels"] == kl["labels"]
    ]
    curve["values"] = [12.0 * step / STEPS for step in curve["steps"]]
    served.data = data
    with opened(browser, served.url) as watched:
        tile = watched.page.locator(".tile", has_text="KL")
        expect(tile.locator(".limits")).to_have_text(words)
        expect(tile.locator(".limit-text")).to_have_text(words.split(",")[0])
        zone, line = (tile.locator(where).evaluate(BOX) for where in (".zone", ".limit"))
        assert zone["y" if below else "height"] == pytest.approx(line["y"] if below else line["y"] - zone["y"], abs=1)


def test_a_curve_has_the_band_of_its_values(browser: Browser, served: Served) -> None:
    """From 5 to 95 % of what the tensors held; reward functions beside the reward, with their names."""
    with opened(browser, served.url) as found:
        reward = found.page.locator(".tile", has_text="Mean reward")
        expect(reward.locator(".band")).to_have_count(1)
        expect(reward.locator(".other-name")).to_have_text(["format", "answer"])
        expect(found.page.locator(".tile", has_text="Entropy").locator(".band")).to_have_count(0)


def test_part_of_a_run_can_be_seen(browser: Browser, served: Served) -> None:
    """By dragging over a curve, or by keys: in all curves, with as many points as there are; and back."""
    with opened(browser, served.url) as found:
        page = found.page
        kl = page.get_by_role("slider", name="KL over the steps")
        reward = page.get_by_role("slider", name="Mean reward over the steps")
        expect(kl).to_have_attribute("aria-valuemax", str(STEPS - 1))
        kl.scroll_into_view_if_needed()
        box = kl.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.5, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, y)
        expect(kl.locator(".dragged")).to_have_count(1)
        page.mouse.up()
        expect(page.locator("#whole")).to_be_visible()
        words = page.locator("#whole").inner_text()
        first, last = (int(each) for each in re.findall(r"\d+", words))
        assert 180 < first < 230 < 290 < last < 330
        for plot in (kl, reward):
            expect(plot).to_have_attribute("aria-valuemax", str(last - first))
        eventually(lambda: [each for _, each in served.asked if "points=2000" in each] or None, 60.0)
        page.locator("#whole").click()
        expect(page.locator("#whole")).to_be_hidden()
        expect(reward).to_have_attribute("aria-valuemax", str(STEPS - 1))

        reward.focus()
        page.keyboard.press("Home")
        page.keyboard.press("+")
        expect(reward).to_have_attribute("aria-valuemax", re.compile(r"^10\d$"))
        page.keyboard.press("0")
        expect(reward).to_have_attribute("aria-valuemax", str(STEPS - 1))


def test_a_distribution_is_shown_over_the_steps(browser: Browser, served: Served) -> None:
    """As a heat map that is read like a curve, and beside it that of the last steps, with its marks."""
    data = documents.healthy()
    (heat,) = [each for each in data["history"]["heat_maps"] if each["series"] == "rl_reward_dist"]
    with opened(browser, served.url) as found:
        page = found.page
        node = page.locator(".distribution", has_text="Reward").first
        expect(node.locator(".heat").first).to_be_attached()
        expect(node.locator(".bar-recent").first).to_be_attached()
        expect(node.locator(".quantile-text").first).to_be_attached()
        plot = page.get_by_role("slider", name="Distribution: Reward", exact=True)
        expect(plot).to_have_attribute("aria-valuemax", str(len(heat["steps"]) - 1))
        plot.focus()
        page.keyboard.press("Home")
        _, low, middle, high = (
            float(each) for each in re.findall(r"[\d.]+(?=[,:]|$)", plot.get_attribute("aria-valuetext") or "")[-4:]
        )
        assert low == 0.5
        assert 1.1 < middle < 1.7 < high <= 2.0


def test_an_earlier_run_is_a_grey_line(browser: Browser, served: Served) -> None:
    """Under each curve that both have, at the same steps; its name, length and verdict stand above the curves."""
    run = earlier.of_page(documents.broken()).as_json()
    served.data = documents.healthy()
    with opened(browser, served.url) as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Fine")
        assert found.page.locator("path.line.earlier").count() == 0
        expect(found.page.locator("#earlier")).to_have_text("")
    served.data["history"]["earlier"] = run
    with opened(browser, served.url) as found:
        tile = found.page.locator("#curves-list .tile", has_text="KL").first
        expect(tile.locator("path.line.earlier")).to_have_attribute("d", re.compile("M.+L"))
        expect(found.page.locator("#earlier")).to_have_text(f"Gray: {NAME}, {run['step']} steps (Act)")
        tile.locator(".plot").focus()
        found.page.keyboard.press("Home")
        kl = next(each for each in run["curves"] if each["labels"] == {"signal": "kl"})
        expect(tile.locator(".readout")).to_contain_text(f", gray {kl['values'][0]:.4g}")
        assert found.complaints == []


def test_completions_are_text(browser: Browser, served: Served) -> None:
    """Shown only where somebody has asked for them; no markup runs, and axe-core finds nothing to complain of."""
    with opened(browser, served.url) as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Fine")
        expect(found.page.locator("#completions")).to_be_hidden()
    one = {"prompt": HOSTILE, "completion": f"first\n{HOSTILE}", "reward": 1.5, "rewards": {"a": 1.0, HOSTILE: 0.5}}
    kinds = {"best": [one], "worst": [{**one, "reward": "NaN"}], "last": [one, one]}
    served.data["completions"] = {"version": 1, "most": 2, "step": 12, **kinds}
    for width, scheme in SIZES:
        with opened(browser, served.url, width=width, scheme=scheme) as found:
            shown = found.page.locator("#completions")
            expect(shown.locator("h2")).to_have_text("Completions of step 12")
            expect(shown.locator("li")).to_have_count(4)
            expect(shown.locator("li > pre").first).to_contain_text("first\n<script>alert(1)</script>")
            expect(shown.locator("li b").nth(1)).to_have_text("NaN")
            shown.locator("summary").first.click()
            expect(shown.locator("details pre").first).to_be_visible()
            assert shown.locator("img, script").count() == 0
            assert not set(shown.inner_text()) & set("\u202e\u200f")
            assert found.page.evaluate("document.documentElement.scrollWidth") <= width
            found.assert_sound()
            assert found.complaints == []


def test_the_verdict_has_its_curve_and_its_steps(browser: Browser, served: Served) -> None:
    """The signal that is wrong, with the step since which it is; each command with this address, to be copied."""
    served.data = documents.broken()
    verdict, cause = served.data["status"]["verdict"], served.data["status"]["conditions"][0]
    assert cause["name"] == verdict["conditions"][0] == "nonfinite_value_loss"
    with opened(browser, served.url, permissions=["clipboard-read", "clipboard-write"]) as found:
        page = found.page
        expect(page.locator("#verdict-figure figcaption")).to_have_text("Value loss")
        expect(page.locator("#verdict-figure .since-text")).to_have_text(f"since step {cause['since']}")
        expect(page.locator("#verdict-figure .hole")).to_have_count(1)
        expect(page.locator("#verdict-steps > li")).to_have_count(len(verdict["steps"]))
        [command] = [step["command"] for step in verdict["steps"] if step["command"]]
        expected = command.replace("{address}", served.url.rstrip("/"))
        expect(page.locator("#verdict-steps .command")).to_have_text(expected)
        page.locator("#verdict-steps button").click()
        expect(page.locator("#verdict-steps button")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == expected
        assert page.locator("#verdict-runbook a").get_attribute("href") == f"runbooks/{cause['alert']}"


def test_the_timeline_keeps_what_is_over(browser: Browser, served: Served) -> None:
    """A bar for each alert, as long as it lasted; checkpoints; a click reads all curves at that step."""
    served.data = documents.broken()
    conditions, marks = served.data["status"]["conditions"], served.data["history"]["marks"]
    assert [mark["kind"] for mark in marks] == ["checkpoint"] * 8
    over = [each for each in conditions if each["standing"] == "over"]
    assert over
    with opened(browser, served.url) as found:
        page = found.page
        names = [f"{each['alert']}: {each['subject']}" if each["subject"] else each["alert"] for each in conditions]
        expect(page.locator(".bar-name")).to_have_text([name[:60] for name in names])
        expect(page.locator(".mark-checkpoint")).to_have_count(len(marks))
        strip = page.get_by_role("slider", name="Timeline")
        strip.focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        expect(strip).to_have_attribute("aria-valuetext", re.compile("^step 2: "))
        expect(page.locator(".tile .readout").first).to_contain_text("step 2: ")

        box = strip.bounding_box()
        assert box is not None
        at = 4 + (over[0]["step"] - 1) / (STEPS - 1) * (box["width"] - 8)
        strip.click(position={"x": at, "y": 20})
        expect(strip).to_have_attribute("aria-valuetext", re.compile(over[0]["alert"]))
        page.mouse.move(5, 5)
        expect(page.locator(".pinned")).to_have_count(1)
        expect(page.locator(".tile .readout").first).to_contain_text(f"step {over[0]['step']}: ")

        expect(page.locator("#alerts-title")).to_have_text(f"{len(conditions) - 1} more followed")
        expect(page.locator("#alerts-list")).not_to_be_visible()
        page.locator("#alerts-title").click()
        expect(page.locator("#alerts-list > li")).to_have_count(len(conditions))


def test_whoever_has_to_go_there_knows_where(browser: Browser, served: Served) -> None:
    """The machine, the process, since when and for how long."""
    status = served.data["status"]
    status["process"] = {"host": "gpu-07", "pid": 4711}
    status["run"]["started"] = status["time"] - 121
    with opened(browser, served.url) as found:
        facts = found.page.locator("#facts")
        expect(facts).to_contain_text("gpu-07, process 4711")
        expect(facts).to_contain_text(re.compile(r"started \w+ \d+, 2026"))
        expect(facts).to_contain_text("running for 2 min 1 s")


def test_motion_is_reduced_where_that_is_asked_for(browser: Browser, served: Served) -> None:
    """Nothing pulses."""
    for motion, expected in (("no-preference", "pulse"), ("reduce", "none")):
        with opened(browser, served.url, reduced_motion=motion) as found:
            expect(found.page.locator("#link-text")).to_have_text("live")
            assert found.page.evaluate("getComputedStyle(document.querySelector('.dot')).animationName") == expected


def test_few_questions_are_asked(watched: Watched, served: Served) -> None:
    """Two seconds lie between two of them, and the curves are asked for once in five: between, the page goes on."""
    served.asked.clear()
    status = eventually(lambda: asked if len(asked := served.times("/api/status")) >= 5 else None)

    assert status[4] - status[0] > 4 * 1.5
    assert len([each for each in served.times("/api/history") if each < status[4]]) <= 1


SPOKEN = {"vi-VN": ("vi", "Cần xử lý", "Có đang học không?"), "zh-CN": ("zh", "需处理", "在学习吗？")}  # noqa: RUF001


def _broken(exporter: Exporter) -> None:
    """A run whose reward is NaN in its fourth step."""
    for step in range(1, 5):
        exporter.log({"reward": math.nan if step == 4 else 0.5 * step, "kl": 0.01, "learning_rate": 1e-6}, step=step)


@pytest.mark.parametrize("locale", SPOKEN)
def test_the_language_of_the_browser(browser: Browser, exporter: Exporter, locale: str) -> None:
    """The page and what it asks for; helps are marked as English. Nothing is wider than the screen for it."""
    code, word, title = SPOKEN[locale]
    say = language(code)
    _broken(exporter)
    for width, scheme in SIZES:
        with opened(browser, f"{exporter.url}/", width=width, scheme=scheme, locale=locale) as found:
            expect(found.page.locator("#verdict-word")).to_have_text(word)
            expect(found.page.locator("html")).to_have_attribute("lang", {"zh": "zh-Hans"}.get(code, code))
            expect(found.page.locator(".card h2").first).to_have_text(title)
            expect(found.page.locator("#verdict-text")).to_contain_text(say("A reward is NaN or infinite."))
            expect(found.page.locator("#timeline-title")).to_have_text(say("Timeline"))
            assert say("errors") in found.page.locator(".card .figure .unit").all_inner_texts()
            expect(found.page.locator("#verdict-steps li").first).to_contain_text(say("Stop the run."))
            expect(found.page.locator("#links a").last).to_have_text(say("Documentation"))
            assert NAMED["rl_reward_mean"].help in found.page.locator("#rows .help[lang=en]").all_inner_texts()
            for part in found.page.locator("[data-t]").all():
                name = part.get_attribute("data-t") or ""
                assert part.evaluate("node => node.textContent") == say(STRINGS[name])
            found.assert_sound()


def test_another_language_can_be_chosen(browser: Browser, exporter: Exporter) -> None:
    """It is kept, and stands in the address, which goes before what is kept."""
    _broken(exporter)
    with opened(browser, f"{exporter.url}/", locale="fr-FR") as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Act")
        assert found.page.locator("#language option").all_inner_texts() == ["English", "Tiếng Việt", "简体中文"]
        found.page.locator("#language").select_option("zh")
        expect(found.page.locator("#verdict-word")).to_have_text("需处理")
        assert found.page.url.endswith("#lang=zh")
        found.page.goto("about:blank")
        found.page.goto(f"{exporter.url}/")
        expect(found.page.locator("#verdict-word")).to_have_text("需处理")
        found.page.goto("about:blank")
        found.page.goto(f"{exporter.url}/#lang=vi")
        expect(found.page.locator("#verdict-word")).to_have_text("Cần xử lý")
        found.page.goto("about:blank")
        found.page.goto(f"{exporter.url}/#lang=constructor")
        expect(found.page.locator("#verdict-word")).to_have_text("需处理")
        assert [each for each in found.complaints if each != "about:blank"] == []


def test_a_recorded_run_opens_from_a_disk(browser: Browser, tmp_path: Path, data: Path) -> None:
    """One file, without a server: the same page, that asks for nothing and links to nothing that is not there.

    Its language is that of the report, whatever the browser's: its texts are in that one alone.
    """
    file = tmp_path / "run.html"
    recorded = str(data / "runs/ppo-value_nan-0.jsonl")
    assert main(["report", recorded, "-o", str(file), "--language", "vi"]) == 0
    say = language("vi")
    with opened(browser, file.as_uri(), locale="zh-CN") as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Cần xử lý")
        expect(found.page.locator("html")).to_have_attribute("lang", "vi")
        expect(found.page.locator("#language")).to_be_hidden()
        expect(found.page.locator(".tile .line").first).to_be_attached()
        expect(found.page.locator("#link-text")).to_contain_text(say(STRINGS["link.recorded"]).split("{")[0])
        assert found.page.locator("#links a").all_inner_texts() == [say("Documentation")]
        assert found.complaints == []
