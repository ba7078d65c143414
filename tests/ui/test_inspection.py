"""What the inspector and the cards say of a token, without a screen: pure functions over the state, in node."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started, story
from tests.ui.long_runs import recorded
from tests.ui.sampled_runs import sampled_run

InNode = Callable[..., Any]

INSPECT = """
    const state = SpecViz.reducer.fold(data.events);
    const seen = SpecViz.inspection.inspect(state, SpecViz.inspection.addressOf(data.key));
    return seen && { ...seen, words: SpecViz.inspectionWords.verdictSentence(seen), where: SpecViz.inspectionWords.placeOf(seen),
        pass: { ...seen.pass, words: SpecViz.inspectionWords.passDescription(seen.pass) } };
"""


@pytest.fixture
def inspect(in_node: InNode) -> Callable[..., Any]:
    """inspect(events, key): what the inspector knows of a token."""
    return lambda events, key: in_node(INSPECT, {"events": events, "key": key})


def row_of(inspection: dict[str, Any], token_id: int) -> dict[str, Any]:
    return next(row for row in inspection["comparison"]["rows"] if row["id"] == token_id)


# ---- verdicts ----


def test_a_die_that_fell_too_high_rejects(inspect):
    seen = inspect(sampled_run(), "1.1")
    verdict = seen["verdict"]
    assert (verdict["kind"], verdict["u"], verdict["chance"], verdict["passed"]) == ("sampled", 0.612, 0.138, False)
    assert verdict["ratio"] == pytest.approx(0.102 / 0.74)
    assert seen["words"] == "The die fell on 0.612, not below the ratio 0.138: rejected."
    assert seen["where"] == "round 1, 2nd of 4 drafted, position 10"


def test_a_ratio_above_one_is_shown_as_it_is_and_passes(inspect, in_node: InNode):
    verdict = inspect(sampled_run(), "1.0")["verdict"]
    assert verdict["ratio"] == pytest.approx(1.2)
    assert (verdict["chance"], verdict["passed"]) == (1, True)
    assert "passes whatever the die says" in in_node("return SpecViz.inspectionWords.ratioWords(data)", verdict)


def test_passing_is_strictly_below(inspect):
    events = sampled_run()
    events[2]["draft"][1].update(u=0.138)
    assert inspect(events, "1.1")["verdict"]["passed"] is False


def test_the_verdict_of_every_recorded_throw_is_the_recorded_status(in_node: InNode):
    body = """
        const state = SpecViz.reducer.fold(data);
        return state.rounds.flatMap(({ event, number }) => event.draft.map((token, place) =>
            [token.status, SpecViz.inspection.inspect(state, { round: number, place }).verdict]));
    """
    for status, verdict in in_node(body, recorded("03-temperature")):
        if verdict["kind"] == "sampled":
            assert verdict["passed"] == (status == "accepted")
            assert min(1, verdict["ratio"]) == pytest.approx(verdict["chance"], abs=1e-6)
        else:
            assert (verdict["kind"], verdict["why"]) == ("void", status)


def test_greedy_compares_with_the_most_probable_token(inspect):
    events = story(5)
    assert inspect(events, "1.0")["words"] == "The target's most probable token here is ' quick' too: accepted."
    assert inspect(events, "2.2")["words"] == "The target's most probable token here is ' dog', not this one: rejected."


def test_greedy_without_top_lists_takes_the_correction(inspect):
    events = story(5)
    for token in events[3]["draft"]:
        del token["target_top"]
    assert "' dog'" in inspect(events, "2.2")["words"]


def test_what_was_never_judged_is_said_so(inspect):
    events = story(12)
    discarded, cut = inspect(events, "2.3"), inspect(events, "12.2")
    assert discarded["words"] == "Never judged: a token before it was rejected, so its prefix was void."
    assert cut["words"] == "Never judged: generation had stopped before it."
    assert discarded["comparison"]["missing"]["target"] == "discarded"
    assert row_of(discarded, discarded["token"]["id"])["target"] is None


@pytest.mark.parametrize(
    ("key", "words"),
    [("1.extra", "All 4 drafted tokens were accepted"), ("3.extra", "Nothing was drafted"), ("2.extra", "in place of the rejected one")],
)  # fmt: skip
def test_the_extra_token_says_why_it_is_there(inspect, key: str, words: str):
    assert words in inspect(story(5), key)["words"]


def test_fields_that_were_not_recorded_are_said_to_be_missing(inspect):
    events = sampled_run()
    bare = {"id", "text", "status", "kind"}
    events[2]["draft"] = [{k: v for k, v in token.items() if k in bare} for token in events[2]["draft"]]
    events[2]["extra"] = {k: v for k, v in events[2]["extra"].items() if k in bare}
    del events[2]["seconds"], events[2]["cache"]
    seen = inspect(events, "1.1")
    assert "not recorded" in seen["words"]
    assert seen["comparison"]["rows"] == []
    assert seen["comparison"]["missing"] == {"draft": "not_recorded", "target": "not_recorded"}
    assert (seen["seconds"], seen["caches"], seen["residual"]) == (None, None, None)
    assert seen["position"] == 10  # follows from the prompt and the text


def test_a_served_run_may_know_next_to_nothing(inspect):
    draft = [{"id": None, "text": None, "status": status} for status in ("accepted", "rejected")]
    served = {"type": "round", "round": 1, "t": 0.1, "draft": draft, "draft_stop": None, "committed": [None, None]}
    served |= {"extra": {"id": None, "text": None, "kind": "correction"}, "cache": None, "seconds": None}
    run = started(mode="served")
    run["prompt"].update(token_ids=[], pieces=[])
    seen = inspect([run, served], "1.1")
    assert (seen["position"], seen["pass"]["numCached"], seen["seconds"]) == (None, None, None)
    assert seen["comparison"]["missing"]["target"] == "not_reported"
    assert "all cached positions" in seen["pass"]["words"]


# ---- distributions ----


def test_both_lists_are_joined_token_by_token(inspect):
    seen = inspect(sampled_run(), "1.1")
    both, only_draft, only_target = row_of(seen, 22), row_of(seen, 23), row_of(seen, 27)
    assert (both["draft"], both["target"]) == (0.1, 0.1)
    assert (only_draft["draft"], only_draft["target"]) == (0.08, None)
    assert (only_target["draft"], only_target["target"]) == (None, 0.2)
    assert [row["id"] for row in seen["comparison"]["rows"]][:3] == [26, 27, 28]


def test_the_token_in_question_has_its_row_and_the_tail_loses_it(inspect):
    seen = inspect(sampled_run(), "1.1")
    row = row_of(seen, 21)
    assert (row["isSubject"], row["marks"], row["target"]) == (True, ["rejected"], 0.03)
    assert row_of(seen, 26)["marks"] == ["correction"]
    assert seen["comparison"]["tail"] == {"draft": 0.05, "target": pytest.approx(0.07)}


def test_the_correction_is_seen_against_what_was_drafted_there(inspect):
    seen = inspect(sampled_run(), "1.extra")
    assert (row_of(seen, 26)["isSubject"], row_of(seen, 21)["marks"]) == (True, ["rejected"])
    assert seen["residual"]["rows"][0] == {"id": 26, "text": " leaps", "prob": 0.55, "isDrawn": True}
    assert seen["residual"]["tail"] == 0.08
    assert seen["position"] == 10


def test_only_a_rejection_has_a_residual(inspect):
    events = sampled_run()
    assert inspect(events, "1.0")["residual"] is None
    assert inspect(events, "1.1")["residual"] is not None
    assert inspect(story(5), "2.2")["residual"] is None


def test_prompt_lookup_has_no_distribution(inspect):
    seen = inspect(recorded("03-temperature"), "1.0")
    assert seen["comparison"]["missing"] == {"draft": "no_distribution", "target": None}
    assert seen["verdict"]["isCertain"] is True
    assert seen["verdict"]["draftUsed"] == 1


# ---- the pass ----


def test_every_row_sees_the_cache_and_what_was_fed_before_it(inspect):
    seen = inspect(sampled_run(), "1.1")["pass"]
    assert seen["numCached"] == 8
    assert [row["position"] for row in seen["rows"]] == [8, 9, 10, 11, 12]
    assert [row["isSubject"] for row in seen["rows"]] == [False, True, False, False, False]
    assert seen["rows"][0]["isPending"] and seen["rows"][0]["token"]["text"] == "\n"
    assert [row["gives"].get("unused") for row in seen["rows"]] == [None, None, "discarded", "discarded", "discarded"]
    assert "in one pass" in seen["words"]


def test_the_row_after_a_full_acceptance_gives_the_bonus(inspect):
    rows = inspect(story(2), "1.extra")["pass"]["rows"]
    assert rows[-1]["isSubject"] and rows[-1]["gives"]["kind"] == "bonus"


def test_a_round_without_a_draft_is_one_row(inspect):
    rows = inspect(story(5), "3.extra")["pass"]["rows"]
    assert [(row["isPending"], row["gives"]["kind"]) for row in rows] == [(True, "plain")]


def test_the_pending_token_is_the_newest_of_the_text_before(in_node: InNode):
    body = """
        const state = SpecViz.reducer.fold(data);
        return state.rounds.map((round) => SpecViz.inspection.inspect(state, { round: round.number, place: "extra" }))
            .filter(Boolean).map((seen) => [seen.pass.rows[0].token.id, seen.pass.rows[0].position, seen.caches.target.before]);
    """
    events = recorded("01-weekdays")
    ids = list(events[0]["prompt"]["token_ids"])
    rounds = [event for event in events if event["type"] == "round" and event["extra"]]
    for event, (token_id, position, before) in zip(rounds, in_node(body, events), strict=True):
        assert (token_id, position) == (ids[-1], len(ids) - 1) == (ids[-1], before)
        ids += event["committed"]


def test_shares_of_the_time_are_of_the_rounds_own(inspect):
    seconds = inspect(story(1), "1.0")["seconds"]
    assert seconds["total"] == pytest.approx(0.074)
    assert sum(seconds["shares"].values()) == pytest.approx(1)


# ---- addresses ----


def test_neighbours_are_all_tokens_of_the_run_and_back(in_node: InNode):
    body = """
        const state = SpecViz.reducer.fold(data);
        const { neighbourOf, keyOf } = SpecViz.inspection;
        const walk = (from, direction) => {
            const keys = [];
            for (let at = from; at; at = neighbourOf(state, at, direction)) keys.push(keyOf(at));
            return keys;
        };
        const forward = walk({ round: 1, place: 0 }, 1);
        return { forward, back: walk(SpecViz.inspection.addressOf(forward.at(-1)), -1) };
    """
    events = story(12)
    walked = in_node(body, events)
    rounds = [event for event in events if event["type"] == "round"]
    assert len(walked["forward"]) == sum(len(event["draft"]) + (event["extra"] is not None) for event in rounds)
    assert walked["back"] == walked["forward"][::-1]


def test_every_token_of_the_text_has_an_address_that_leads_to_it(in_node: InNode):
    body = """
        const state = SpecViz.reducer.fold(data);
        return state.tokens.map((token) => {
            const seen = SpecViz.inspection.inspect(state, SpecViz.inspection.addressOf(SpecViz.inspection.keyOf(token)));
            return [token.id, seen.token.id, seen.position];
        });
    """
    events = story(12)
    num_prompt = len(events[0]["prompt"]["token_ids"])
    for index, (given, found, position) in enumerate(in_node(body, events)):
        assert (found, position) == (given, num_prompt + index)


def test_rounds_are_found_by_number_also_after_a_gap(inspect):
    events = story(6)
    del events[3]
    assert inspect(events, "4.0")["round"] == 4
    assert inspect(events, "2.0") is None


@pytest.mark.parametrize("key", ["", "x", "1", "1.99", "99.0", "1.extra.2", "prompt.0", "null.null"])
def test_an_address_of_nothing_is_nothing(inspect, key: str):
    seen = inspect(story(2), key)
    assert seen is None or seen["key"] == "1.extra"


# ---- cards ----


def test_a_card_tells_no_more_than_the_moment_on_show(in_node: InNode):
    body = """
        const state = SpecViz.reducer.fold(data);
        const timeline = SpecViz.choreography.createTimeline();
        state.rounds.forEach((round) => timeline.append(round.event));
        const frames = [];
        for (let moment = 1; moment <= timeline.last; moment += 1) {
            const { beat, beats } = timeline.locate(moment);
            const progress = SpecViz.choreography.progressAt(beats, beat);
            frames.push({ round: state.rounds[0], progress, isOver: progress.joined });
        }
        return frames.map((frame) => SpecViz.tokenCard.cardOf(state, "1.1", frame)).map((card) => [card.mark, card.bars.length]);
    """
    said = in_node(body, sampled_run())
    assert said[0] == ["not judged yet", 1]
    assert said[-1] == ["✗ rejected", 2]
    assert ["not judged yet", 2] in said


def test_a_card_tells_a_token_that_was_looked_up(in_node: InNode):
    draft = [{**drafted(1, " a", "accepted"), **more} for more in ({"looked_up": True}, {})]
    rounds = [round_event(1, 9, draft, extra("bonus", 3, " b"))]
    body = """
        const state = SpecViz.reducer.fold(data);
        return ["1.0", "1.1"].map((key) => SpecViz.tokenCard.cardOf(state, key, {}).place);
    """
    found, drawn = in_node(body, [started(), prefill(), *rounds, finished(rounds)])
    assert found.endswith(", looked up in the text") and "looked up" not in drawn


def test_a_card_of_the_prompt_says_where_it_stands(in_node: InNode):
    body = 'return SpecViz.tokenCard.cardOf(SpecViz.reducer.fold(data), "prompt.3", {})'
    events = story(1, "Hello")
    events[0]["prompt"]["reused"] = 5
    card = in_node(body, events)
    assert (card["token"]["text"], card["mark"], card["canInspect"]) == ("Hello", "prompt", False)
    assert "position 3" in card["place"] and "earlier turn" in card["place"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (1, "1"), (0.5, "0.500"), (0.0166, "0.017"), (0.00275, "0.00275"), (0.00002, "2.0e-5"), (0.9999, ">0.999"), (1.2, "1.20"), (None, "not recorded")],
)  # fmt: skip
def test_probabilities_keep_the_digits_that_count(in_node: InNode, value: float | None, words: str):
    assert in_node("return SpecViz.inspectionWords.exact(data)", value) == words


def test_odd_rounds_do_not_break_it(inspect):
    lonely = round_event(1, 9, [drafted(1, "", "accepted", bytes="f09f")], None)
    events = [started(), prefill(), lonely, finished([])]
    assert inspect(events, "1.0")["pass"]["rows"][1]["gives"] == {"unused": "cut"}
    wide = round_event(1, 9, [drafted(i, "x", "accepted") for i in range(40)], extra("bonus", 99, "y"))
    assert len(inspect([started(), prefill(), wide], "1.39")["pass"]["rows"]) == 41
    assert inspect([started(), prefill(), copy.deepcopy(wide)], "1.extra")["position"] == 49
