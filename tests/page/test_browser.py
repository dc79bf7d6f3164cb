"""The page in a real Chromium: runs in every state, as people and as screen readers meet them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from rlexporter import Exporter
from rlexporter.catalog import NAMED
from rlexporter.catalog.languages import language
from rlexporter.commands.main import main
from rlexporter.status.page import STRINGS
from rlexporter.status.page import page as page_text
from tests.page import documents
from tests.page.browser import Served, Watched, chromium, opened
from tests.page.documents import HOSTILE, RUNS

expect.set_options(timeout=600_000)

Json = dict[str, Any]
MINUS = "\u2212"
SIZES = [(1400, "light"), (390, "dark")]
EACH_RUN = [pytest.param(name, marks=() if name in ("broken", "empty") else pytest.mark.slow) for name in RUNS]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this file."""
    with chromium() as started:
        yield started


@pytest.fixture
def served() -> Iterator[Served]:
    """The page of a healthy run."""
    server = Served(documents.healthy())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def watched(browser: Browser, served: Served) -> Iterator[Watched]:
    """That page, open, with its first answer shown."""
    with opened(browser, served.url) as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Fine")
        yield found
        assert [each for each in found.complaints if "Failed to load resource" not in each] == []


def _serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("run", EACH_RUN)
def test_a_run_in_any_state_is_shown(browser: Browser, served: Served, run: str) -> None:
    """No complaint of the browser or of axe-core, no request elsewhere, nothing wider than the screen."""
    served.data = RUNS[run]()
    verdict = served.data["status"]["verdict"]
    for width, scheme in SIZES:
        with opened(browser, served.url, width=width, scheme=scheme) as found:
            expect(found.page.locator("html")).to_have_attribute("data-word", verdict["word"])
            expect(found.page.locator("#links a").first).to_be_visible()
            if run != "hostile":
                assert found.page.locator("#verdict-text").inner_text() == verdict["text"]
            assert _serious(found.page) == []
            assert found.page.evaluate("document.documentElement.scrollWidth") <= width
            assert found.complaints == []


def test_numbers_are_those_of_the_document(browser: Browser, served: Served) -> None:
    """The full number is in the title of each, and what is read is the same to three digits at least."""
    served.data = documents.broken()
    status = served.data["status"]
    with opened(browser, served.url) as found:
        expect(found.page.locator("#rows tr")).to_have_count(len(status["series"]))
        shown = found.page.eval_on_selector_all(
            ".card .figure .number", "all => all.map((n) => [n.title, n.textContent])"
        )
        rows = found.page.eval_on_selector_all("#rows td.value", "all => all.map((n) => [n.title, n.textContent])")
        rewards = found.page.eval_on_selector_all(".reward-mean", "all => all.map((n) => [n.title, n.textContent])")

    mains = [
        main["value"]
        for card in status["cards"]
        for main in sorted(card["main"], key=lambda main: main["value"] != "NaN")  # what is wrong comes first
    ]
    for expected, read in (
        (mains, shown),
        ([each["value"] for each in status["series"]], rows),
        ([each["mean"] for each in status["rewards"]], rewards),
    ):
        assert [float(title) for title, _ in read] == pytest.approx([float(each) for each in expected], nan_ok=True)
        for title, text in read:
            assert float(text.replace(MINUS, "-").replace(",", "")) == pytest.approx(
                float(title), rel=5e-3, nan_ok=True
            )


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
    news["status"]["run"].update(name="demo-grpo-11897", step=413)
    served.data = news

    expect(page.locator("#step")).to_have_text("step 413 of 600")
    expect(page.locator("#verdict-word")).to_have_text("Act")
    expect(page.locator("#news")).to_have_text(f"Verdict: Act. {news['status']['verdict']['text']}")
    expect(page.locator(".hole")).to_have_count(2)
    assert page.title() == "Act: demo-grpo-11897"
    assert page.evaluate("window.same && document.activeElement.id") == "search"


def test_a_process_that_is_gone_is_said(watched: Watched, served: Served) -> None:
    """Since when, and which step was seen last; and it goes on by itself when it answers again."""
    page = watched.page
    served.stop()
    expect(page.locator("#verdict-word")).to_have_text("Act")
    expect(page.locator("#verdict-text")).to_contain_text("last seen at step 412")
    expect(page.locator("#link-text")).to_contain_text("not answering since")
    expect(page.locator("#verdict-more")).to_contain_text("Nothing is wrong with this run")
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
    verdict = served.data["status"]["verdict"]
    (summary,) = {x["summary"] for x in served.data["status"]["conditions"] if x["name"] == verdict["conditions"][0]}
    verdict["text"] = f"{summary} It began in step 380."
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


def test_an_answer_that_is_refused_is_said(watched: Watched, served: Served) -> None:
    """A token that was changed, say."""
    served.status = 401
    expect(watched.page.locator("#link-text")).to_contain_text("answers with status 401")


def test_the_keyboard_reaches_all_of_it(watched: Watched) -> None:
    """The skip link comes first; curves are read out by arrows; a series is found, and opens to its curve."""
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"

    curve = page.get_by_role("slider", name="KL per token over the steps")
    curve.focus()
    page.keyboard.press("Home")
    expect(curve).to_have_attribute("aria-valuetext", _step(1))
    page.keyboard.press("ArrowRight")
    expect(curve).to_have_attribute("aria-valuetext", _step(2))
    expect(page.locator(".readout")).to_have_text(_step(2))

    page.get_by_label("Search by name").fill("kl beta")
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#found")).to_have_text(f"1 of {len(documents.healthy()['status']['series'])}")
    page.get_by_role("button", name="rl_kl_per_token").press("Enter")
    expect(page.locator(".opened .line").first).to_be_attached()
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


def _step(step: int) -> str:
    [curve] = [each for each in documents.healthy()["history"]["curves"] if each["series"] == "rl_kl_per_token"]
    value = curve["values"][step - 1]
    shown = f"{value:.4g}" if value >= 1e-3 else f"{value:.2e}".replace("e-0", f"e{MINUS}")
    return f"step {step}: {shown}"


def test_nan_breaks_the_line_and_marks_its_steps(browser: Browser, served: Served) -> None:
    """In the middle of a curve: two lines and a band between them."""
    data = documents.healthy()
    [curve] = [each for each in data["history"]["curves"] if each["series"] == "rl_reward_mean"]
    curve["values"][100:120] = ["NaN"] * 20
    served.data = data
    with opened(browser, served.url) as found:
        card = found.page.locator(".card", has_text="Is it learning?").locator(".first")
        expect(card.locator(".hole")).to_have_count(1)
        lines = card.locator(".line").evaluate_all("all => all.map((line) => line.getAttribute('d'))")
    assert [each.count("M") for each in lines] == [2, 2]
    assert all(
        math.isfinite(float(x))
        for each in lines
        for x in each.replace("M", " ").replace("L", " ").replace("h0", " ").split()
    )


def test_of_many_limits_those_are_said_that_are_met_first(browser: Browser, served: Served) -> None:
    """By side and severity; a warning that comes after the critical limit is none."""
    found = [(2.0, "warning", False), (9.0, "critical", False), (8.0, "warning", False), (91.0, "warning", False)]
    found += [(0.5, "critical", True), (0.2, "warning", True), (0.3, "warning", True)]
    data = documents.healthy()
    kl = data["status"]["cards"][1]["main"][0]
    kl["limits"] = [
        {"condition": f"c{i}", "severity": severity, "threshold": value, "below": below}
        for i, (value, severity, below) in enumerate(found)
    ]
    served.data = data
    with opened(browser, served.url) as watched:
        card = watched.page.locator(".card", has_text="Is it stable?").locator(".first .limits")
        expect(card).to_have_text("warning > 2 · critical > 9 · critical < 0.5")


def test_a_recorded_run_opens_from_a_disk(browser: Browser, tmp_path: Path) -> None:
    """One file, without a server: the same page, that asks for nothing and links to nothing that is not there."""
    file = tmp_path / "run.html"
    file.write_text(page_text(documents.broken()))
    with opened(browser, file.as_uri()) as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Act")
        expect(found.page.locator(".card .line").first).to_be_attached()
        expect(found.page.locator("#link-text")).to_contain_text("as it was at")
        assert found.page.locator("#links a").all_inner_texts() == ["Documentation"]
        assert found.complaints == []


def test_motion_is_reduced_where_that_is_asked_for(browser: Browser, served: Served) -> None:
    """Nothing pulses."""
    for motion, expected in (("no-preference", "pulse"), ("reduce", "none")):
        with opened(browser, served.url, reduced_motion=motion) as found:
            expect(found.page.locator("#link-text")).to_have_text("live")
            assert found.page.evaluate("getComputedStyle(document.querySelector('.dot')).animationName") == expected


def test_few_questions_are_asked(browser: Browser, served: Served) -> None:
    """The curves once in five answers: between them the page goes on by itself."""
    with opened(browser, served.url) as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Fine")
        served.asked.clear()
        found.page.wait_for_timeout(9000)
    status, history = (sum(each.startswith(f"/api/{name}") for each in served.asked) for name in ("status", "history"))
    assert 1 <= status <= 5
    assert history <= 1


SPOKEN = {"vi-VN": ("vi", "Cần xử lý", "Có đang học không?"), "zh-CN": ("zh", "需处理", "在学习吗？")}  # noqa: RUF001


def _broken(exporter: Exporter) -> None:
    """A run whose reward is NaN in its fourth step."""
    for step in range(1, 5):
        exporter.log({"reward": math.nan if step == 4 else 0.5 * step, "kl": 0.01, "learning_rate": 1e-6}, step=step)


@pytest.mark.parametrize("locale", SPOKEN)
def test_the_language_of_the_browser(browser: Browser, exporter: Exporter, locale: str) -> None:
    """The page and what it asks for, down to the small words; nothing is wider than the screen for it."""
    code, word, title = SPOKEN[locale]
    say = language(code)
    _broken(exporter)
    for width, scheme in SIZES:
        with opened(browser, f"{exporter.url}/", width=width, scheme=scheme, locale=locale) as found:
            expect(found.page.locator("#verdict-word")).to_have_text(word)
            expect(found.page.locator("html")).to_have_attribute("lang", {"zh": "zh-Hans"}.get(code, code))
            expect(found.page.locator(".card h2").first).to_have_text(title)
            expect(found.page.locator("#verdict-text")).to_contain_text(say("A reward is NaN or infinite."))
            expect(found.page.locator("#alerts-title")).to_have_text(say("Alerts that began"))
            expect(found.page.locator("#links a").last).to_have_text(say("Documentation"))
            assert say(NAMED["rl_reward_mean"].help) in found.page.locator("#rows .help").all_inner_texts()
            for part in found.page.locator("[data-t]").all():
                name = part.get_attribute("data-t") or ""
                assert part.evaluate("node => node.textContent") == say(STRINGS[name])
            assert _serious(found.page) == []
            assert found.page.evaluate("document.documentElement.scrollWidth") <= width
            assert found.complaints == []


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


def test_a_recorded_run_speaks_its_own_language(browser: Browser, tmp_path: Path, data: Path) -> None:
    """That of the report, whatever the browser's: its texts are in that one alone."""
    file = tmp_path / "run.html"
    recorded = str(data / "runs/ppo-value_nan-0.jsonl")
    assert main(["report", recorded, "-o", str(file), "--language", "vi"]) == 0
    with opened(browser, file.as_uri(), locale="zh-CN") as found:
        expect(found.page.locator("#verdict-word")).to_have_text("Cần xử lý")
        expect(found.page.locator("html")).to_have_attribute("lang", "vi")
        expect(found.page.locator("#language")).to_be_hidden()
        assert found.complaints == []
