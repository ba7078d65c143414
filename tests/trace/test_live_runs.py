"""Real runs of tiny models through recorder and reader: what was live is what is read, and fits the schema."""

from __future__ import annotations

import io
from functools import cache

import pytest

from specviz.config import RunSettings
from specviz.engine.draft_loading import open_draft
from specviz.engine.hf_model import TransformersModel
from specviz.engine.lazy_drafts import LazyDrafts
from specviz.engine.loader import ModelPair
from specviz.metrics import fold_metrics
from specviz.runs import Run
from specviz.trace.reader import read_trace
from specviz.trace.summary import summarize
from specviz.trace.terminal import TraceTerminal
from specviz.trace.writer import record
from tests.draft_folders import random_head, some_vocab_ids
from tests.engine.runs import byte_vocabulary, tiny_draft, tiny_target
from tests.tiny_models import build_model, tiny_model
from tests.trace.test_reader import schema_validator


@cache
def tied_model():
    return build_model("llama", tie_word_embeddings=True)


def tiny_run(module=None, vocab_ids=None, **settings) -> Run:
    target = tiny_target() if module is None else TransformersModel(module, "tied")
    head = random_head(module or tiny_model(), vocab_ids)
    drafts = LazyDrafts({"draft_head": lambda: open_draft(head, target)})
    pair = ModelPair(target, byte_vocabulary(), tiny_draft(), frozenset(), drafts)
    settings = RunSettings(max_new_tokens=16, **settings)
    return Run(pair, "hello hello naïve 👩\u200d🚀", settings, raw=True, check=True, live_drafts=True)


@pytest.mark.parametrize("drafter", ("draft_model", "prompt_lookup", "early_exit", "draft_head", "none"))
@pytest.mark.parametrize(("detail", "temperature"), [("full", 0.0), ("full", 0.9), ("light", 0.9), ("none", 0.0)])
def test_a_live_run_is_recorded_and_read_as_it_was(drafter, detail, temperature, tmp_path):
    path = tmp_path / "run.jsonl"
    run = tiny_run(drafter=drafter, trace_detail=detail, temperature=temperature)
    live = list(record(run, path, keep_draft_tokens=True))
    trace = read_trace(path)
    assert trace == live and not trace.is_incomplete
    for event in live:
        schema_validator().validate(event)
    finish = next(event for event in trace if event["type"] == "run_finished")
    assert fold_metrics(trace).counts == finish["counts"] and fold_metrics(trace).metrics() == finish["metrics"]
    assert summarize(trace)["text"] == finish["output_text"]


def test_a_run_left_in_the_middle_is_closed_as_the_engine_would_have(tmp_path):
    """The end that the recorder works out says the same text as the engine's own."""
    path = tmp_path / "run.jsonl"
    stream = record(tiny_run(drafter="draft_model"), path)
    for event in stream:
        if event["type"] == "round" and event["round"] == 3:
            break
    stream.close()
    cancelled = read_trace(path)[-1]
    whole = next(event for event in tiny_run(drafter="draft_model") if event["type"] == "run_finished")
    assert cancelled["reason"] == "cancelled"
    assert cancelled["token_ids"] == whole["token_ids"][: len(cancelled["token_ids"])]
    assert whole["text"].startswith(cancelled["text"].rstrip("\ufffd"))


def test_light_detail_leaves_the_top_lists_out_and_none_all_probabilities(tmp_path):
    for detail, tops, probabilities in (("full", True, True), ("light", False, True), ("none", False, False)):
        path = tmp_path / f"{detail}.jsonl"
        list(record(tiny_run(drafter="draft_model", trace_detail=detail), path))
        text = path.read_text(encoding="utf-8")
        assert ('_top"' in text) == tops and ('target_prob"' in text) == probabilities
        terminal = TraceTerminal(io.StringIO(), width=80)
        for event in read_trace(path):
            terminal.show(event)
        assert ("target 0" in terminal.console.file.getvalue()) == probabilities


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_correction_tells_what_the_drafter_found_and_exactly_0_outside_its_cut_vocabulary(temperature):
    known = set(random_head(tiny_model()).vocab_ids.tolist())
    extras = [
        event["extra"]
        for event in tiny_run(drafter="draft_head", temperature=temperature)
        if event["type"] == "round" and event["extra"]
    ]
    corrections = [extra for extra in extras if extra["kind"] == "correction"]
    assert {extra["id"] in known for extra in corrections} == {True, False}
    for extra in corrections:
        assert (extra["draft_prob"] == 0) == (extra["id"] not in known)
    lookup = [event["extra"] for event in tiny_run(drafter="prompt_lookup") if event["type"] == "round"]
    assert not any("draft_prob" in extra for extra in lookup if extra)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_correction_that_stands_in_the_text_has_a_draft_probability(temperature):
    vocab_ids = some_vocab_ids(60)
    known, kinds = set(vocab_ids.tolist()), set()
    for seed in range(6):
        events = list(tiny_run(tied_model(), vocab_ids, drafter="draft_head", temperature=temperature, seed=seed))
        text = list(events[0]["prompt"]["token_ids"])
        for event in events:
            if event["type"] != "round":
                continue
            if event["extra"] and event["extra"]["kind"] == "correction":
                extra, accepted = event["extra"], event["committed"][:-1]
                kind = "known" if extra["id"] in known else "met" if extra["id"] in [*text[1:], *accepted] else "new"
                assert (extra["draft_prob"] == 0) == (kind == "new")
                kinds.add(kind)
            text += event["committed"]
    assert kinds == {"known", "met", "new"}
