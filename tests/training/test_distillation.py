"""What a distillation makes of its options."""

from __future__ import annotations

import pytest
import torch

from specviz.engine.draft_files import read_draft
from specviz.errors import BadRequest, RunFailed
from specviz.training import corpus as corpora
from specviz.training import distillation as distillations
from specviz.training import export as exports
from specviz.training.corpus import HELD_OUT_EVERY
from specviz.training.distillation import Distillation, Options
from specviz.training.teacher import Teacher
from specviz.training.trainer import Plan
from tests.engine.lean_models import LLAMA3_ROPE, float32_of
from tests.tiny_models import VOCAB_SIZE, build_model
from tests.training.tiny_teachers import FRAME, some_shard, tiny_teacher


@pytest.fixture
def distil(tmp_path):
    def make(teacher=None, work_name="work", **options):
        settings = {"kind": "draft_head", "name": "d", "feature_layers": (1, 2), "cut": 100} | options
        paths = {"work": tmp_path / work_name, "corpus": tmp_path / "text", "output": tmp_path / "draft"}
        return Distillation(teacher or tiny_teacher(), Options(**settings | paths))

    return make


def with_text(distillation):
    """With text that the target might have written."""
    distillation.corpus.claim(distillation._target_facts)
    distillation.corpus.write(some_shard(0, HELD_OUT_EVERY), VOCAB_SIZE)
    return distillation


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"feature_layers": (1, 4)}, "feature_layers has 4: .* choose from 0 to 3"),
        ({"kind": "draft_model", "feature_layers": (), "layers": (3,)}, "layers has 3: .* choose from 0 to 2"),
        ({"cut": VOCAB_SIZE + 1}, f"cut is {VOCAB_SIZE + 1}: .* knows {VOCAB_SIZE} tokens"),
    ],
)
def test_options_that_the_target_cannot_have_are_refused(distil, options, sentence):
    with pytest.raises(BadRequest, match=sentence):
        distil(**options)


@pytest.mark.parametrize(("layers", "kept"), [((1, 2), (1, 2, 3)), ((1, 3), (1, 3)), ((), (3,))])
def test_the_targets_last_layer_is_always_kept(distil, layers, kept):
    assert distil(feature_layers=layers).store.layers == kept


def test_a_draft_model_has_the_rotary_embedding_that_a_draft_folder_can_tell(distil):
    module = build_model("llama", rope_parameters=LLAMA3_ROPE)
    teacher = Teacher(float32_of(module), module, FRAME, None)
    rotary = distil(teacher, kind="draft_model", feature_layers=(), layers=(0,))._new_student.module.rotary_emb
    half = teacher.model.weights.head_dim // 2
    torch.testing.assert_close(rotary.inv_freq, 10000.0 ** (-torch.arange(half) / half))
    assert rotary.attention_scaling == 1.0
    assert not torch.equal(rotary.inv_freq, module.model.rotary_emb.inv_freq)


def test_the_cut_is_what_the_target_said_most_often(distil):
    distillation = with_text(distil(cut=20))
    counts = distillation.training.token_counts(VOCAB_SIZE)
    ids = distillation.head.vocab_ids
    assert len(ids) == 20 and (ids.diff() > 0).all()
    assert counts[ids].min() >= max(count for token, count in enumerate(counts) if token not in ids.tolist())
    assert torch.equal(distillation.head.rows, tiny_teacher().head[ids])


def test_missing_states_are_computed_once(distil):
    first = with_text(distil())
    states = first.training and {path: path.stat().st_mtime_ns for path in first.options.work.rglob("*.npy")}
    again = distil()
    assert len(again.training) == len(first.training) and len(states) == 2
    assert {path: path.stat().st_mtime_ns for path in again.options.work.rglob("*.npy")} == states


def test_a_draft_that_will_be_too_large_is_refused_before_it_is_trained(distil, monkeypatch):
    monkeypatch.setattr(exports, "LARGEST_FILE", 1000)
    distillation = with_text(distil())
    with pytest.raises(RunFailed, match="choose a smaller target"):
        distillation.train()
    assert distillation.trainer.step == 0


def test_what_is_measured_and_exported_later_is_what_was_trained(distil, monkeypatch):
    monkeypatch.setattr(corpora, "HELD_OUT_EVERY", 4)
    monkeypatch.setattr(Distillation, "_tokenizer", lambda self: None)
    monkeypatch.setattr(distillations, "held_out_prompts", lambda *args: ["a prompt"])
    monkeypatch.setattr(distillations, "evaluate_in_engine", lambda *args, **named: {})
    plan = Plan(epochs=2, tokens_per_batch=100, warmup_steps=2)
    trained = with_text(distil(plan=plan))
    untrained = trained.evaluate()["on_text"]
    trained.train()
    later = distil(plan=plan)
    measured = later.evaluate()["on_text"]
    assert measured["by_position"][0]["loss"] < untrained["by_position"][0]["loss"]
    weights = [student.module.state_dict() for student in (trained.student, distil(plan=plan).student)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


@pytest.mark.parametrize(
    "options",
    [{}, {"kind": "draft_model", "feature_layers": (), "layers": (0, 2)}],
    ids=["draft_head", "draft_model"],
)
def test_a_training_can_go_on_from_a_draft(distil, options):
    plan = Plan(epochs=2, tokens_per_batch=100, warmup_steps=2)
    first = with_text(distil(plan=plan, **options))
    first.train()
    draft = read_draft(first.export())
    again = distil(plan=plan, start_from=draft, work_name="again", **options)
    trained, taken = (made.module.state_dict() for made in (first.student, again._new_student))
    assert trained.keys() == taken.keys()
    for name, weights in trained.items():
        torch.testing.assert_close(taken[name], weights, rtol=0, atol=float(weights.abs().max()) / 100)
    again.train()
    history = read_draft(again.export()).facts.trained["started_from"]
    assert history["name"] == "d" and history["steps"] == first.trainer.step and len(history["weights_sha256"]) == 64
    assert (
        f"Went on from | d (weights {history['weights_sha256'][:12]})"
        in (again.options.output / "README.md").read_text()
    )


def test_a_training_on_new_text_only_says_so_and_needs_no_states_of_the_rest(distil):
    with_text(distil()).corpus.write(some_shard(1, HELD_OUT_EVERY, seed=1), VOCAB_SIZE)
    first, after = distil().corpus.read(0), len(distil().corpus.read(0).ids)
    plan = Plan(epochs=1, tokens_per_batch=100, warmup_steps=2)
    later = distil(plan=plan, after=after, num_tokens=2 * after)
    later.train()
    assert not later.store.has(first) and {number for number, _ in later.training.places} == {1}
    facts = read_draft(later.export()).facts.trained
    assert facts["data"]["after"] == after and facts["data"]["tokens"] == later.training.num_tokens
    assert f"sequences, after the first {after:,}, seed" in (later.options.output / "README.md").read_text()


def test_a_training_goes_on_from_its_own_start_only(distil):
    plan = Plan(epochs=1, tokens_per_batch=100, warmup_steps=2)
    first = with_text(distil(plan=plan))
    first.train()
    draft = read_draft(first.export())
    with pytest.raises(BadRequest, match="belongs to another training"):
        distil(plan=plan, start_from=draft).train()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"feature_layers": (0, 2)}, "reads the layers 1,2: give --feature-layers 1,2"),
        ({"kind": "draft_model", "feature_layers": (), "layers": (0,)}, "a draft_head, and kind is 'draft_model'"),
    ],
)
def test_a_start_of_another_shape_is_refused(distil, options, sentence):
    first = with_text(distil(plan=Plan(epochs=0.1, tokens_per_batch=100, warmup_steps=2)))
    first.train()
    draft = read_draft(first.export())
    with pytest.raises(BadRequest, match=sentence):
        distil(start_from=draft, **options)
