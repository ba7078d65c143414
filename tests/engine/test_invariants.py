"""What holds in every run, whatever the verdicts and the stops: random runs of a table model and a scripted draft.

The draft is right and wrong on command, so that every verdict occurs at every place; the run ends by end token,
stop string, length, context, deadline or cancellation, at any token of a block.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz.config import RunSettings
from specviz.engine.clock import RunClock
from specviz.engine.loader import ModelPair
from specviz.engine.speculative import decode
from specviz.runs import Run
from specviz.trace.reader import read_trace
from tests.engine.runs import finished, new_ids, rounds, run_events, statuses
from tests.table_model import ScriptedDrafter, ScriptedSession, TableModel, letters_vocabulary, random_table

PIECES = ["a", "b", "ab", "ba", "c", "한", " ", "</s>"]
VOCABULARY = letters_vocabulary(PIECES)
VOCAB = len(PIECES)


@dataclass(frozen=True)
class Scenario:
    """One run. `plan` says for each round (cyclically) how many tokens are drafted, and how many of them right."""

    prompt: list[int]
    plan: list[tuple[int, int]]
    num_draft_tokens: int = 4
    max_new_tokens: int = 12
    min_new_tokens: int = 0
    eos: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    room: int | None = None  # what the context holds beyond the prompt
    temperature: float = 0.0
    seed: int = 0
    keeps_cache: bool = True
    live_drafts: bool = False
    cancel_at: int | None = None  # from this question "is it cancelled?" on, the answer is yes
    clock: RunClock = field(default_factory=RunClock)

    @property
    def settings(self) -> RunSettings:
        return RunSettings(
            drafter="draft_model",
            num_draft_tokens=self.num_draft_tokens,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=min(self.min_new_tokens, self.max_new_tokens),
            eos_token_ids=self.eos,
            stop=self.stop,
            temperature=self.temperature,
            seed=self.seed,
        )

    @property
    def context(self) -> int | None:
        return None if self.room is None else len(self.prompt) + self.room


@dataclass
class Played:
    """A run that was played, with everything that can be asked of it afterwards."""

    scenario: Scenario
    target: TableModel
    session: ScriptedSession
    events: list[dict[str, Any]]
    cache_ids_after: list[list[int]]  # what the target's cache held when each event came
    draft_cache_ids_after: list[list[int] | None]
    num_passes_at_cancel: int | None  # target forwards when the cancellation was first seen

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return rounds(self.events)

    def committed_before(self, round_event: dict[str, Any]) -> list[int]:
        earlier = [event for event in self.rounds if event["round"] < round_event["round"]]
        return self.scenario.prompt + [token_id for event in earlier for token_id in event["committed"]]


def make_target(scenario: Scenario) -> TableModel:
    return TableModel(random_table(VOCAB, seed=scenario.seed % 5), max_positions=scenario.context)


def scripted(target: TableModel, scenario: Scenario) -> ScriptedDrafter:
    """Drafts that begin as the target would go on, and go wrong at the planned place."""

    def script(committed: list[int], num_asked: int, round_index: int) -> list[int]:
        length, num_right = scenario.plan[round_index % len(scenario.plan)]
        right = target.greedy_ids(committed, length)
        return [token if i < num_right else (token + 1 + i) % VOCAB for i, token in enumerate(right)]

    return ScriptedDrafter(script, keeps_cache=scenario.keeps_cache)


def play(scenario: Scenario) -> Played:
    target = make_target(scenario)
    drafter = scripted(target, scenario)
    num_asked, num_passes_at_cancel = 0, None

    def is_cancelled() -> bool:
        nonlocal num_asked, num_passes_at_cancel
        num_asked += 1
        if num_asked == scenario.cancel_at:
            num_passes_at_cancel = len(target.calls)
        return scenario.cancel_at is not None and num_asked >= scenario.cancel_at

    run = decode(
        target,
        drafter,
        scenario.prompt,
        VOCABULARY,
        scenario.settings,
        eos_token_ids=frozenset(scenario.eos),
        is_cancelled=is_cancelled,
        live_drafts=scenario.live_drafts,
        clock=scenario.clock,
    )
    events, caches, draft_caches = [], [], []
    for event in run:
        events.append(event)
        caches.append(target.caches[0].ids)
        draft_cache = drafter.sessions[0].cache
        draft_caches.append(draft_cache.ids if draft_cache else None)
    return Played(scenario, target, drafter.sessions[0], events, caches, draft_caches, num_passes_at_cancel)


def plainly(scenario: Scenario) -> tuple[list[int], str]:
    """Plain greedy decoding with the rules of ending a run, written down once more."""
    target, prompt, said = make_target(scenario), scenario.prompt, []
    while True:
        logits = target.logits_after([*prompt, *said]).clone()
        if len(said) < scenario.settings.min_new_tokens:
            logits[list(scenario.eos)] = -float("inf")
        said.append(int(logits.argmax()))
        text = "".join(PIECES[token_id] for token_id in said)
        if said[-1] in scenario.eos:
            return said, "eos"
        if any(stop in text for stop in scenario.stop):
            return said, "stop"
        if len(said) == scenario.max_new_tokens:
            return said, "length"
        if len(prompt) + len(said) == scenario.context:
            return said, "context"


plans = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4)
greedy_scenarios = st.builds(
    Scenario,
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5),
    plan=plans,
    num_draft_tokens=st.integers(0, 6),
    max_new_tokens=st.integers(1, 20),
    min_new_tokens=st.sampled_from([0, 0, 3]),
    eos=st.sampled_from([(), (7,), (0, 5), (1, 2, 3)]),
    stop=st.sampled_from([(), (), ("ba",), ("abc", "한a"), ("c ",), ("bb", "aba")]),
    room=st.one_of(st.none(), st.integers(1, 12)),
    seed=st.integers(0, 50),
    keeps_cache=st.booleans(),
    live_drafts=st.booleans(),
)
sampled_scenarios = greedy_scenarios.map(lambda scenario: replace(scenario, temperature=1.0))
scenarios = st.one_of(greedy_scenarios, sampled_scenarios)
cancelled_scenarios = st.builds(
    lambda scenario, cancel_at: replace(scenario, cancel_at=cancel_at), scenarios, st.integers(1, 30)
)


# --- the text ---------------------------------------------------------------------------------


@given(greedy_scenarios)
def test_ids_and_reason_are_those_of_plain_decoding(scenario):
    events = play(scenario).events
    assert (new_ids(events), finished(events)["reason"]) == plainly(scenario)


@given(scenarios)
def test_what_the_rounds_committed_is_the_answer(scenario):
    played = play(scenario)
    committed = [token_id for event in played.rounds for token_id in event["committed"]]
    assert committed == new_ids(played.events)


@given(scenarios)
def test_token_texts_join_to_the_text(scenario):
    played = play(scenario)
    texts = []
    for event in played.rounds:
        kept = [token for token in event["draft"] if token["status"] == "accepted"]
        texts += [token["text"] for token in [*kept, *([event["extra"]] if event["extra"] else [])]]
    text = finished(played.events)["text"]
    assert "".join(texts) == text == "".join(PIECES[token_id] for token_id in new_ids(played.events))


@given(scenarios)
def test_the_output_text_has_no_stop_string_and_no_special_token(scenario):
    last = finished(play(scenario).events)
    assert "</s>" not in last["output_text"]
    if last["reason"] == "stop":
        assert not any(stop in last["output_text"] for stop in scenario.stop)
    elif not scenario.stop:
        assert last["output_text"] == last["text"].replace("</s>", "")


@given(scenarios)
def test_the_same_seed_gives_the_same_run(scenario):
    first, second = play(scenario).events, play(scenario).events
    assert [without_times(event) for event in first] == [without_times(event) for event in second]


def without_times(event: dict[str, Any]) -> dict[str, Any]:
    timeless = {key: value for key, value in event.items() if key not in ("t", "seconds")}
    if "metrics" in timeless:
        timeless["metrics"] = {
            k: v for k, v in timeless["metrics"].items() if k not in ("tokens_per_second", "time_shares")
        }
    return timeless


# --- the end ----------------------------------------------------------------------------------


@given(scenarios)
def test_nothing_after_the_end_is_committed_or_cached(scenario):
    played = play(scenario)
    ids, last = new_ids(played.events), finished(played.events)
    assert not set(ids[:-1]) & set(scenario.eos), "an end token is the last"
    assert len(ids) <= scenario.max_new_tokens
    texts = ["".join(PIECES[i] for i in ids[: n + 1]) for n in range(len(ids))]
    assert not any(stop in text for stop in scenario.stop for text in texts[:-1]), "a stop string is in the last token"
    assert played.target.caches[0].ids == (scenario.prompt + ids)[:-1]
    ends_by = {
        "eos": lambda: ids[-1] in scenario.eos,
        "stop": lambda: any(stop in texts[-1] for stop in scenario.stop),
        "length": lambda: len(ids) == scenario.max_new_tokens,
        "context": lambda: len(scenario.prompt) + len(ids) == scenario.context,
    }
    first = next(reason for reason, applies in ends_by.items() if applies())
    assert last["reason"] == first, "of several reasons the first"


@given(scenarios)
def test_only_the_last_round_has_cut_tokens_or_no_extra(scenario):
    played = play(scenario)
    for event in played.rounds[:-1]:
        assert event["extra"] is not None
        assert "cut" not in statuses(event)


# --- the caches -------------------------------------------------------------------------------


@given(cancelled_scenarios)
def test_between_rounds_the_newest_token_alone_is_pending(scenario):
    played = play(scenario)
    committed = list(scenario.prompt)
    for event, cached, draft_cached in zip(
        played.events, played.cache_ids_after, played.draft_cache_ids_after, strict=True
    ):
        if event["type"] == "draft_token":
            continue
        committed += event["committed"] if event["type"] == "round" else []
        if event["type"] == "round":
            assert cached == committed[:-1]
        assert draft_cached is None or draft_cached == committed[: len(draft_cached)]
        assert draft_cached is None or len(draft_cached) < len(committed)


@given(scenarios)
def test_the_caches_that_an_event_reports_are_the_caches(scenario):
    played = play(scenario)
    lengths = {}
    for event, cached, draft_cached in zip(
        played.events, played.cache_ids_after, played.draft_cache_ids_after, strict=True
    ):
        if event["type"] == "prefill":
            assert event["cache"] == {
                "target": len(cached),
                "draft": None if draft_cached is None else len(draft_cached),
            }
            assert len(cached) == len(scenario.prompt) - 1
            lengths = dict(event["cache"])
        if event["type"] == "round":
            target, draft = event["cache"]["target"], event["cache"]["draft"]
            assert target["before"] == lengths["target"]
            assert target["peak"] == target["before"] + 1 + len(event["draft"])
            assert target["after"] == target["before"] + len(event["committed"]) == len(cached)
            assert target["bytes"] == 16 * len(cached)
            assert (draft is None) == (draft_cached is None)
            if draft is not None:
                assert draft["before"] == lengths["draft"]
                assert draft["after"] == len(draft_cached) <= draft["peak"]
            lengths = {"target": target["after"], "draft": draft and draft["after"]}


@given(scenarios)
def test_the_draft_is_told_every_committed_text_once(scenario):
    played = play(scenario)
    told = [ids for ids, _ in played.session.commits]
    assert told == [played.committed_before(event) + event["committed"] for event in played.rounds]


# --- the forwards -----------------------------------------------------------------------------


@given(scenarios)
def test_a_round_is_exactly_one_target_forward_of_the_pending_token_and_the_draft(scenario):
    played = play(scenario)
    calls = list(played.target.calls)
    if len(scenario.prompt) > 1:
        prefill = calls.pop(0)
        assert (list(prefill.token_ids), prefill.num_logits) == (scenario.prompt[:-1], 0)
    assert len(calls) == len(played.rounds)
    for call, event in zip(calls, played.rounds, strict=True):
        committed = played.committed_before(event)
        assert call.start == len(committed) - 1
        assert list(call.token_ids) == [committed[-1], *[token["id"] for token in event["draft"]]]
        assert call.num_logits == len(call.token_ids)


@given(scenarios)
def test_a_draft_is_never_longer_than_there_is_room_for(scenario):
    played = play(scenario)
    for event in played.rounds:
        committed = len(played.committed_before(event))
        limits = [scenario.num_draft_tokens, scenario.max_new_tokens - (committed - len(scenario.prompt)) - 1]
        if scenario.context is not None:
            limits.append(scenario.context - committed - 1)
        assert len(event["draft"]) <= min(limits)
    for committed, num_asked, _ in played.session.proposals:
        assert num_asked <= max(0, scenario.max_new_tokens - (committed - len(scenario.prompt)) - 1)


@given(scenarios)
def test_a_short_draft_says_why(scenario):
    played = play(scenario)
    for event in played.rounds:
        committed = len(played.committed_before(event))
        budget = scenario.max_new_tokens - (committed - len(scenario.prompt)) - 1
        room = budget if scenario.context is None else scenario.context - committed - 1
        if len(event["draft"]) == scenario.num_draft_tokens:
            assert event["draft_stop"] is None
        elif len(event["draft"]) == min(budget, room):
            assert event["draft_stop"] == ("budget" if budget <= room else "context")
        else:
            assert event["draft_stop"] == "no_match"


# --- the verdicts -----------------------------------------------------------------------------


def is_well_formed(round_statuses: Sequence[str], extra: dict[str, Any] | None) -> bool:
    """accepted*, then nothing (bonus, plain), or one rejected and discarded* (correction), or cut* (no extra)."""
    names = list(round_statuses)
    num_accepted = next((i for i, name in enumerate(names) if name != "accepted"), len(names))
    rest = names[num_accepted:]
    if extra is None:
        return num_accepted > 0 and set(rest) <= {"cut"}
    if extra["kind"] == "correction":
        return rest[:1] == ["rejected"] and set(rest[1:]) <= {"discarded"}
    return rest == [] and extra["kind"] == ("bonus" if names else "plain")


@given(scenarios)
def test_statuses_are_an_accepted_prefix_and_what_its_end_explains(scenario):
    for event in play(scenario).rounds:
        assert is_well_formed(statuses(event), event["extra"]), event
        accepted = [token["id"] for token in event["draft"] if token["status"] == "accepted"]
        assert event["committed"] == [*accepted, *([event["extra"]["id"]] if event["extra"] else [])]


@given(scenarios)
def test_every_drafted_token_has_exactly_one_fate(scenario):
    played = play(scenario)
    counts = finished(played.events)["counts"]
    assert counts["drafted"] == counts["accepted"] + counts["rejected"] + counts["discarded"] + counts["cut"]
    assert counts["committed"] == counts["accepted"] + counts["corrections"] + counts["bonuses"] + counts["plains"]
    assert counts["committed"] == len(new_ids(played.events))
    assert counts["rejected"] == counts["corrections"]
    assert counts["rounds"] == len(played.rounds)


@given(scenarios)
def test_what_was_never_judged_says_nothing_of_the_target(scenario):
    for event in play(scenario).rounds:
        for token in event["draft"]:
            judged = token["status"] in ("accepted", "rejected")
            assert (token["target_prob"] is not None) == judged
            assert (token["target_top"] is not None) == judged
            was_thrown_for = judged and scenario.temperature > 0
            assert (token["u"] is not None) == (token["accept_prob"] is not None) == was_thrown_for


@given(sampled_scenarios)
def test_a_sampled_verdict_is_explained_by_its_own_numbers(scenario):
    for event in play(scenario).rounds:
        for token in event["draft"]:
            if token["status"] in ("accepted", "rejected"):
                assert (token["u"] < token["accept_prob"]) == (token["status"] == "accepted")
                assert 0.0 <= token["accept_prob"] <= 1.0
                assert token["accept_prob"] == pytest.approx(min(1.0, token["target_prob_used"]))  # one-hot drafts


@given(scenarios)
def test_live_draft_tokens_are_those_of_the_round_that_follows(scenario):
    played = play(replace(scenario, live_drafts=True))
    waiting: list[tuple[int, int, int, str]] = []
    for event in played.events:
        if event["type"] == "draft_token":
            waiting.append((event["round"], event["index"], event["token"]["id"], event["token"]["text"]))
        if event["type"] == "round":
            drafted = [(event["round"], i, token["id"], token["text"]) for i, token in enumerate(event["draft"])]
            assert waiting == drafted
            waiting = []


# --- interruptions ----------------------------------------------------------------------------


@given(cancelled_scenarios)
def test_a_cancelled_run_is_the_beginning_of_the_whole_one(scenario):
    whole = play(replace(scenario, cancel_at=None)).events
    cancelled = play(scenario).events
    ids, reason = new_ids(cancelled), finished(cancelled)["reason"]
    assert ids == new_ids(whole)[: len(ids)]
    assert reason in ("cancelled", finished(whole)["reason"])
    assert reason == "cancelled" or ids == new_ids(whole)
    assert finished(cancelled)["counts"]["committed"] == len(ids)


@given(cancelled_scenarios)
def test_a_cancelled_run_leaves_its_caches_in_order(scenario):
    played = play(scenario)
    committed = scenario.prompt + new_ids(played.events)
    cached = played.target.caches[0].ids
    assert cached == committed[: len(cached)]
    assert len(cached) == len(committed) - 1 or not played.rounds


@given(cancelled_scenarios)
def test_once_the_cancellation_was_seen_the_target_does_nothing_more(scenario):
    played = play(scenario)
    if played.num_passes_at_cancel is not None:
        assert len(played.target.calls) == played.num_passes_at_cancel
        assert finished(played.events)["reason"] == "cancelled"


class TickingClock(RunClock):
    """Every look at it takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self._ticks = 0

    @property
    def elapsed(self) -> float:
        self._ticks += 1
        return float(self._ticks)


@given(greedy_scenarios, st.integers(1, 60))
def test_a_deadline_ends_the_run_with_what_there_is(scenario, deadline):
    scenario = replace(scenario, clock=TickingClock())
    target = make_target(scenario)
    settings = replace(scenario.settings, deadline=float(deadline))
    events = list(
        decode(
            target,
            scripted(target, scenario),
            scenario.prompt,
            VOCABULARY,
            settings,
            eos_token_ids=frozenset(scenario.eos),
            clock=scenario.clock,
        )
    )
    ids, reason = plainly(scenario)
    said = new_ids(events)
    assert said == ids[: len(said)]
    assert finished(events)["reason"] == (
        reason if said == ids and finished(events)["reason"] == reason else "deadline"
    )


def test_a_deadline_that_is_over_at_once_still_finishes_properly():
    played = run_events(
        TableModel(random_table(VOCAB)), [1, 2, 3], vocabulary=VOCABULARY, deadline=0.0, max_new_tokens=5
    )
    assert finished(played)["reason"] == "deadline"
    assert new_ids(played) == []
    assert finished(played)["text"] == finished(played)["output_text"] == ""


def test_a_consumer_that_leaves_in_the_middle_ends_the_drafters_work():
    target = TableModel(random_table(VOCAB))
    drafter = ScriptedDrafter(lambda committed, k, index: target.greedy_ids(committed, k))
    settings = RunSettings(drafter="draft_model", num_draft_tokens=3, max_new_tokens=50)
    run = decode(target, drafter, [1, 2], VOCABULARY, settings, live_drafts=True)
    for event in run:
        if event["type"] == "draft_token":
            break
    run.close()
    num_calls = len(target.calls)
    assert list(run) == []
    assert len(target.calls) == num_calls


# --- drafts of every quality ------------------------------------------------------------------

QUALITIES = {
    "perfect": [(6, 6)],
    "useless": [(6, 0)],
    "empty": [(0, 0)],
    "now and then empty": [(0, 0), (4, 4), (0, 0), (3, 1)],
    "right once": [(6, 1)],
}


@pytest.mark.parametrize("plan", QUALITIES.values(), ids=QUALITIES)
@pytest.mark.parametrize("k", [0, 1, 3, 6])
def test_the_text_is_right_whatever_the_draft_is_worth(plan, k):
    scenario = Scenario(prompt=[1, 2, 3], plan=plan, num_draft_tokens=k, max_new_tokens=40)
    assert new_ids(play(scenario).events) == plainly(scenario)[0]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_a_perfect_draft_gives_k_plus_one_tokens_a_round(k):
    events = play(Scenario(prompt=[1], plan=[(6, 6)], num_draft_tokens=k, max_new_tokens=6 * (k + 1))).events
    assert [len(event["committed"]) for event in rounds(events)] == [k + 1] * 6
    assert finished(events)["counts"]["bonuses"] == 6


def test_a_useless_draft_gives_one_token_a_round():
    events = play(Scenario(prompt=[1], plan=[(6, 0)], num_draft_tokens=4, max_new_tokens=20)).events
    assert {len(event["committed"]) for event in rounds(events)} == {1}
    assert finished(events)["counts"]["accepted"] == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_k_of_zero_is_plain_decoding_event_for_event(temperature):
    settings = {"vocabulary": VOCABULARY, "max_new_tokens": 15, "temperature": temperature, "trace_detail": "full"}
    plain = run_events(TableModel(random_table(VOCAB)), [1, 2], **settings)
    for kind in ("prompt_lookup", "early_exit", "draft_model"):
        without = run_events(TableModel(random_table(VOCAB)), [1, 2], drafter_kind=kind, num_draft_tokens=0, **settings)
        assert [without_times(event) for event in without] == [without_times(event) for event in plain]
    assert {event["extra"]["kind"] for event in rounds(plain)} == {"plain"}


# --- the trace --------------------------------------------------------------------------------


@given(cancelled_scenarios, st.sampled_from(["full", "light", "none"]))
def test_every_run_is_a_trace_that_the_reader_accepts(scenario, detail):
    target = make_target(scenario)
    pair = ModelPair(target=target, draft=None, vocabulary=VOCABULARY, eos_token_ids=frozenset(scenario.eos))
    settings = replace(scenario.settings, drafter="none", trace_detail=detail)
    run = Run(pair, "ab", settings, raw=True, check=True, live_drafts=scenario.live_drafts)
    run.prompt["token_ids"], run.prompt["pieces"] = scenario.prompt, [PIECES[i] for i in scenario.prompt]
    run.prompt.pop("special", None)
    run.drafter = scripted(target, scenario)
    num_events = 0

    def live():
        nonlocal num_events
        for event in run:
            num_events += 1
            if scenario.cancel_at is not None and num_events >= scenario.cancel_at:
                run.cancel()
            yield event

    events = list(live())
    lines = [as_json_line(event) for event in events]
    assert read_trace(lines) == [json.loads(line) for line in lines]


def as_json_line(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n"
