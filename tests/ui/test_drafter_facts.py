"""What the stage says of a draft head and a draft model: the same words as the terminal, and only what the trace tells."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from specviz.trace.sentences import drafter_facts
from tests.ui.conftest import wait_for_stage
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started

CUT = {"cut_vocab_size": 8192, "vocab_size": 49152, "shared_weight_bytes": 28311552}
HEAD = {
    "kind": "draft_head", "name": "a-head", "precision": "int8", "feature_layers": [8, 18, 30], "num_params": 5202432,
    "weight_bytes": 10_000_000, "kv_bytes_per_position": 1536, **CUT,
}  # fmt: skip
MODEL = {
    "kind": "draft_model", "name": "a-model", "precision": "float32", "num_layers": 3, "num_params": 10_600_000,
    "weight_bytes": 61_000_000, "kv_bytes_per_position": 4608, **CUT, "shared_weight_bytes": 0,
}  # fmt: skip
TIED_HEAD = {**HEAD, "says_context": True}
HUB_MODEL = {"kind": "draft_model", "name": "x/y", "dtype": "bfloat16", "num_layers": 30, "weight_bytes": 270_000_000}
STRANGE = [
    {**HEAD, "feature_layers": value, "cut_vocab_size": "many", "weight_bytes": -1}
    for value in (None, [], "8", [8, "x"], [True], [1.5])
] + [{**HEAD, "says_context": value} for value in (False, "yes", 1, None)]
OTHERS = [
    {"kind": "prompt_lookup", "name": "prompt lookup"},
    {"kind": "none", "name": "none"},
    {"kind": "new", "name": "?"},
]


def head_run(**correction: Any) -> list[dict[str, Any]]:
    """Two rounds of a draft head: a correction, then a bonus."""
    rounds = [
        round_event(1, 9, [drafted(1, " a", "accepted"), drafted(2, " b", "rejected"), drafted(3, " c", "discarded")],
                    extra("correction", 501, " Zephyr", **correction)),
        round_event(2, 11, [drafted(4, " d", "accepted"), drafted(5, " e", "accepted")], extra("bonus", 6, " f")),
    ]  # fmt: skip
    for event in rounds:
        before = event["cache"]["draft"]["before"] - 1
        num_read, num_drafted = 1 + (event["round"] == 2), len(event["draft"])
        after = before + num_read
        event["cache"]["draft"] = {
            "before": before,
            "peak": after + num_drafted - 1,
            "after": after,
            "bytes": after * 1536,
        }
    return [started(drafter="draft_head") | {"drafter": HEAD}, prefill(), *rounds, finished(rounds)]


@pytest.mark.parametrize(
    "drafter", [HEAD, TIED_HEAD, MODEL, HUB_MODEL, *STRANGE, *OTHERS], ids=lambda each: each["kind"]
)
def test_the_stage_and_the_terminal_say_the_same_of_a_drafter(drafter, in_node):
    assert in_node("return SpecViz.drafterFacts.texts(data)", drafter) == drafter_facts(drafter)


def test_a_head_says_what_it_reads_what_it_can_say_and_what_it_takes():
    assert "; ".join(drafter_facts(HEAD)) == (
        "reads the target's layers 8, 18 and 30; trained for this target; can say 8,192 of 49,152 tokens; "
        "int8 weights, 10.0 MB (measured), beside the target's embedding, which it shares"
    )


def test_a_head_that_can_say_its_text_says_so():
    assert "can say 8,192 of 49,152 tokens and those of the text so far" in drafter_facts(TIED_HEAD)
    assert not any("so far" in fact for drafter in (HEAD, *STRANGE) for fact in drafter_facts(drafter))


def test_a_draft_model_of_the_family_is_told_from_any_other():
    assert drafter_facts(MODEL)[0] == "a smaller model of the same family: 3 layers, 10.6 million parameters"
    assert drafter_facts(MODEL)[-1] == "float32 weights, 61.0 MB (measured), with a copy of the target's embedding"
    assert drafter_facts(HUB_MODEL) == ["a model of its own: 30 layers", "bfloat16 weights, 270.0 MB (measured)"]


def test_many_layers_are_counted():
    assert drafter_facts({**HEAD, "feature_layers": list(range(100))})[0] == (
        "reads the target's states after 100 of its layers"
    )


@pytest.mark.parametrize(
    ("prob", "drafter", "is_told"),
    [(0, HEAD, True), (1e-9, HEAD, False), (None, HEAD, False), (0, HUB_MODEL, False), (0, OTHERS[0], False)],
)
def test_why_a_token_is_never_drafted_is_told_only_where_the_trace_knows(prob, drafter, is_told, in_node):
    given = {"drafter": drafter, "token": extra("correction", 501, " Zephyr", draft_prob=prob)}
    said = in_node("return SpecViz.drafterFacts.whyNeverDrafted(data.drafter, data.token)", given)
    assert said == (
        "The drafter could not have said ' Zephyr': it is not among the 8,192 of 49,152 tokens that it knows, so its "
        "draft probability is 0."
        if is_told
        else ""
    )


def test_a_head_that_can_say_its_text_could_not_say_what_does_not_stand_in_it(in_node):
    given = {"drafter": TIED_HEAD, "token": extra("correction", 501, " Zephyr", draft_prob=0)}
    assert in_node("return SpecViz.drafterFacts.whyNeverDrafted(data.drafter, data.token)", given) == (
        "The drafter could not have said ' Zephyr': it is not among the 8,192 of 49,152 tokens that it knows and does not "
        "stand in the text before, so its draft probability is 0."
    )


@pytest.mark.parametrize("key", ["1.extra", "1.1"])
def test_what_the_drafter_found_of_a_correction_stands_in_its_row(key, in_node):
    body = """
        const state = SpecViz.reducer.fold(data.events);
        return SpecViz.inspection.inspect(state, SpecViz.inspection.addressOf(data.key)).comparison;
    """
    comparison = in_node(body, {"events": head_run(draft_prob=0.0), "key": key})
    assert comparison["correction"]["id"] == 501
    assert [row["draft"] for row in comparison["rows"] if row["id"] == 501] == [0]
    assert in_node(body, {"events": head_run(draft_prob=0.0), "key": "2.0"})["correction"] is None


def test_entries_of_the_targets_states_stay_and_those_of_guesses_go(in_node):
    body = """
        const frame = { round: { event: data.event }, progress: data.progress };
        return SpecViz.cachesView.momentOfHead(data.event.cache, frame, {});
    """
    none = {"drafted": 0, "verified": False, "judged": 0, "rolledBack": False, "joined": False}
    event = head_run()[2]
    use = event["cache"]["draft"]

    def at(**progress: Any) -> tuple[int, int, int]:
        moment = in_node(body, {"event": event, "progress": {**none, **progress}})
        return moment["kept"], moment["unverified"], moment["cut"]

    assert at() == (use["before"], 0, 0)
    assert at(drafted=1) == (use["after"], 0, 0)
    assert at(drafted=3, verified=True) == (use["after"], 2, 0)
    assert at(drafted=3, verified=True, rolledBack=True) == (use["after"], 0, 2)
    assert at(drafted=3, verified=True, joined=True) == (use["after"], 0, 0)


@pytest.mark.browser
def test_a_draft_head_is_drawn_with_its_entries_and_its_facts(open_stage):
    events = head_run(draft_prob=0.0)
    hostile = copy.deepcopy(events)
    hostile[0]["drafter"]["precision"] = "<img src=x onerror=alert(1)>"
    page = open_stage(hostile, reduced_motion="reduce")
    facts = page.locator(".sv-drafter-facts")
    assert facts.inner_text().startswith("Reads the target's layers 8, 18 and 30; trained for this target")
    assert "<img src=x" in facts.inner_text() and page.locator(".sv-drafter-facts img").count() == 0
    assert page.locator(".sv-cache-name").nth(1).inner_text() == "Draft head"
    assert "entries" in page.locator(".sv-cache").nth(1).inner_text()
    page.locator(".sv-drafter-facts [data-term=cut_vocab_size]").hover()
    page.wait_for_function("document.querySelector('.sv-tip').textContent.includes('cut vocabulary')")
    page.locator(".sv-stage").focus()
    page.keyboard.press("End")
    page.locator(".sv-chips [data-token='1.extra']").click()
    assert "could not have said ' Zephyr'" in page.inner_text(".sv-part-comparison")


@pytest.mark.browser
def test_the_draft_weights_reach_the_run_and_the_address(open_page, served):
    page = open_page(reduced_motion="reduce")
    page.goto(f"{served.url}?drafter=draft_head")
    wait_for_stage(page, source="recording")
    page.get_by_role("button", name="More settings").click()
    page.locator("#sv-draft-precision").get_by_label("float32").check()
    page.wait_for_function("location.search.includes('draft_precision=float32')")
    page.locator("#sv-prompt textarea").fill("Q")
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done")
    assert [request.draft_precision for request in served.requests] == ["float32"]
    page.get_by_label("Prompt lookup", exact=True).check()
    page.wait_for_function("!document.querySelector('#sv-draft-precision')")
