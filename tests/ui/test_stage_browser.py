"""The stage on a screen, without a server: as an exported page will have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specviz.config import RunSettings
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started, story

pytestmark = pytest.mark.browser

OpenStage = Callable[..., Any]
HOSTILE = (
    "<img src=x onerror=window.__hurt=1>", "${window.__hurt=1}", "{{x}}", "\\u0041", "</script><script>window.__hurt=1</script>",
    "<|im_end|>", "**x**", "مرحبا بالعالم", "👩‍👩‍👧‍👦", "漢字かな", "W" * 300, "\tif x:\n",
)  # fmt: skip


PICTURE = """() => {
    const drawn = (node) => node.nodeType === Node.TEXT_NODE ? node.data : [
        node.localName,
        [...node.attributes].map((a) => `${a.name}=${a.value}`).sort(),
        [...node.childNodes].map(drawn),
    ];
    return JSON.stringify(drawn(document.querySelector(".sv-body")));
}"""


def picture(page: Any) -> str:
    """Everything that is drawn, but for the transport and the line about the source."""
    return page.evaluate(PICTURE).replace("the recorded run", "this run")


def moment(page: Any) -> int:
    return int(page.get_attribute(".sv-stage", "data-moment"))


def hostile_run() -> list[dict[str, Any]]:
    """A run whose every text would like to be something else."""
    rounds, length = [], 9
    for number, text in enumerate(HOSTILE, start=1):
        event = round_event(
            number, length, [drafted(1, text, "accepted"), drafted(2, text, "rejected")], extra("correction", 3, text)
        )
        length += len(event["committed"])
        rounds.append(event)
    return [started(" ".join(HOSTILE)), prefill(), *rounds, finished(rounds)]


def test_text_is_shown_literally(open_stage: OpenStage):
    page = open_stage(hostile_run())
    page.evaluate("stage.commands.goToEnd()")
    shown = page.evaluate("[...document.querySelectorAll('.sv-chips .sv-token')].map((node) => node.textContent)")
    expected = [text.replace(" ", "·").replace("\t", "⇥").replace("\n", "⏎") for text in HOSTILE for _ in range(2)]
    assert shown == expected
    assert page.evaluate("window.__hurt") is None
    assert page.locator(".sv-stage img, .sv-stage script").count() == 0
    assert HOSTILE[-1].strip() in page.inner_text(".sv-prompt-text") or page.locator(".sv-prompt-chips").is_visible()


@pytest.mark.parametrize("width", [320, 360, 700, 1280, 2560])
def test_nothing_overflows_sideways(open_stage: OpenStage, width: int):
    page = open_stage(hostile_run(), viewport={"width": width, "height": 800})
    for number in (1, 5, 11):
        page.evaluate(f"stage.commands.scrub({number})")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(
            "[...document.querySelectorAll('.sv-body > section')].every((n) => n.scrollWidth <= n.clientWidth + 1)"
        )


def test_every_way_to_a_moment_shows_the_same_picture(open_stage: OpenStage):
    page = open_stage(story(8))
    last = int(page.get_attribute(".sv-stage", "data-moments"))
    forward = {}
    page.evaluate("stage.commands.reset()")
    while moment(page) < last:
        page.evaluate("stage.commands.stepForward()")
        forward[moment(page)] = picture(page)
    while moment(page) > min(forward):
        assert picture(page) == forward[moment(page)]
        page.evaluate("stage.commands.stepBack()")
    for number in (3, 8, 1):
        page.evaluate(f"stage.commands.scrub({number})")
        assert picture(page) == forward[moment(page)]


def test_a_live_run_ends_on_the_picture_of_its_recording(open_stage: OpenStage):
    events = story(8)
    recorded = open_stage(events)
    recorded.evaluate("stage.commands.goToEnd()")
    live = open_stage([], kind="live")
    for event in events:
        live.evaluate("(event) => stage.take([event])", event)
    live.evaluate("stage.end()")
    assert moment(live) == moment(recorded)
    assert picture(live) == picture(recorded)


def test_the_keyboard_does_everything(open_stage: OpenStage):
    page = open_stage(story(6))
    page.locator(".sv-stage").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_attribute(".sv-stage", "data-beat") == "draft"
    page.keyboard.press("ArrowRight")
    assert page.get_attribute(".sv-stage", "data-beat") == "verify"
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert (page.get_attribute(".sv-stage", "data-round"), page.get_attribute(".sv-stage", "data-beat")) == (
        "2",
        "commit",
    )
    page.keyboard.press("Shift+ArrowLeft")
    assert page.get_attribute(".sv-stage", "data-round") == "1"
    page.keyboard.press("End")
    assert page.get_attribute(".sv-stage", "data-round") == "6"
    page.keyboard.press("Home")
    assert moment(page) == 0
    page.keyboard.press("Space")
    assert page.get_attribute(".sv-stage", "data-player") == "playing"
    page.keyboard.press("Space")
    assert page.get_attribute(".sv-stage", "data-player") == "paused"


def test_keys_outside_the_stage_or_in_its_controls_are_left_alone(open_stage: OpenStage):
    page = open_stage(story(6))
    page.evaluate("document.body.append(Object.assign(document.createElement('input'), { id: 'other' }))")
    page.locator("#other").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert moment(page) == 0
    page.locator(".sv-scrub").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_attribute(".sv-stage", "data-round") == "1"
    assert page.get_attribute(".sv-stage", "data-beat") == "commit"


def test_playing_gets_to_the_end_by_itself(open_stage: OpenStage):
    page = open_stage(story(2))
    page.evaluate("stage.commands.speed(8)")
    page.click(".sv-toggle")
    page.wait_for_function(
        "(s => s.dataset.moment === s.dataset.moments && s.dataset.player === 'paused')(document.querySelector('.sv-stage'))"
    )


def test_every_status_has_a_glyph_and_a_word(open_stage: OpenStage):
    page = open_stage(story(6))
    seen = set()
    for number in range(1, 7):
        page.evaluate(f"stage.commands.scrub({number})")
        for verdict in page.locator(".sv-verdict").all():
            glyph, word = verdict.locator(".sv-glyph").inner_text(), verdict.locator(".sv-word").inner_text()
            assert glyph
            assert word == verdict.get_attribute("data-status")
            seen.add(word)
    assert seen == {"accepted", "rejected", "discarded", "cut"}


def test_the_roll_back_says_how_many(open_stage: OpenStage):
    page = open_stage(story(6))
    page.evaluate("stage.commands.scrub(2)")
    assert "roll back 2" in page.inner_text(".sv-rollback-label")
    assert "rolled back 2" in page.inner_text(".sv-sentence")
    page.evaluate("stage.commands.scrub(1)")
    assert page.locator(".sv-rollback").count() == 0


@pytest.mark.parametrize(("number", "last"), [(1, "·over"), (2, "no bonus"), (4, "no bonus"), (6, "not used")])
def test_every_position_of_the_pass_says_what_came_of_it(open_stage: OpenStage, number: int, last: str):
    page = open_stage(story(6))
    page.evaluate(f"stage.commands.scrub({number})")
    said = page.locator(".sv-target[data-shown]").all_inner_texts()
    assert len(said) == int(page.inner_text(".sv-band-label").split()[3])
    assert last in said[-1]
    if last == "no bonus":
        page.evaluate("stage.commands.stepBack(); stage.commands.stepBack()")
        assert page.get_attribute(".sv-stage", "data-beat") == "judge"
        assert last not in "".join(page.locator(".sv-target[data-shown]").all_inner_texts())


OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll(".sv-grid .sv-cell[data-shown] :is(.sv-token, .sv-word, .sv-glyph, .sv-probability, .sv-void), .sv-rollback-label")]
        .filter((n) => n.textContent.trim()).map((n) => [n, n.getBoundingClientRect()]);
    const label = document.querySelector(".sv-rollback-label").getBoundingClientRect();
    return boxes.filter(([n, b]) => !n.matches(".sv-rollback-label") && b.left < label.right && label.left < b.right && b.top < label.bottom - 1 && label.top < b.bottom - 1)
        .map(([n]) => n.textContent);
}"""


@pytest.mark.parametrize("width", [360, 640, 1280])
def test_the_roll_backs_label_covers_nothing(open_stage: OpenStage, width: int):
    alone = round_event(7, 60, [drafted(1, " alone", "rejected")], extra("correction", 2, " together"))
    page = open_stage([*story(6)[:8], alone], viewport={"width": width, "height": 1400}, reduced_motion="reduce")
    for number in (2, 4, 6, 7):
        page.evaluate(f"stage.commands.scrub({number})")
        assert page.evaluate(OVERLAPS) == []


def test_in_a_narrow_stage_the_player_stands_under_the_round(open_stage: OpenStage):
    page = open_stage(story(6), viewport={"width": 360, "height": 700}, reduced_motion="reduce")
    page.wait_for_selector(".sv-round + .sv-transport")
    page.evaluate("document.querySelector('.sv-round').scrollIntoView()")
    sentence, player = (page.locator(where).bounding_box() for where in (".sv-sentence", ".sv-transport"))
    assert sentence["y"] + sentence["height"] <= player["y"]
    page.set_viewport_size({"width": 1280, "height": 700})
    page.wait_for_selector(".sv-body + .sv-transport")


def test_the_target_cache_grows_is_hatched_and_is_cut(open_stage: OpenStage):
    page = open_stage(story(6))
    cells = "document.querySelector('.sv-cache').querySelectorAll('[data-kind=%s]').length"
    page.evaluate("stage.commands.scrub(1)")
    before = page.evaluate(cells % "kept")
    page.evaluate("stage.commands.stepForward(); stage.commands.stepForward()")
    assert (page.evaluate(cells % "kept"), page.evaluate(cells % "unverified")) == (before, 5)
    page.evaluate("stage.commands.stepForward(); stage.commands.stepForward()")
    assert (page.evaluate(cells % "unverified"), page.evaluate(cells % "cut")) == (0, 2)
    page.evaluate("stage.commands.stepForward()")
    assert (page.evaluate(cells % "kept"), page.evaluate(cells % "cut")) == (before + 3, 0)


def test_only_what_was_checked_and_measured_is_claimed(open_stage: OpenStage):
    proof = ".sv-proof dd[data-proof=%s]"
    page = open_stage(story(3, identity=False))
    assert page.inner_text(proof % "identity") == "not checked in the recorded run"
    assert page.inner_text(proof % "speedup") == "not measured"
    page = open_stage(story(3))
    assert page.inner_text(proof % "identity") == "yes, checked in the recorded run"
    assert "measured" in page.inner_text(proof % "speedup")
    page = open_stage(story(3), kind="live")
    assert page.inner_text(proof % "identity") == "yes, checked in this run"


@pytest.mark.parametrize(
    ("kind", "said", "run"),
    [
        ("recording", "This trace is incomplete: it ends before the run did.", "the recorded run"),
        ("live", "This run broke off: no more of it will come.", "this run"),
    ],
)
def test_a_run_that_breaks_off_says_so_and_promises_nothing(open_stage: OpenStage, kind: str, said: str, run: str):
    first, *others = story(3, identity=False)
    page = open_stage([{**first, "check": True}, *others[:3]], kind=kind)
    page.evaluate("stage.end()")
    assert page.inner_text(".sv-status") == said
    assert page.locator(".sv-proof dd").all_inner_texts() == [f"not checked in {run}", "not measured"]


@pytest.mark.parametrize("kind", ["recording", "live"])
def test_a_whole_run_is_not_said_to_be_broken_off(open_stage: OpenStage, kind: str):
    page = open_stage(story(3), kind=kind)
    page.evaluate("stage.end()")
    assert page.get_attribute(".sv-status", "data-phase") == "done"


def test_a_lookup_first_is_named_with_its_drafter(open_stage: OpenStage):
    head = {"kind": "draft_head", "name": "a-head", "lookup_first": {"max_ngram": 4, "min_ngram": 2}}
    page = open_stage([{**started(), "drafter": head}, *story(2)[1:]])
    assert page.inner_text(".sv-source-details").startswith("draft head, lookup first, k = ")


def test_what_was_refused_stands_over_the_run_and_pauses_it(open_stage: OpenStage):
    page = open_stage(story(6))
    page.evaluate("stage.play(); stage.refuse('run', '<i>No such k</i>')")
    assert page.get_attribute(".sv-stage", "data-player") == "paused"
    assert page.inner_text(".sv-status") == "Not run <i>No such k</i> Below, paused: the recording from before."
    page.evaluate("stage.play(); stage.refuse('link', 'No such round')")
    assert page.get_attribute(".sv-stage", "data-player") == "playing"
    assert page.inner_text(".sv-status") == "Not as linked No such round"


def long_draft_run() -> list[dict[str, Any]]:
    """Rounds of 16 drafts: the first rejected, the twelfth, none; and one without a draft."""
    rounds, length = [], 9
    for number, num_accepted in enumerate((0, 11, 16, None), start=1):
        statuses = [] if num_accepted is None else ["accepted"] * num_accepted + ["rejected"] + ["discarded"] * 16
        draft = [drafted(i, " counter", status) for i, status in enumerate(statuses[:16])]
        kind = "plain" if num_accepted is None else "bonus" if num_accepted == 16 else "correction"
        event = round_event(number, length, draft, extra(kind, 40, " increment"))
        length += len(event["committed"])
        rounds.append(event)
    settings = RunSettings(drafter="prompt_lookup", num_draft_tokens=16)
    return [started(settings=settings), prefill(), *rounds, finished(rounds)]


CUT_OFF_WORDS = """() => {
    const scroll = document.querySelector(".sv-grid-scroll").getBoundingClientRect();
    const words = [...document.querySelectorAll(".sv-verdict .sv-word")].map((n) => [n, n.getBoundingClientRect()]).filter(([n]) => getComputedStyle(n).opacity !== "0");
    const overlaps = words.flatMap(([, a], i) => words.slice(i + 1).filter(([, b]) => a.right > b.left + 1));
    return [overlaps.length, words.filter(([, a]) => a.right > scroll.right + 1).length];
}"""


@pytest.mark.parametrize("width", [1105, 1440])
def test_a_draft_of_sixteen_is_readable_and_all_in_sight(open_stage: OpenStage, width: int):
    page = open_stage(long_draft_run(), viewport={"width": width, "height": 900}, reduced_motion="reduce")
    for number, num_verdicts in ((1, 2), (2, 13), (3, 16)):
        page.evaluate(f"stage.commands.scrub({number})")
        assert page.locator(".sv-verdict").count() == num_verdicts
        assert page.evaluate(CUT_OFF_WORDS) == [0, 0]
        assert page.evaluate("(s => s.scrollWidth <= s.clientWidth)(document.querySelector('.sv-grid-scroll'))")
    page.evaluate("stage.commands.scrub(1)")
    assert page.locator(".sv-verdict[data-status=discarded] .sv-word").all_inner_texts() == ["discarded"]


@pytest.mark.parametrize("width", [600, 700])
def test_where_a_long_draft_does_not_fit_the_place_that_counts_is_in_sight(open_stage: OpenStage, width: int):
    page = open_stage(long_draft_run(), viewport={"width": width, "height": 900}, reduced_motion="reduce")
    scroll = page.locator(".sv-grid-scroll")
    for number in (2, 1, 3):
        page.evaluate(f"stage.commands.scrub({number})")
        box, extra_cell = scroll.bounding_box(), page.locator(".sv-kept[data-beat=land]").bounding_box()
        assert box["x"] <= extra_cell["x"] and extra_cell["x"] + extra_cell["width"] <= box["x"] + box["width"] + 1
    page.evaluate("stage.commands.scrub(4)")
    assert scroll.evaluate("(node) => node.scrollWidth <= node.clientWidth")
    nothing = page.locator(".sv-nothing-drafted").bounding_box()
    assert nothing["x"] < scroll.bounding_box()["x"] + width / 2


def test_a_round_without_a_draft_is_not_acted_out_as_one_with_guesses(open_stage: OpenStage):
    page = open_stage(story(6), reduced_motion="reduce")
    page.evaluate("stage.commands.scrub(2); stage.commands.stepForward()")
    assert page.inner_text(".sv-sentence") == "Nothing is drafted in this round."
    page.evaluate("stage.commands.stepForward()")
    assert page.inner_text(".sv-sentence") == "The target reads the newest token in one pass."
    page.evaluate("stage.commands.scrub(3); stage.commands.stepForward(); stage.commands.stepForward()")
    assert page.inner_text(".sv-sentence") == "The target reads all guesses in one pass."


def test_bytes_and_special_tokens_are_marked(open_stage: OpenStage):
    rounds = [
        round_event(1, 9, [drafted(1, "", "accepted", bytes="f09f98")], extra("bonus", 2, "😀", bytes="80")),
        round_event(2, 11, [], extra("plain", 3, "<|im_end|>", special=True)),
    ]
    page = open_stage([started(), prefill(), *rounds, finished(rounds, "eos")])
    page.evaluate("stage.commands.goToEnd()")
    forms = page.evaluate(
        "[...document.querySelectorAll('.sv-chips .sv-token')].map((n) => [n.textContent, n.dataset.form])"
    )
    assert forms == [["F0 9F 98", "partial"], ["😀", "partial"], ["<|im_end|>", "special"]]


def test_a_draft_that_is_still_being_drawn_is_shown(open_stage: OpenStage):
    page = open_stage([started(), prefill()], kind="live")
    drawn = {
        "type": "draft_token",
        "round": 1,
        "index": 0,
        "t": 0.1,
        "token": {"id": 5, "text": " quick", "draft_prob": 0.9},
    }
    page.evaluate("(event) => stage.take([event])", drawn)
    assert page.inner_text(".sv-draft .sv-token") == "·quick"
    assert page.get_attribute(".sv-stage", "data-beat") == "draft"


def test_stillness_is_honoured(open_stage: OpenStage):
    page = open_stage(story(3), reduced_motion="reduce")
    durations = page.evaluate(
        "[...document.querySelectorAll('.sv-stage *')].map((n) => getComputedStyle(n)).filter((s) => "
        "parseFloat(s.transitionDuration) > 0 || (s.animationName !== 'none' && parseFloat(s.animationDuration) > 0)).length"
    )
    assert durations == 0


def test_long_texts_come_in_without_a_freeze(open_stage: OpenStage):
    page = open_stage([started(), prefill()], kind="live")
    events = [event for event in story(2000) if event["type"] == "round"]
    longest = page.evaluate(
        """async (events) => {
            let longest = 0;
            for (let i = 0; i < events.length; i += 15) {
                const began = performance.now();
                stage.take(events.slice(i, i + 15));
                longest = Math.max(longest, performance.now() - began);
                await new Promise((resolve) => setTimeout(resolve, 0));
            }
            return longest;
        }""",
        events,
    )
    num_tokens = page.evaluate("parseInt(document.querySelector('.sv-text .sv-muted').textContent)")
    assert num_tokens == sum(len(event["committed"]) for event in events) > 5000
    assert longest < 1000  # on a busy machine; tens of milliseconds on an idle one


def test_a_saved_trace_holds_the_lines_as_they_came(open_page):
    from specviz.trace.reader import read_trace
    from specviz.ui.bundle import stage_script
    from specviz.ui.messages import RECORDING, message

    page = open_page()
    page.set_content("<!doctype html><meta charset=utf-8><body><div class=sv-root></div>")
    page.add_script_tag(content=stage_script() + "; window.SpecViz = SpecViz;")
    events = story(3, "<b>ü</b>")
    page.evaluate(
        """(text) => {
            const stage = SpecViz.createStage(document.querySelector(".sv-root"));
            const { lines } = SpecViz.protocol.parse(text);
            stage.begin("recording");
            stage.take(lines.map((line) => JSON.parse(line)), lines);
        }""",
        message("r", 0, events, source=RECORDING),
    )
    with page.expect_download() as download:
        page.click("[aria-label^='Save this run']")
    assert list(read_trace(download.value.path())) == events
