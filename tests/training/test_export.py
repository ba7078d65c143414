"""A trained draft as a folder: what is read from it is what was trained, and it fits its target."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from specviz.engine.draft_files import read_draft
from specviz.engine.draft_loading import head_network, open_draft
from specviz.errors import BadRequest, RunFailed
from specviz.training import export as exports
from specviz.training.export import Export, head_tensors, model_tensors
from specviz.training.model_card import model_card
from specviz.training.students import ModelStudent, initialise_model
from specviz.training.teacher import Teacher
from tests.training.tiny_teachers import FRAME, cut_head, new_head_student, tiny_teacher

TRAINED = {
    "data": {"tokens": 12_345, "sequences": 100, "held_out_sequences": 3, "seed": 7},
    "plan": {"epochs": 2, "tokens_per_batch": 1536, "seed": 7},
    "steps": 1234,
    "parameters": 56_789,
    "cut": {"tokens": 200, "of": 420, "coverage": 0.987},
}
MEASURED = {
    "on_text": {
        "sequences": 3,
        "by_position": [
            {"loss": 1.0, "agreement": 0.712, "overlap": 0.655, "tokens": 9},
            {"loss": 1.0, "agreement": 0.512, "overlap": 0.455, "tokens": 9},
        ],
    },
    "in_engine": {
        "prompts": 5,
        "max_new_tokens": 64,
        "num_draft_tokens": "auto",
        "mean_tokens_per_round": 2.345,
        "acceptance_by_position": [0.8, 0.61, None],
        "judged_by_position": [10, 5, 0],
        "speedup_over_plain": 1.234,
        "identical": 1.0,
    },
}


def new_model_student(teacher: Teacher, layers=(0, 2)) -> ModelStudent:
    config = type(teacher.module.config)(**teacher.module.config.to_dict() | {"num_hidden_layers": len(layers)})
    student = ModelStudent(config, teacher.embedding)
    initialise_model(student, teacher.module, layers)
    return student


def export_of(kind: str, teacher: Teacher) -> Export:
    student = new_head_student(teacher) if kind == "draft_head" else new_model_student(teacher)
    return Export(f"a {kind}", student, cut_head(teacher).vocab_ids, TRAINED)


@pytest.mark.parametrize("kind", ["draft_head", "draft_model"])
@pytest.mark.parametrize("is_tied", [False, True])
def test_a_draft_is_read_back(tmp_path, kind, is_tied):
    teacher = tiny_teacher(is_tied=is_tied)
    export = export_of(kind, teacher)
    export.write(tmp_path / "draft", teacher)
    file = read_draft(tmp_path / "draft")
    assert sorted(path.name for path in (tmp_path / "draft").iterdir()) == ["specviz-draft.json", "weights.safetensors"]
    assert file.vocab_ids.tolist() == export.vocab_ids.tolist()
    assert file.facts.kind == kind and file.facts.name == f"a {kind}" and file.facts.trained == TRAINED
    file.refuse_other_target(teacher.model.embedding, 3, "tiny")
    trained = head_tensors(export.student) if kind == "draft_head" else model_tensors(export.student)
    assert file.is_int8 and file.is_tied == is_tied
    if not is_tied:
        trained["head"] = teacher.head[export.vocab_ids]
    read = file.floats()
    assert set(read) == set(trained)
    for name, tensor in trained.items():
        if name in ("feature_norms", "final_norm") or name.endswith("norm"):
            assert torch.equal(read[name], tensor), name
        else:
            step = tensor.abs().amax(1, keepdim=True) / 63
            assert ((read[name] - tensor).abs() <= step).all(), name
            assert (read[name] - tensor).norm() < 0.02 * tensor.norm(), name


@pytest.mark.parametrize("kind", ["draft_head", "draft_model"])
def test_a_draft_runs_beside_its_target(tmp_path, kind):
    teacher = tiny_teacher()
    export_of(kind, teacher).write(tmp_path, teacher)
    draft = open_draft(read_draft(tmp_path), teacher.model)
    assert draft.vocab_size == len(teacher.embedding)


@torch.no_grad()
def test_a_read_head_says_what_the_trained_one_says(tmp_path):
    teacher = tiny_teacher()
    export = export_of("draft_head", teacher)
    export.write(tmp_path, teacher)
    net, trained = head_network(read_draft(tmp_path)), export.student.module
    assert net.shape == trained.shape
    features = torch.randn(5, 2, 48)
    wanted = trained.fused(features)
    assert (net.fused(features) - wanted).norm() < 0.02 * wanted.norm()


@torch.no_grad()
def test_a_draft_of_a_target_with_another_rotary_base_keeps_it(tmp_path):
    teacher = tiny_teacher()
    config = teacher.module.config
    before = config.rope_parameters
    try:
        config.rope_parameters = {"rope_type": "default", "rope_theta": 5000.0}
        export_of("draft_model", teacher).write(tmp_path, teacher)
    finally:
        config.rope_parameters = before
    assert read_draft(tmp_path).facts.rotary_base == 5000.0


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "LARGEST_FILE", exports.HEADER_BYTES + 10)
    teacher = tiny_teacher()
    with pytest.raises(RunFailed, match=r"The draft's .* takes 0.0\d* MB, .*: choose a smaller target"):
        export_of("draft_model", teacher).write(tmp_path / "draft", teacher)
    assert not (tmp_path / "draft").exists()


@pytest.mark.parametrize("kind", ["draft_head", "draft_model"])
def test_weights_are_spread_over_files_of_a_size(tmp_path, monkeypatch, kind):
    teacher = tiny_teacher()
    export = export_of(kind, teacher)
    export.write(tmp_path / "whole", teacher)
    whole = read_draft(tmp_path / "whole")
    largest = max(tensor.numel() * tensor.element_size() for tensor in whole.tensors.values())
    monkeypatch.setattr(exports, "LARGEST_FILE", exports.HEADER_BYTES + largest + 100)
    stale = tmp_path / "spread" / "weights-99.safetensors"
    stale.parent.mkdir()
    stale.touch()
    export.write(tmp_path / "spread", teacher)
    assert (tmp_path / "spread" / "weights-2.safetensors").exists() and not stale.exists()
    spread = read_draft(tmp_path / "spread")
    assert spread.tensors.keys() == whole.tensors.keys()
    assert all(torch.equal(spread.tensors[name], tensor) for name, tensor in whole.tensors.items())
    (tmp_path / "spread" / "weights-2.safetensors").unlink()
    with pytest.raises(BadRequest, match=r"weights.safetensors has no .*: restore the draft folder"):
        read_draft(tmp_path / "spread")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["join", "final_norm", "feature_norms"])
def test_weights_that_are_no_numbers_are_refused(tmp_path, name, value):
    teacher = tiny_teacher()
    export = export_of("draft_head", teacher)
    with torch.no_grad():
        getattr(export.student.module, name).view(-1)[3] = value
    with pytest.raises(RunFailed, match="The weights are not all numbers: train again with a smaller learning rate"):
        export.write(tmp_path / "draft", teacher)
    assert not (tmp_path / "draft").exists()


def test_a_draft_is_written_over_the_one_before(tmp_path):
    teacher = tiny_teacher()
    for kind in ("draft_head", "draft_model"):
        export_of(kind, teacher).write(tmp_path, teacher)
    assert read_draft(tmp_path).facts.kind == "draft_model"
    assert json.loads((tmp_path / "specviz-draft.json").read_text())["trained"] == TRAINED


def test_a_teacher_knows_whether_its_head_is_its_embedding():
    assert tiny_teacher(is_tied=True).is_tied and not tiny_teacher().is_tied
    assert replace(tiny_teacher(), frame=FRAME).source is None


@pytest.mark.parametrize("kind", ["draft_head", "draft_model"])
def test_a_card_has_the_figures(kind):
    card = model_card("my-draft", kind, "some-target", TRAINED | MEASURED)
    for figure in (
        "# my-draft",
        "some-target",
        "12,345 tokens in 100 sequences, seed 7",
        "3 sequences, by a hash",
        "1,234 steps of 1,536 tokens, 2 passes",
        "56,789, in int8",
        "200 of 420 tokens; they are 98.7%",
        "| 1 | 0.712 | 0.655 |",
        "| 2 | 0.512 | 0.455 |",
        "5 held-out prompts, 64 new tokens, k auto: 2.35 tokens a round",
        "0.80, 0.61;",
        "1.23x of plain decoding's",
        "100.0% of the answers identical",
    ):
        assert figure in card, figure
    assert "Apache" not in card
    assert "Apache-2.0" in model_card("my-draft", kind, "SmolLM2-135M-Instruct", TRAINED)


def test_a_card_without_an_evaluation_has_no_figures_of_one():
    card = model_card("my-draft", "draft_head", "some-target", TRAINED)
    assert "1,234 steps" in card and "agreement" not in card and "In the engine" not in card


def test_a_card_with_a_bench_has_a_table_by_category():
    part = {"speedup_over_plain": 1.5, "mean_tokens_per_round": 2.25}
    bench = {
        "setting": {"prompts": 13, "max_new_tokens": 64},
        "engines": {
            "draft_head": {**part, "by_category": {"code": {**part, "speedup_over_plain": None}}},
            "draft_model": None,
        },
    }
    card = model_card("my-draft", "draft_head", "some-target", TRAINED | MEASURED, bench)
    assert "13 prompts" in card and "| all | 1.50x | 2.25 |" in card and "| code | - | 2.25 |" in card
    assert "By category" not in model_card("my-draft", "draft_model", "some-target", TRAINED, bench)
