"""The inspector, the cards and the glossary's bubbles on a screen: pointer, keyboard and touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specviz.glossary import term_for
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started, story
from tests.ui.long_runs import long_run, recorded
from tests.ui.sampled_runs import sampled_run, tops

pytestmark = pytest.mark.browser

OpenStage = Callable[..., Any]
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
HOSTILE = (
    "<img src=x onerror=window.__hurt=1>", "${window.__hurt=1}", "{{x}}", "</script><script>window.__hurt=1</script>",
    "مرحبا بالعالم", "👩‍👩‍👧‍👦", "\u202eabc", "W" * 300,
)  # fmt: skip
INSPECTOR = "dialog.sv-inspector"


def hostile_run() -> list[dict[str, Any]]:
    """Every text of it, in every list, would like to be something else."""
    rounds, length = [], 9
    for number, text in enumerate(HOSTILE, start=1):
        lists = {
            "draft_top": tops((2, text, 0.6), (3, text + "!", 0.2)),
            "target_top": tops((4, text, 0.7), (5, text, 0.1)),
        }
        throw = {"u": 0.9, "accept_prob": 0.1, "draft_prob_used": 0.6, "target_prob_used": 0.06}
        draft = [drafted(1, text, "accepted", **lists), drafted(2, text, "rejected", **lists, **throw)]
        said = extra(
            "correction", 4, text, target_top=lists["target_top"], residual_top=tops((4, text, 0.8)), residual_tail=0.2
        )
        rounds.append(round_event(number, length, [*draft, drafted(6, text, "discarded")], said))
        length += 2
    run = started(" ".join(HOSTILE))
    run["drafter"]["kind"] = HOSTILE[0]
    return [run, prefill(), *rounds, finished(rounds)]


def inspected(page: Any) -> str:
    return page.inner_text(".sv-inspected")


def open_sampled(open_stage: OpenStage, **options: Any) -> Any:
    page = open_stage(sampled_run(), **{"reduced_motion": "reduce", **options})
    page.evaluate("stage.commands.goToEnd()")
    return page


# ---- open, walk, close ----


def test_a_click_opens_it_and_escape_gives_the_focus_back(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-draft[data-status=rejected]")
    assert inspected(page) == "·jumps"
    page.keyboard.press("Escape")
    assert not page.locator(INSPECTOR).is_visible()
    assert page.evaluate("document.activeElement.dataset.token") == "1.1"


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["beside", "over"])
def test_the_keyboard_does_it_all(open_stage: OpenStage, viewport: dict[str, int]):
    page = open_sampled(open_stage, viewport=viewport)
    page.locator(".sv-chips [tabindex='0']").focus()
    page.keyboard.press("Enter")
    assert inspected(page) == "·leaps"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert inspected(page) == "·jumps"
    page.keyboard.press("ArrowRight")
    assert inspected(page) == "·over"
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert inspected(page) == "·leaps"
    moment = page.get_attribute(".sv-stage", "data-moment")
    page.keyboard.press("Escape")
    assert not page.locator(INSPECTOR).is_visible()
    assert page.evaluate("document.activeElement.dataset.token") == "1.extra"
    assert page.get_attribute(".sv-stage", "data-moment") == moment


def test_arrows_walk_over_the_text_and_not_through_time(open_stage: OpenStage):
    page = open_stage(story(6))
    page.evaluate("stage.commands.goToEnd()")
    page.locator(".sv-chips [tabindex='0']").focus()
    last = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") != last
    page.keyboard.press("Home")
    assert "quick" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowLeft")
    assert "quick" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == last
    assert page.locator(".sv-chips [tabindex='0']").count() == 1
    assert page.get_attribute(".sv-stage", "data-moment") == page.get_attribute(".sv-stage", "data-moments")


def test_when_its_token_is_gone_the_stage_has_the_focus(open_stage: OpenStage):
    page = open_stage(story(6))
    page.evaluate("stage.commands.scrub(3)")
    page.locator(".sv-chips [tabindex='0']").focus()
    page.evaluate("stage.commands.reset()")
    assert page.evaluate("document.activeElement.closest('.sv-stage') !== null")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute(".sv-stage", "data-moment") != "0"


def test_beside_the_stage_plays_on_and_the_inspector_stays(open_stage: OpenStage):
    page = open_stage(story(6))
    page.evaluate("stage.commands.scrub(2)")
    page.click(".sv-draft[data-status=rejected]")
    page.evaluate("stage.commands.scrub(5)")
    assert inspected(page) == "·cat"
    assert page.locator(".sv-draft[data-inspected]").count() == 0
    page.click(".sv-show-round")
    assert page.get_attribute(".sv-stage", "data-round") == "2"
    assert page.locator(".sv-draft[data-inspected]").count() == 1


def test_over_the_stage_it_is_a_dialog_that_the_rest_waits_for(open_stage: OpenStage):
    page = open_sampled(open_stage, viewport=NARROW)
    page.click(".sv-draft[data-status=rejected]")
    assert page.evaluate(f"document.querySelector('{INSPECTOR}').matches(':modal')")
    page.mouse.click(100, 20)  # beside the sheet
    assert not page.locator(INSPECTOR).is_visible()


@pytest.mark.parametrize("scrolled", ["0", "60", "9999"])
def test_the_text_stays_where_its_token_was_chosen(open_stage: OpenStage, scrolled: str):
    page = open_stage(long_run(120), reduced_motion="reduce")
    page.evaluate("stage.commands.goToEnd()")
    page.evaluate(f"document.querySelector('.sv-text-scroll').scrollTop = {scrolled}")
    page.wait_for_timeout(200)
    where = "window.chip.getBoundingClientRect().top - document.querySelector('.sv-text-scroll').getBoundingClientRect().top"
    spot = page.evaluate(
        """() => {
            const panel = document.querySelector(".sv-text-scroll").getBoundingClientRect();
            const boxOf = (chip) => chip.getBoundingClientRect();
            const isInside = (chip) => boxOf(chip).top > panel.top + 5 && boxOf(chip).bottom < panel.bottom - 5;
            window.chip = [...document.querySelectorAll(".sv-chips .sv-chip")].find(isInside);
            return [boxOf(window.chip).left + 5, boxOf(window.chip).top + 8];
        }"""
    )
    before = page.evaluate(where)
    page.mouse.click(*spot)
    page.wait_for_selector("dialog.sv-inspector[open]")
    page.wait_for_timeout(300)
    assert page.evaluate(where) == pytest.approx(before, abs=3)
    page.keyboard.press("Escape")
    page.wait_for_timeout(300)
    assert page.evaluate(where) == pytest.approx(before, abs=3)


def test_it_changes_places_with_the_width(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-draft[data-status=rejected]")
    assert not page.evaluate(f"document.querySelector('{INSPECTOR}').matches(':modal')")
    page.set_viewport_size(NARROW)
    page.wait_for_function(f"document.querySelector('{INSPECTOR}').matches(':modal')")
    assert inspected(page) == "·jumps"


def test_a_new_run_closes_it(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-draft[data-status=rejected]")
    page.evaluate("(events) => { stage.begin('recording'); stage.take(events); }", story(3))
    assert not page.locator(INSPECTOR).is_visible()


def test_a_token_of_the_prompt_has_a_card_and_nothing_to_look_into(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-prompt .sv-chip >> nth=1")
    assert not page.locator(INSPECTOR).is_visible()


def test_looking_leaves_no_trace_in_the_picture(open_stage: OpenStage):
    page = open_sampled(open_stage)
    before = page.evaluate("document.querySelector('.sv-body').outerHTML")
    page.click(".sv-draft[data-status=rejected]")
    page.keyboard.press("Escape")
    page.locator(".sv-stage").focus()
    assert page.evaluate("document.querySelector('.sv-body').outerHTML") == before


# ---- what it shows ----


def test_the_needle_stands_where_the_die_fell(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-draft[data-status=rejected]")
    bar, zone, needle = (
        page.locator(f".sv-inspector {name}").bounding_box() for name in (".sv-gauge", ".sv-gauge-zone", ".sv-needle")
    )
    share = lambda x: (x - bar["x"]) / bar["width"]  # noqa: E731
    assert share(zone["x"] + zone["width"]) == pytest.approx(0.138, abs=0.01)
    assert share(needle["x"] + needle["width"] / 2) == pytest.approx(0.612, abs=0.01)
    assert "no: rejected" in page.inner_text(".sv-part-die")


def test_both_distributions_stand_side_by_side(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-draft[data-status=rejected]")
    rows = page.locator(".sv-part-comparison .sv-rows > li").all_inner_texts()
    text = "\n".join(rows)
    assert len(rows) == 10  # 5 + 5, one in both, one of the question, and the tail
    assert "not in its top 5" in text and "all others" in text
    subject = page.locator(".sv-part-comparison [data-subject]")
    assert "0.700" in subject.inner_text() and "0.030" in subject.inner_text()
    widths = page.evaluate(
        "[...document.querySelectorAll('.sv-part-comparison [data-known][data-side=draft] .sv-side-bar')]"
        ".map((bar) => [bar.getBoundingClientRect().width, Number(bar.style.getPropertyValue('--p'))])"
    )
    scale = max(width / prob for width, prob in widths if prob > 0.3)
    assert all(width == pytest.approx(max(2, scale * prob), abs=1) for width, prob in widths)


def test_the_mask_is_causal(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.click(".sv-draft[data-status=rejected]")
    sees = page.evaluate(
        "[...document.querySelectorAll('.sv-mask-row:not(.sv-mask-heads)')].map((row) =>"
        " [...row.querySelectorAll('.sv-mask-cell')].map((cell) => cell.dataset.sees === '1'))"
    )
    assert sees == [[True] + [column <= row for column in range(5)] for row in range(5)]
    assert "one pass" in page.get_attribute(".sv-mask", "aria-label")


def test_the_round_in_hand_shows_die_ratio_and_residual_as_they_happen(open_stage: OpenStage):
    page = open_stage(sampled_run(), reduced_motion="reduce")
    page.evaluate("stage.commands.reset(); stage.commands.stepForward(); stage.commands.stepForward()")
    assert page.locator(".sv-verdict .sv-gauge >> visible=true").count() == 0
    page.evaluate("stage.commands.stepForward()")
    assert page.get_attribute(".sv-stage", "data-beat") == "judge"
    assert page.locator(".sv-die >> visible=true").all_inner_texts() == ["0.734 < 1.000", "0.612 ≥ 0.138"]
    assert "die < ratio?" in page.inner_text(".sv-grid")
    assert page.locator(".sv-residual >> visible=true").count() == 0
    page.evaluate("stage.commands.goToEnd()")
    assert "leaps" in page.inner_text(".sv-residual") and ".55" in page.inner_text(".sv-residual")


@pytest.mark.parametrize("name", ["01-weekdays", "02-early-exit", "03-temperature"])
def test_every_token_of_a_recording_can_be_looked_into(open_stage: OpenStage, name: str):
    page = open_stage(recorded(name))
    page.evaluate("stage.commands.scrub(1)")
    page.click(".sv-draft >> nth=0")
    walked = page.evaluate(
        """() => {
            const next = document.querySelector('[aria-label^="Next token"]');
            let count = 1;
            while (!next.hasAttribute("aria-disabled")) { next.click(); count += 1; }
            return count;
        }"""
    )
    rounds = [event for event in recorded(name) if event["type"] == "round"]
    assert walked == sum(len(event["draft"]) + bool(event["extra"]) for event in rounds)


# ---- cards and bubbles ----


def test_a_card_comes_with_the_pointer_and_blocks_nothing(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.hover(".sv-chips .sv-chip >> nth=0")
    page.wait_for_selector(".sv-card:popover-open")
    card = page.inner_text(".sv-card")
    assert "accepted" in card and "round 1, 1st of 4 drafted, position 9, id 11" in card and "0.520" in card
    assert page.evaluate("getComputedStyle(document.querySelector('.sv-card')).pointerEvents") == "none"
    page.mouse.move(5, 5)
    page.wait_for_selector(".sv-card:popover-open", state="detached")


def test_a_card_comes_with_the_focus_and_describes_its_token(open_stage: OpenStage):
    page = open_sampled(open_stage)
    page.locator(".sv-text-scroll").focus()
    for _ in range(3):  # the button of the prompt, the prompt, the text
        page.keyboard.press("Tab")
    page.wait_for_selector(".sv-card:popover-open")
    described = page.evaluate(
        "document.getElementById(document.activeElement.getAttribute('aria-describedby')).textContent"
    )
    assert "position" in described
    page.keyboard.press("Escape")
    assert page.locator(".sv-card:popover-open").count() == 0
    assert page.evaluate("document.activeElement.hasAttribute('aria-describedby')") is False


def test_what_has_not_happened_yet_has_no_card(open_stage: OpenStage):
    page = open_stage(story(3), reduced_motion="reduce")
    page.evaluate("stage.commands.stepForward()")
    assert page.locator(".sv-kept >> visible=true").count() == 0
    page.hover(".sv-draft >> nth=1")
    page.wait_for_selector(".sv-card:popover-open")
    assert "not judged yet" in page.inner_text(".sv-card")


TERMS_SHOWN = "[...document.querySelectorAll('.sv-term')].map((node) => node.dataset.term)"


def test_terms_explain_themselves_on_focus_in_the_glossarys_words(open_stage: OpenStage):
    page = open_sampled(open_stage)
    shown = set(page.evaluate(TERMS_SHOWN))
    assert {
        "k",
        "round",
        "alpha",
        "correction",
        "bonus",
        "rollback",
        "cache",
        "mean_tokens_per_round",
        "identity",
    } <= shown
    for name in sorted(shown):
        page.locator(f".sv-term[data-term={name}]").first.focus()
        assert page.inner_text(".sv-tip > span >> nth=0") == term_for(name).meaning
        assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == page.get_attribute(
            ".sv-tip", "id"
        )
    page.keyboard.press("Escape")
    assert page.locator(".sv-tip:popover-open").count() == 0


def test_terms_explain_themselves_to_a_finger(open_stage: OpenStage):
    page = open_sampled(open_stage, viewport=NARROW, has_touch=True)
    page.tap(".sv-term[data-term=alpha]")
    page.wait_for_selector(".sv-tip:popover-open")
    box = page.locator(".sv-tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    page.tap(".sv-sentence")
    page.wait_for_selector(".sv-tip:popover-open", state="detached")


def test_the_page_asks_the_glossary_for_what_it_shows_and_for_nothing_else(open_stage: OpenStage):
    page = open_sampled(open_stage)
    known = set(page.evaluate("Object.keys(SpecViz.glossary)"))
    kinds = set(page.evaluate("Object.keys(SpecViz.vocabulary.DRAFTERS)")) - {"none"}
    statuses, phases = (
        set(page.evaluate(f"Object.keys(SpecViz.vocabulary.{name})")) for name in ("STATUSES", "PHASES")
    )
    assert kinds | statuses | phases <= known


# ---- hostile text, widths, modes ----


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["beside", "over"])
def test_text_is_shown_literally_everywhere(open_stage: OpenStage, viewport: dict[str, int]):
    page = open_stage(hostile_run(), viewport=viewport, reduced_motion="reduce")
    for number, text in enumerate(HOSTILE, start=1):
        page.evaluate(f"stage.commands.scrub({number})")
        page.locator(".sv-draft[data-status=rejected]").focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        shown = page.evaluate("[...document.querySelectorAll('.sv-card .sv-token')].map((node) => node.textContent)")
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        assert page.locator(INSPECTOR).is_visible()
        literal = text.replace(" ", "·").replace("\u202e", "U+202E")
        assert shown == [literal]
        tokens = page.evaluate(
            "[...document.querySelectorAll('.sv-inspector .sv-token')].map((node) => node.textContent)"
        )
        assert tokens[0] == literal and set(tokens[1:]) <= {
            literal,
            literal + "!",
            "⏎",
            f"{HOSTILE[number - 2]}".replace(" ", "·").replace("\u202e", "U+202E"),
        }
        sheet = page.evaluate("(n => n.scrollWidth - n.clientWidth)(document.querySelector('.sv-inspector-sheet'))")
        assert sheet <= 0
        page.keyboard.press("Escape")
    assert page.evaluate("window.__hurt") is None
    assert page.locator(".sv-stage img, .sv-stage script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


@pytest.mark.parametrize("width", [360, 700, 1280, 2560])
def test_nothing_of_it_overflows_sideways(open_stage: OpenStage, width: int):
    page = open_sampled(open_stage, viewport={"width": width, "height": 900})
    page.click(".sv-draft[data-status=rejected]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overflowing = page.evaluate(
        "[...document.querySelectorAll('.sv-part, .sv-inspector-head')].filter((n) => n.scrollWidth > n.clientWidth + 1).length"
    )
    assert overflowing == 0


CONTRAST = """() => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const [r, g, b] = numbers(colour).slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const groundOf = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if ((numbers(colour)[3] ?? 1) > 0) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const texts = [...document.querySelectorAll(".sv-inspector *, .sv-card *")].filter((node) =>
        !node.closest("[data-unused]") && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
    return texts.map((node) => {
        const [a, b] = [light(getComputedStyle(node).color), light(groundOf(node))].sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), node.className, node.textContent.slice(0, 20)];
    }).sort((a, b) => a[0] - b[0])[0];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_its_text_has_contrast(open_stage: OpenStage, theme: str):
    page = open_sampled(open_stage)
    page.evaluate("(theme) => SpecViz.dom.setData(stage.node, 'theme', theme)", theme)
    page.hover(".sv-chips .sv-chip >> nth=0")
    page.wait_for_selector(".sv-card:popover-open")
    page.click(".sv-draft[data-status=rejected]")
    least = page.evaluate(CONTRAST)
    assert least[0] >= 4.5, least
