"""The handlers: what they refuse, and in which words; nobody can skip them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from specviz.errors import BadRequest
from specviz.presets import find_pair, load_lessons, load_pairs
from specviz.ui.handlers import Handlers
from specviz.ui.recordings import load_recordings
from specviz.ui.run_request import CONTROL_NAMES, control_values, own_pair, request_from
from tests.draft_folders import model_draft, random_head, save_draft
from tests.tiny_models import tiny_model
from tests.ui.fake_runs import FakeRun, story, wait_until

GOOD = {**control_values(None, find_pair("embedded")), "prompt": "Hello"}


def session(name: str = "s1") -> SimpleNamespace:
    return SimpleNamespace(session_hash=name)


def handlers(recordings=(), factory=lambda request, notify: FakeRun(story(4, request.prompt))) -> Handlers:
    return Handlers(factory, tuple(recordings), load_lessons())


def parsed(text: str) -> tuple[dict, list[dict]]:
    header, *lines = text.split("\n")
    return json.loads(header), [json.loads(line) for line in lines]


def test_the_controls_make_a_request():
    request = request_from({**GOOD, "k_auto": False, "k": 3.0, "max_new_tokens": 10.0, "seed": 7.0, "temperature": 0.5})
    assert (request.settings.num_draft_tokens, request.settings.max_new_tokens, request.settings.seed) == (3, 10, 7)
    assert request.check
    assert request_from({**GOOD, "k_auto": True}).settings.num_draft_tokens == "auto"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": "   "}, "empty"),
        ({"prompt": "x" * 30_000}, "30000 characters"),
        ({"prompt": None}, "empty"),
        ({"k": 0}, "k is 0"),
        ({"k": 1000}, "k is 1000"),
        ({"k": 2.5}, "k is 2.5"),
        ({"max_new_tokens": 10**9}, "1000000000"),
        ({"seed": None}, "seed is empty"),
        ({"seed": -1}, "seed is -1"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"drafter": "oracle"}, "oracle"),
        ({"pair": "gpt2-large", "drafter": "draft_head"}, "draft_head"),
        (
            {"drafter": "draft_head", "draft_precision": "int4"},
            "The draft weights are 'int4': with this drafter choose",
        ),
        ({"drafter": "prompt_lookup", "draft_precision": "int3"}, "int3"),
        ({"draft_precision": None}, "The draft weights are None"),
        ({"pair": "../../etc"}, "../../etc"),
        ({"top_p": 0}, "top_p is 0"),
        ({"max_ngram": 2, "min_ngram": 5}, "shortest match is 5"),
        ({"exit_layer": -3}, "exit layer is -3"),
        ({"exit_layer": None}, "exit layer is empty"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(change, words):
    with pytest.raises(BadRequest) as refusal:
        request_from({**GOOD, **change})
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_refusal_reaches_the_stage_and_runs_nothing():
    made = []
    page = handlers(factory=lambda request, notify: made.append(request))
    header, events = parsed(*page.run({**GOOD, "prompt": ""}, session()))
    assert header["done"] == 1
    assert header["error"].startswith("The prompt is empty") and header["refused"] == "run"
    assert (events, made) == ([], [])


def test_a_refused_run_ends_the_one_before_as_a_run_does():
    run = FakeRun(story(400), delay=60)
    page = handlers(factory=lambda request, notify: run)
    going = page.run(GOOD, session())
    next(going)
    assert list(page.run({**GOOD, "k": 2.5, "k_auto": False}, session("s2"))) and not run.was_cancelled.is_set()
    assert list(page.run({**GOOD, "k": 2.5, "k_auto": False}, session()))
    wait_until(run.was_cancelled.is_set)
    going.close()


def test_a_run_streams_its_events():
    page = handlers()
    events = []
    for text in page.run(GOOD, session()):
        events += parsed(text)[1]
    assert events == story(4, "Hello")


def test_missing_events_are_told_to_who_knows_the_run():
    page = handlers()
    texts = list(page.run(GOOD, session()))
    run_id = parsed(texts[0])[0]["run"]
    _, events = parsed(page.missing_events({"run": run_id, "from": 3}))
    assert events == story(4, "Hello")[3:]


@pytest.mark.parametrize(
    "payload", [None, [], "x", {}, {"run": "x", "from": 0}, {"run": None, "from": "0"}, {"run": 1, "from": -1}]
)
def test_nonsense_asked_of_the_server_is_answered_with_nothing(payload):
    assert handlers().missing_events(payload) is None


def test_a_recording_can_be_opened_again_and_again(fake_recordings):
    page = handlers(load_recordings(fake_recordings))
    first, second = (list(page.open_recording("first")) for _ in range(2))
    assert parsed(first[0])[1] == story(8, "A recorded question")
    assert parsed(first[0])[0]["run"] != parsed(second[0])[0]["run"]
    assert list(page.open_recording("../secret")) == []


def test_a_bad_trace_file_gets_its_one_sentence(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"type": "round"}\n', encoding="utf-8")
    (text,) = handlers().open_file(str(path))
    header, events = parsed(text)
    assert "bad.jsonl" in header["error"] and header["refused"] == "file"
    assert events == []
    assert list(handlers().open_file(None)) == []


def test_every_lesson_fills_the_controls_with_just_what_it_runs():
    page = handlers()
    for lesson in load_lessons():
        sentence, values = page.choose_lesson(lesson.name)
        assert sentence.startswith(lesson.lesson) and "Press Run" in sentence
        assert set(values) == set(CONTROL_NAMES)
        request = request_from(values)
        assert (request.settings, request.prompt, request.raw) == (lesson.run_settings(), lesson.prompt, lesson.raw)


def test_a_pair_offers_its_own_drafters():
    page = handlers()
    for pair in load_pairs():
        kinds = [kind for _, kind in page.choose_pair(pair.name, "prompt_lookup")["choices"]]
        assert kinds == [*pair.drafters, "none"]
    assert page.choose_pair("gpt2-large", "draft_head")["value"] == "draft_model"


def test_the_precisions_on_offer_follow_the_drafter():
    page = handlers()

    def offered(pair: str, drafter: str, precision: str) -> tuple[list[str], str, bool]:
        update, _ = page.choose_drafter(pair, drafter, precision)
        return [name for _, name in update["choices"]], update["value"], update["visible"]

    assert offered("embedded", "draft_head", "int4") == (["auto", "float32", "bfloat16"], "auto", True)
    assert offered("embedded", "draft_head", "float32")[1] == "float32"
    assert "int4" in offered("embedded", "draft_model", "auto")[0]
    assert "int8" in offered("gpt2-large", "draft_model", "auto")[0]
    assert offered("embedded", "prompt_lookup", "int4")[2] is False


def test_k_auto_is_for_drafters_that_can_be_sure():
    page = handlers()
    (_, sure), (_, unsure) = (page.choose_drafter("embedded", kind, "auto") for kind in ("early_exit", "prompt_lookup"))
    assert sure["interactive"] and "value" not in sure and "Up to 8" in sure["info"]
    assert (unsure["interactive"], unsure["value"]) == (False, False) and "no probability" in unsure["info"]
    assert page.choose_best_k("draft_head", False)["value"] is True
    assert page.choose_best_k("prompt_lookup", False)["value"] is False
    assert "value" not in page.choose_best_k("draft_head", True)
    assert (page.choose_auto(True)["interactive"], page.choose_auto(False)["interactive"]) == (False, True)
    assert "up to 8" in page.choose_auto(True)["label"]
    assert request_from({**GOOD, "drafter": "prompt_lookup", "k_auto": True, "k": 5}).settings.num_draft_tokens == 5


def test_a_link_with_a_recording_says_what_it_got_wrong_beside_it(fake_recordings):
    page = handlers(load_recordings(fake_recordings))
    shown, linked = page.open_address(json.dumps({"recording": "first", "round": "9", "x": "1"}), GOOD)
    header, events = parsed(shown)
    assert (header["refused"], header["forget"], len(events)) == ("link", "round&x", len(story(8)))
    assert "from 1 to 8" in header["error"] and "x='1'" in header["error"] and linked.recording == "first"


def test_the_gallery_tells_a_lookup_first_from_a_drafter_alone(tmp_path):
    for name, more in (("alone", {}), ("first", {"lookup_first": {"max_ngram": 4, "min_ngram": 2}})):
        events = story(2)
        events[0]["drafter"] = {"kind": "draft_head", "name": "a-head", **more}
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    titles = [recording.title.split(":")[0] for recording in load_recordings(tmp_path)]
    assert titles == ["draft head, greedy", "draft head, lookup first, greedy"]


def test_the_precision_of_a_draft_is_asked_only_of_a_drafter_with_weights():
    assert request_from({**GOOD, "drafter": "draft_head", "draft_precision": "float32"}).draft_precision == "float32"
    assert request_from({**GOOD, "drafter": "prompt_lookup", "draft_precision": "int4"}).draft_precision == "auto"


def test_an_own_draft_folder_is_recognised_by_what_it_says(tmp_path):
    save_draft(tmp_path / "head", random_head(tiny_model()))
    save_draft(tmp_path / "model", model_draft(tiny_model()))
    (tmp_path / "plain").mkdir()
    kinds = {name: own_pair(str(tmp_path), str(tmp_path / name)).drafters[0] for name in ("head", "model", "plain")}
    assert kinds == {"head": "draft_head", "model": "draft_model", "plain": "draft_model"}
    assert own_pair(str(tmp_path), "").drafters == ("prompt_lookup", "early_exit")
    (tmp_path / "head" / "specviz-draft.json").write_text("[]", encoding="utf-8")
    with pytest.raises(BadRequest, match="restore the draft folder"):
        own_pair(str(tmp_path), str(tmp_path / "head"))
