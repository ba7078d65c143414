"""The stage without a screen: reducer, choreography, player, protocol, sentences; in node."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from specviz.metrics import COUNT_NAMES, fold_metrics
from specviz.trace.reader import read_trace
from specviz.trace.sentences import round_sentence
from specviz.ui.recordings import RECORDINGS_DIR
from tests.ui.fake_runs import drafted, extra, round_event, story, story_rounds

InNode = Callable[..., Any]

HOSTILE_TEXTS = (
    "<img src=x onerror=alert(1)>",
    "${x}",
    "{{x}}",
    "\\u0041",
    "</script>",
    "**x**",
    "\n\t",
    "\u202eabc",
    "\u2028",
    "é",
    "👩‍👩‍👧",
    "x" * 90,
)


def sampled_round() -> dict[str, Any]:
    """A round of a run with a temperature: dice were thrown."""
    draft = [
        drafted(1, " a", "accepted", u=0.2, accept_prob=1.0),
        drafted(2, " b", "rejected", u=0.9, accept_prob=0.25),
        drafted(3, " c", "discarded"),
    ]
    return round_event(1, 5, draft, extra("correction", 4, " d", u=0.5))


def rounds_of_every_kind() -> list[dict[str, Any]]:
    odd = [round_event(1, 5, [drafted(1, text, "rejected")], extra("correction", 2, text)) for text in HOSTILE_TEXTS]
    nothing = [
        round_event(1, 5, [], extra("plain", 1, "x"), draft_stop=stop)
        for stop in ("no_match", "context", "budget", "eos", "confidence", None)
    ]
    parts = [round_event(1, 5, [drafted(7, "", "accepted", bytes="f09f")], extra("bonus", 8, "", bytes="98"))]
    return [*story_rounds(12), sampled_round(), *odd, *nothing, *parts]


def test_the_state_counts_what_the_metrics_count(in_node: InNode):
    events = story(23)
    totals = in_node("return SpecViz.reducer.fold(data).rounds.map((round) => round.totals)", events)
    rounds = [event for event in events if event["type"] == "round"]
    for number, total in enumerate(totals, start=1):
        counts = fold_metrics(rounds[:number]).counts
        assert {name: total[name] for name in COUNT_NAMES} == counts


def test_the_figures_are_those_of_the_metrics(in_node: InNode):
    events = story(23)
    figures = in_node("return SpecViz.figures.figuresOf(SpecViz.reducer.fold(data).rounds.at(-1).totals)", events)
    metrics = fold_metrics(events).metrics()
    assert figures["alpha"] == pytest.approx(metrics["alpha"])
    assert figures["draftAcceptanceRate"] == pytest.approx(metrics["draft_acceptance_rate"])
    assert figures["meanTokensPerRound"] == pytest.approx(metrics["mean_tokens_per_round"])
    assert figures["tokensPerSecond"] == pytest.approx(metrics["tokens_per_second"])
    assert figures["verifyShare"] == pytest.approx(metrics["time_shares"]["verify"])


def test_a_ratio_over_nothing_is_null(in_node: InNode):
    figures = in_node("return SpecViz.figures.figuresOf(SpecViz.reducer.NO_TOTALS)")
    assert [figures[name] for name in ("alpha", "draftAcceptanceRate", "meanTokensPerRound", "tokensPerSecond")] == [
        None
    ] * 4


def test_untimed_rounds_have_no_speed(in_node: InNode):
    served = [{**event, "seconds": None} if event["type"] == "round" else event for event in story(3)]
    figures = in_node("return SpecViz.figures.figuresOf(SpecViz.reducer.fold(data).rounds.at(-1).totals)", served)
    assert figures["tokensPerSecond"] is None
    assert figures["meanTokensPerRound"] is not None


def test_the_text_is_the_committed_tokens_and_each_knows_its_origin(in_node: InNode):
    events = story(12)
    tokens = in_node("return SpecViz.reducer.fold(data).tokens", events)
    finished = next(event for event in events if event["type"] == "run_finished")
    assert [token["id"] for token in tokens] == finished["token_ids"]
    assert {token["origin"] for token in tokens} == {"accepted", "correction", "bonus", "plain"}


def test_unknown_events_change_nothing(in_node: InNode):
    known = story(4)
    mixed = [known[0], {"type": "layer_exit", "x": 1}, *known[1:]]
    states = in_node("return data.map((events) => JSON.stringify(SpecViz.reducer.fold(events)))", [known, mixed])
    assert states[0] == states[1]


def test_speedup_is_measured_or_not_there(in_node: InNode):
    body = "return data.map((events) => SpecViz.figures.speedupOf(SpecViz.reducer.fold(events)))"
    unmeasured = [*story(4, identity=False), {"type": "identity", "against": "plain", "identical": True}]
    with_it, without, unmeasured_one = in_node(body, [story(4), story(4, identity=False), unmeasured])
    assert with_it > 0
    assert without is None
    assert unmeasured_one is None


def with_the_signs_of_the_stage(sentence: str) -> str:
    return sentence.replace("␊", "⏎").replace("␉", "⇥")


def test_a_line_end_has_one_sign_everywhere(in_node: InNode):
    body = """
        const [token, round] = data;
        const piece = SpecViz.pieces.piecesOf(token)[0].text;
        return [piece, SpecViz.sentence.quoted(token), SpecViz.sentence.ofRound(round)];
    """
    line_end = drafted(1, "\n", "rejected")
    piece, quoted, sentence = in_node(body, [line_end, round_event(1, 5, [line_end], extra("correction", 2, "x"))])
    assert quoted == f"'{piece}'"
    assert f"would not say '{piece}'" in sentence


def test_the_sentences_are_those_of_the_terminal_word_for_word(in_node: InNode):
    rounds = rounds_of_every_kind()
    said = in_node("return data.map(SpecViz.sentence.ofRound)", rounds)
    assert said == [with_the_signs_of_the_stage(round_sentence(event)) for event in rounds]


@pytest.mark.parametrize("path", sorted(RECORDINGS_DIR.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_shipped_recordings_fold_to_their_own_counts(in_node: InNode, path):
    events = list(read_trace(path))
    totals = in_node("return SpecViz.reducer.fold(data).rounds.at(-1).totals", events)
    finished = next(event for event in events if event["type"] == "run_finished")
    assert {name: totals[name] for name in COUNT_NAMES} == finished["counts"]


# ---- choreography ----


def test_every_moment_belongs_to_one_round_and_only_adds_to_the_one_before(in_node: InNode):
    body = """
        const timeline = SpecViz.choreography.createTimeline();
        data.forEach((event) => timeline.append(event));
        return Array.from({ length: timeline.last + 1 }, (_, moment) => {
            const { roundIndex, beat, beats } = timeline.locate(moment);
            return roundIndex < 0 ? null : [roundIndex, SpecViz.choreography.progressAt(beats, beat)];
        });
    """
    rounds = story_rounds(12)
    moments = in_node(body, rounds)
    assert moments[0] is None
    for before, after in itertools.pairwise(moments[1:]):
        if before[0] == after[0]:
            assert all(
                after[1][key] >= before[1][key]
                for key in ("drafted", "verified", "judged", "rolledBack", "landed", "joined")
            )
        else:
            assert after[0] == before[0] + 1
            assert before[1]["joined"]
    last = dict(moments[1:])
    for index, event in enumerate(rounds):
        judged = sum(token["status"] in ("accepted", "rejected") for token in event["draft"])
        assert (last[index]["drafted"], last[index]["judged"]) == (len(event["draft"]), judged)


def test_steps_go_phase_by_phase_and_back_the_same_way(in_node: InNode):
    body = """
        const timeline = SpecViz.choreography.createTimeline();
        data.forEach((event) => timeline.append(event));
        const forward = [0];
        while (forward.at(-1) < timeline.last) forward.push(timeline.nextStep(forward.at(-1)));
        const back = [timeline.last];
        while (back.at(-1) > 0) back.push(timeline.previousStep(back.at(-1)));
        return { forward, back, ends: data.map((_, index) => timeline.endOf(index)) };
    """
    steps = in_node(body, story_rounds(9))
    assert steps["back"][::-1] == steps["forward"]
    assert set(steps["ends"]) <= set(steps["forward"])


# ---- player ----

PLAYER = """
    const timeline = SpecViz.choreography.createTimeline();
    const player = SpecViz.player.createPlayer(timeline);
    const log = [];
    const note = (name) => log.push([name, player.moment, player.isPlaying, player.isFollowing]);
"""


def test_a_recording_plays_to_its_end_and_stops(in_node: InNode):
    body = (
        PLAYER
        + """
        data.forEach((event) => timeline.append(event));
        player.play();
        let seconds = 0;
        while (player.isPlaying && seconds < 1000) { player.advance(0.1); seconds += 0.1; }
        note("end");
        player.play();
        note("again");
        return { log, last: timeline.last, seconds };
    """
    )
    played = in_node(body, story_rounds(4))
    assert played["log"] == [["end", played["last"], False, False], ["again", 0, True, False]]
    assert 5 < played["seconds"] < 60


def test_speed_divides_the_time(in_node: InNode):
    body = (
        PLAYER
        + """
        data.forEach((event) => timeline.append(event));
        return [1, 8].map((speed) => {
            player.reset(); player.setSpeed(speed); player.play();
            let ticks = 0;
            while (player.isPlaying) { player.advance(0.01); ticks += 1; }
            return ticks;
        });
    """
    )
    slow, fast = in_node(body, story_rounds(4))
    assert slow / fast == pytest.approx(8, rel=0.1)


def test_a_quick_live_run_is_followed_at_its_newest_round(in_node: InNode):
    body = (
        PLAYER
        + """
        player.startLive();
        data.forEach((event) => { timeline.append(event); player.roundsArrived(1, 0.02); note("round"); });
        player.endLive();
        note("end");
        return { log, last: timeline.last };
    """
    )
    followed = in_node(body, story_rounds(5))
    assert followed["log"][-1] == ["end", followed["last"], False, False]
    moments = [entry[1] for entry in followed["log"]]
    assert moments == sorted(moments)


def test_a_slow_live_run_is_acted_out_round_by_round(in_node: InNode):
    body = (
        PLAYER
        + """
        player.startLive();
        for (const event of data) {
            timeline.append(event);
            player.roundsArrived(1, 3);
            note("arrives");
            for (let i = 0; i < 30; i += 1) player.advance(0.1);
            note("acted");
        }
        return { log, ends: data.map((_, index) => timeline.endOf(index)), starts: data.map((_, index) => timeline.startOf(index)) };
    """
    )
    acted = in_node(body, story_rounds(4))
    assert [entry[1] for entry in acted["log"][::2]] == acted["starts"]
    assert [entry[1] for entry in acted["log"][1::2]] == acted["ends"]


def test_pausing_a_live_run_holds_the_picture_and_following_catches_up(in_node: InNode):
    body = (
        PLAYER
        + """
        player.startLive();
        timeline.append(data[0]); player.roundsArrived(1, 0.02);
        player.pause(); note("paused");
        data.slice(1).forEach((event) => { timeline.append(event); player.roundsArrived(1, 0.02); });
        note("held");
        player.follow(); note("caught up");
        return { log, last: timeline.last };
    """
    )
    held = in_node(body, story_rounds(5))
    assert held["log"][0][1] == held["log"][1][1]
    assert held["log"][1][2:] == [False, False]
    assert held["log"][2] == ["caught up", held["last"], True, True]


# ---- protocol ----

INBOX = """
    const taken = [], asked = [], headers = [];
    let answer = () => null;
    const inbox = SpecViz.protocol.createInbox({
        onEvents: (header, events) => taken.push(...events.map((event) => event.n)),
        onHeader: (header) => headers.push(header),
        fetchMissing: (run, from) => { asked.push([run, from]); return Promise.resolve(answer(from)); },
    });
    const text = (run, seq, numbers, done = 0) =>
        [{ run, seq, done }, ...numbers.map((n) => ({ n }))].map((item) => JSON.stringify(item)).join("\\n");
    const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
"""


def test_messages_that_come_twice_count_once(in_node: InNode):
    body = (
        INBOX
        + """
        inbox.receive(text("a", 0, [0, 1]));
        inbox.receive(text("a", 0, [0, 1]));
        inbox.receive(text("a", 1, [1, 2]));
        inbox.receive(text("a", 3, [3], 1));
        inbox.receive(text("a", 3, [3], 1));
        return { taken, asked };
    """
    )
    assert in_node(body) == {"taken": [0, 1, 2, 3], "asked": []}


def test_a_gap_is_filled_by_asking(in_node: InNode):
    body = (
        INBOX
        + """
        answer = (from) => text("a", from, [2, 3, 4]);
        inbox.receive(text("a", 0, [0, 1]));
        inbox.receive(text("a", 4, [4, 5]));
        inbox.receive(text("a", 6, [6], 1));
        return settled().then(() => ({ taken, asked, done: headers.at(-1).done }));
    """
    )
    assert in_node(body) == {"taken": [0, 1, 2, 3, 4, 5, 6], "asked": [["a", 2]], "done": 1}


def test_a_gap_that_nobody_can_fill_does_not_stop_the_show(in_node: InNode):
    body = (
        INBOX
        + """
        inbox.receive(text("a", 0, [0]));
        inbox.receive(text("a", 5, [5, 6], 1));
        return settled().then(() => ({ taken, done: headers.at(-1).done }));
    """
    )
    assert in_node(body) == {"taken": [0, 5, 6], "done": 1}


def test_late_messages_of_an_earlier_run_are_ignored(in_node: InNode):
    body = (
        INBOX
        + """
        inbox.receive(text("a", 0, [0]));
        inbox.receive(text("b", 0, [10]));
        inbox.receive(text("a", 1, [1], 1));
        inbox.receive(text("b", 1, [11], 1));
        return { taken };
    """
    )
    assert in_node(body) == {"taken": [0, 10, 11]}


def test_pieces_make_the_invisible_visible(in_node: InNode):
    tokens = [
        {"id": 1, "text": " a b"},
        {"id": 2, "text": "\n\t"},
        {"id": 3, "text": "", "bytes": "f09f98"},
        {"id": 4, "text": ""},
        {"id": 5, "text": None},
        {"id": 6, "text": "a\u202eb"},
    ]
    pieces = in_node("return data.map((token) => SpecViz.pieces.piecesOf(token).map((piece) => piece.text))", tokens)
    assert pieces == [["·", "a", "·", "b"], ["⏎", "⇥"], ["F0 9F 98"], ["∅"], ["#5"], ["a", "U+202E", "b"]]


def test_the_bundle_is_one_script_without_a_dom(in_node: InNode):
    names = json.loads(json.dumps(in_node("return Object.keys(SpecViz)")))
    assert {"reducer", "player", "choreography", "protocol", "createStage"} <= set(names)


def test_real_time_takes_as_long_as_the_run_took(in_node):
    body = """
        const timeline = SpecViz.choreography.createTimeline();
        for (const event of data) if (event.type === "round") timeline.append(event);
        const player = SpecViz.player.createPlayer(timeline);
        player.setSpeed(SpecViz.player.REAL_TIME);
        player.scrubToRound(1);
        player.play();
        let passed = 0;
        while (!player.isAtEnd && passed < 60) { player.advance(0.001); passed += 0.001; }
        const rounds = data.filter((event) => event.type === "round").slice(1);
        const recorded = rounds.map(({ seconds }) => seconds.draft + seconds.verify + seconds.other);
        return [passed, recorded.reduce((sum, one) => sum + one, 0)];
    """
    passed, recorded = in_node(body, story(8))
    assert abs(passed - recorded) < 0.15 * recorded + 0.05


def test_a_speedup_is_told_by_the_run_made_once_more(in_node: InNode):
    run = [event for event in story() if event["type"] != "identity"]
    older = {"type": "identity", "against": "plain", "identical": True, "plain_tokens_per_second": 20.0}
    told = "const state = SpecViz.reducer.fold(data); return [SpecViz.figures.speedupOf(state), SpecViz.figures.comparedSpeedOf(state)]"
    assert in_node(told, [*run, {**older, "again_tokens_per_second": 30.0}]) == [1.5, 30.0]
    speedup, own = in_node(told, [*run, older])
    assert own == pytest.approx(fold_metrics(run).metrics()["tokens_per_second"])
    assert speedup == pytest.approx(own / 20)
    plain = [{**event, "mode": "plain"} if event["type"] == "run_started" else event for event in run]
    assert in_node(told, [*plain, older])[0] is None


def test_a_speedup_near_to_one_is_neither_faster_nor_slower(in_node: InNode):
    verdicts = in_node("return data.map(SpecViz.figures.verdictOf)", [0.9, 0.96, 1.04, 1.1])
    assert verdicts == ["slower", "as fast", "as fast", "faster"]
