"""From a draft folder to a draft that runs: both kinds, on both paths, in every precision, once a pair."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from specviz.config import RunSettings
from specviz.engine import draft_facts, draft_files, lean_loading, loader
from specviz.engine.cut_vocabulary import CutVocabularyModel
from specviz.engine.draft_head import HeadOutput
from specviz.engine.draft_loading import open_draft
from specviz.engine.draft_modules import full_width_llama
from specviz.engine.hf_model import TransformersModel
from specviz.engine.kv_memory import KVMemory
from specviz.engine.lazy_drafts import LazyDrafts
from specviz.engine.lean_head import LeanHead
from specviz.engine.lean_model import LeanModel
from specviz.engine.loader import ModelPair, load_pair
from specviz.engine.torch_head import TorchHead
from specviz.errors import BadRequest
from specviz.runs import Run
from tests.draft_folders import bigram_head, bigram_target, model_draft, random_head, save_draft, some_vocab_ids
from tests.engine.lean_models import float32_of, int8_of, some_ids
from tests.engine.runs import byte_vocabulary, finished, generate_ids, new_ids, run_events, tiny_target
from tests.tiny_models import build_model, tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer

PROMPT = [5, 6, 7, 8, 9]
TARGETS = {
    "general": lambda: tiny_target(),
    "lean": lambda: float32_of(tiny_model()),
    "int8": lambda: int8_of(tiny_model()),
}
KEPT = torch.tensor(sorted(set(range(420)) - {300, 301}))


def draft_file(**changes):
    return model_draft(tiny_model(), some_vocab_ids(380), **changes)


# --- a draft model with a cut head ----------------------------------------------------------------


@pytest.mark.parametrize("k", [*range(1, 9), "auto"])
@pytest.mark.parametrize("path", TARGETS)
def test_greedy_text_is_the_targets_own(path, k):
    target = TARGETS[path]()
    draft = open_draft(draft_file(int8=path == "int8"), target, "float32" if path == "general" else "auto")
    events = run_events(target, PROMPT, draft=draft, drafter_kind="draft_model", num_draft_tokens=k, max_new_tokens=40)
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=40))
    if k != "auto":
        assert finished(events)["counts"]["accepted"] > 5


@pytest.mark.parametrize("precision", ["auto", "float32"], ids=["lean", "transformers"])
@pytest.mark.parametrize("tied", [False, True])
def test_its_logits_are_those_of_the_whole_model_where_it_can_say_something(precision, tied):
    module = build_model("llama", tie_word_embeddings=tied)
    target = float32_of(module)
    file = model_draft(module, some_vocab_ids(100))
    draft = open_draft(file, target, precision)
    assert isinstance(draft, CutVocabularyModel)
    ids = some_ids(20)
    logits = draft.forward(ids, draft.new_cache()).logits
    whole = full_width_llama(file, target.embedding, torch.float32, module.lm_head.weight)
    with torch.no_grad():
        expected = whole(torch.tensor([ids])).logits[0]
    assert logits.shape == expected.shape == (20, target.vocab_size)
    can = [{*file.vocab_ids.tolist(), *(ids[: row + 1] if tied else ())} for row in range(20)]
    assert [set(row.isfinite().nonzero().flatten().tolist()) for row in logits] == can
    expected[torch.isneginf(logits)] = -torch.inf
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_the_whole_model_helps_transformers_own_assisted_generation():
    module = build_model("llama", tie_word_embeddings=True)
    file = model_draft(module, some_vocab_ids(100))
    assistant = full_width_llama(file, module.get_input_embeddings().weight, torch.float32)
    assert assistant.config.vocab_size == module.config.vocab_size and assistant.config.tie_word_embeddings
    assert assistant.lm_head.weight.data_ptr() == module.get_input_embeddings().weight.data_ptr()
    assert generate_ids(module, PROMPT, 20, assistant_model=assistant) == generate_ids(module, PROMPT, 20)


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_what_it_adds_is_counted_and_what_it_shares_is_not(precision):
    target, file = float32_of(tiny_model()), draft_file()
    draft = open_draft(file, target, precision)
    own = sum(tensor.numel() for tensor in file.tensors.values())
    embedding = target.embedding.numel()
    assert draft.num_params == own
    if precision == "bfloat16":  # in another dtype the embedding is a copy
        assert draft.weight_bytes == pytest.approx(2 * (own + embedding), rel=0.01)
        assert draft.cut_facts["shared_weight_bytes"] == 0
    else:
        assert draft.weight_bytes == pytest.approx(4 * own, rel=0.01)
        assert draft.cut_facts["shared_weight_bytes"] == 4 * embedding


# --- precisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "kind", "int8_file", "expected"),
    [
        ("auto", LeanHead, True, "int8"),
        ("auto", LeanHead, False, "float32"),
        ("int8", LeanHead, False, "int8"),
        ("float32", TorchHead, True, "float32"),
        ("bfloat16", TorchHead, True, "bfloat16"),
    ],
)
def test_a_heads_precision(precision, kind, int8_file, expected):
    target = float32_of(bigram_target())
    head = open_draft(bigram_head(bigram_target(), KEPT, int8=int8_file), target, precision)
    assert isinstance(head, kind) and head.precision == expected
    events = run_events(target, PROMPT, draft=head, drafter_kind="draft_head", max_new_tokens=30)
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=30))
    assert finished(events)["counts"]["accepted"] > 0


@pytest.mark.parametrize("precision", ["auto", "int8", "int4", "float32", "bfloat16"])
def test_a_draft_models_precision(precision):
    target = tiny_target()
    draft = open_draft(draft_file(int8=precision == "auto"), target, precision)
    assert draft.precision == {"auto": "int8"}.get(precision, precision)
    events = run_events(target, PROMPT, draft=draft, drafter_kind="draft_model", max_new_tokens=30)
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=30))


def test_4_bits_are_refused_for_a_head_with_the_choices():
    with pytest.raises(BadRequest, match=r"'int4'.*draft heads.*choose auto, int8 or a dtype\.$"):
        open_draft(random_head(tiny_model()), tiny_target(), "int4")


@pytest.mark.parametrize("make", [random_head, model_draft])
def test_without_the_lean_path_both_kinds_run_in_torch(make, monkeypatch):
    monkeypatch.setattr(lean_loading, "find_spec", lambda name: None)
    target = tiny_target()
    draft = open_draft(make(tiny_model(), int8=True), target)
    assert not isinstance(draft, LeanHead) and draft.precision != "int8"
    kind = "draft_head" if make is random_head else "draft_model"
    events = run_events(target, PROMPT, draft=draft, drafter_kind=kind, max_new_tokens=20)
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=20))
    if make is random_head:
        with pytest.raises(BadRequest, match="numba is not installed"):
            open_draft(make(tiny_model()), target, "int8")


# --- pairs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("own")
    tiny_model().save_pretrained(folder / "target")
    byte_level_tokenizer().save_pretrained(folder / "target")
    save_draft(folder / "head", random_head(tiny_model()))
    save_draft(folder / "model", draft_file())
    return {name: str(folder / name) for name in ("target", "head", "model")}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["head", "model"])
def test_a_pair_with_a_draft_folder(kind, dtype, folders):
    pair = load_pair(folders["target"], folders[kind], dtype=dtype, device="cpu")
    drafter = f"draft_{kind}"
    assert pair.draft_for(drafter) is pair.draft_for(drafter) is not None
    assert (pair.draft is None) == (kind == "head")
    run = Run(pair, "one two three", RunSettings(drafter=drafter, max_new_tokens=16), raw=True, check=True)
    events = list(run)
    assert run.result.identity["identical"] is True and run.result.counts["drafted"] > 0
    told = events[0]["drafter"]
    assert told["kind"] == drafter and told["cut_vocab_size"] < told["vocab_size"]
    other = {"head": "draft_model", "model": "draft_head"}[kind]
    assert pair.draft_for(other) is None
    with pytest.raises(BadRequest, match=f"'{other}'"):
        Run(pair, "one", RunSettings(drafter=other), raw=True)


def test_a_draft_of_another_target_is_refused_when_it_is_loaded(folders, tmp_path):
    build_model("llama", seed=4).save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(BadRequest, match="another fingerprint"):
        load_pair(str(tmp_path), folders["head"], dtype="float32", device="cpu")


def test_a_target_that_is_rounded_to_float16_is_still_known(folders):
    pair = load_pair(folders["target"], folders["head"], dtype="float16", device="cpu")
    assert pair.target.embedding.dtype == torch.float16
    run = Run(pair, "one two", RunSettings(drafter="draft_head", max_new_tokens=6), raw=True)
    assert list(run)[-1]["type"] == "run_finished" and run.result.counts["drafted"] > 0


def test_a_name_that_is_no_draft_is_told_which_there_are(folders, monkeypatch):
    monkeypatch.setattr(loader, "_hub_answers", lambda: False)
    with pytest.raises(BadRequest, match=r"my-draft.*shipped"):
        load_pair(folders["target"], "my-draft", dtype="float32", device="cpu")


def test_the_reused_positions_are_those_that_the_head_holds_too(folders):
    pair = load_pair(folders["target"], folders["head"], dtype="float32", device="cpu")
    memory, texts = KVMemory(), "one two three four five"
    list(Run(pair, texts, RunSettings(drafter="none", max_new_tokens=8), raw=True, memory=memory))
    run = Run(pair, texts, RunSettings(drafter="draft_head", max_new_tokens=8), raw=True, memory=memory)
    assert run.prompt["reused"] == 0
    list(run)
    again = Run(pair, texts, RunSettings(drafter="draft_head", max_new_tokens=8), raw=True, memory=memory)
    num_prompt = len(again.prompt["token_ids"])
    assert again.prompt["reused"] == num_prompt - 2
    list(again)
    plain = Run(pair, texts, RunSettings(drafter="none", max_new_tokens=8), raw=True, memory=memory)
    assert plain.prompt["reused"] == num_prompt - 1
    list(plain)
    assert plain.result.token_ids == again.result.token_ids == run.result.token_ids


def test_lazy_drafts_are_loaded_once_for_all_threads():
    opened, gate = [], threading.Barrier(8)

    def open_it():
        opened.append(object())
        return opened[-1]

    drafts, seen = LazyDrafts({"draft_head": open_it}), []

    def ask() -> None:
        gate.wait()
        seen.append(drafts.get("draft_head"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1 and seen == opened * 8
    assert drafts.get("draft_model") is None


def test_a_pair_made_by_hand_has_no_drafts_but_its_own():
    draft = tiny_target()
    pair = ModelPair(tiny_target(), byte_vocabulary(), draft, frozenset())
    assert pair.draft_for("draft_model") is draft
    assert pair.draft_for("draft_head") is pair.draft_for("prompt_lookup") is pair.draft_for("none") is None


@pytest.mark.parametrize("broken", [False, True])
def test_the_embedded_target_finds_its_shipped_drafts_when_a_run_asks_for_them(folders, tmp_path, monkeypatch, broken):
    for module in (draft_facts, draft_files):
        monkeypatch.setattr(module, "SHIPPED_DIR", tmp_path)
    monkeypatch.setattr(loader, "embedded_model_dir", lambda: Path(folders["target"]))
    save_draft(tmp_path / "other", random_head(build_model("llama", seed=4)))
    save_draft(tmp_path / "own", random_head(tiny_model()))
    if broken:
        (tmp_path / "own" / draft_facts.WEIGHTS_FILE).unlink()
    pair = load_pair(dtype="float32", device="cpu")
    assert pair.draft is None
    if broken:
        with pytest.raises(BadRequest, match="restore"):
            pair.draft_for("draft_head")
        return
    assert pair.draft_for("draft_head") is pair.draft_for("draft_head")
    assert isinstance(pair.draft_for("draft_head"), LeanHead)
    assert pair.draft_for("draft_model") is None
    run = Run(pair, "one two", RunSettings(drafter="draft_head", max_new_tokens=4), raw=True)
    assert list(run)[-1]["type"] == "run_finished"


def test_a_head_answers_with_one_row():
    head = open_draft(random_head(tiny_model()), tiny_target())
    output = head.read(torch.randn(3, 3, 48), [1, 2, 3], head.new_cache())
    assert isinstance(output, HeadOutput) and output.logits.shape == (1, head.vocab_size)
    assert output.state.shape == (1, 48)


def test_the_models_embedding_is_a_view():
    module = tiny_model()
    general = TransformersModel(module, "tiny")
    assert general.embedding.data_ptr() == module.get_input_embeddings().weight.data_ptr()
    assert not general.embedding.requires_grad
    lean = float32_of(tiny_model())
    assert isinstance(lean, LeanModel) and lean.embedding is lean.weights.embedding
