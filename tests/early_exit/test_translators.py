"""Trained exit heads on a target: against a direct computation, at the last layer, and of whom they are."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.early_exit import exit_head_files
from specviz.early_exit.exit_head_files import EXIT_HEADS_FILE, WEIGHTS_FILE, read_exit_heads, shipped_exit_heads
from specviz.early_exit.translators import TranslatedHeads, open_translators
from specviz.engine.hf_model import TransformersModel
from specviz.errors import BadRequest
from tests.tiny_models import build_model
from tests.training.tiny_exit_heads import exit_training, small_parts, write_text
from tests.training.tiny_teachers import tiny_teacher


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("exit-heads")
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        training = exit_training(base, write_text(base))
        training.train()
        return training.export()


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "heads")


@pytest.fixture(params=["int8", "float32", "transformers"])
def target(request):
    if request.param == "transformers":
        return TransformersModel(tiny_teacher().module, "tiny")
    return tiny_teacher(getattr(torch, request.param)).model


def states(rows=5, hidden=48):
    return 3 * torch.randn(rows, hidden, generator=torch.Generator().manual_seed(0))


def directly(file, layer, rows):
    """The map as its docstring has it, one row and one number at a time."""
    index, out = layer - 1, []
    for row in rows.double():
        rms = row.square().mean().sqrt()
        low = [sum(a * b for a, b in zip(weights, row, strict=True)) for weights in file.reduce[index].double()]
        out.append(
            torch.stack(
                [
                    file.scale[index, i].double() * row[i]
                    + sum(a * b for a, b in zip(file.expand[index, i].double(), low, strict=True))
                    + rms * file.bias[index, i].double()
                    for i in range(len(row))
                ]
            )
        )
    return torch.stack(out).float()


@pytest.mark.parametrize("layer", [1, 2])
def test_a_state_is_translated_as_the_file_says(folder, target, layer):
    file = read_exit_heads(folder)
    heads = TranslatedHeads(file, target, tiny_teacher().embedding)
    rows = states(2)
    torch.testing.assert_close(heads.translated(layer, rows), directly(file, layer, rows), rtol=1e-4, atol=1e-4)


def test_logits_are_the_targets_own_of_translated_states(folder, target):
    heads = TranslatedHeads(read_exit_heads(folder), target, tiny_teacher().embedding)
    translated = heads.translated(2, states())
    torch.testing.assert_close(heads.full_logits(2, states()), target.read_out(translated))
    torch.testing.assert_close(
        heads.cut_logits(2, states()), target.read_out(translated)[:, heads.vocab_ids], rtol=1e-4, atol=1e-4
    )


def test_the_last_layer_is_left_alone(folder, target):
    heads = TranslatedHeads(read_exit_heads(folder), target, tiny_teacher().embedding)
    rows = states()
    assert torch.equal(heads.translated(3, rows), rows)
    assert torch.equal(heads.full_logits(3, rows), target.read_out(rows))


def test_the_size_of_a_state_does_not_matter(folder):
    heads = TranslatedHeads(read_exit_heads(folder), tiny_teacher().model, tiny_teacher().embedding)
    once, thousandfold = heads.cut_logits(1, states()), heads.cut_logits(1, 1000 * states())
    torch.testing.assert_close(once, thousandfold, rtol=2e-2, atol=2e-2)
    large, small = heads.translated(1, 1000 * states()), heads.translated(1, states())
    torch.testing.assert_close(large / 1000, small, rtol=1e-4, atol=1e-4)


def test_a_row_is_the_same_alone(folder):
    heads = TranslatedHeads(read_exit_heads(folder), tiny_teacher().model, tiny_teacher().embedding)
    whole = heads.cut_logits(1, states())
    for index in range(5):
        torch.testing.assert_close(
            heads.cut_logits(1, states()[index : index + 1])[0], whole[index], rtol=1e-3, atol=1e-3
        )


def test_what_they_are_is_told(folder, target):
    heads = TranslatedHeads(read_exit_heads(folder), target, tiny_teacher().embedding)
    assert heads.kind == "translators" and heads.name == "tiny-exit-heads" and heads.layers == (1, 2)
    assert heads.num_params == 2 * (2 * 48 + 2 * 12 * 48)
    assert len(heads.vocab_ids) == 150 and set(heads.exit_layers) <= {1, 2}
    assert heads.weight_bytes > 0


def test_those_of_another_target_are_refused(folder):
    other = TransformersModel(build_model("llama", seed=5, max_positions=256), "other")
    with pytest.raises(BadRequest, match=r"tiny-exit-heads was trained for .*, and other has other weights"):
        TranslatedHeads(read_exit_heads(folder), other)


def test_shipped_ones_are_found_by_their_targets_embedding(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "shipped" / "tiny")
    monkeypatch.setattr(exit_head_files, "SHIPPED_DIR", tmp_path / "shipped")
    model = TransformersModel(tiny_teacher().module, "tiny")
    assert open_translators(model).name == "tiny-exit-heads"
    assert shipped_exit_heads(tiny_teacher().embedding + 1) is None
    assert open_translators(TransformersModel(build_model("llama", seed=5, max_positions=256), "other")) is None


FACTS = {
    "format is 2, and this version reads 1": {"format": 2},
    "name is '', but it has to be a text": {"name": ""},
    "target is 'x', but it has to be an object": {"target": "x"},
    "rank is '0', but it has to be a whole number": {"rank": 0},
    "cut is 'True', but it has to be a whole number": {"cut": True},
    r"exit_layers is '\[2, 1\]', but it has to be layers from 1 to 2, the lowest first": {"exit_layers": [2, 1]},
    r"exit_layers is '\[0, 1\]', but it has to be layers from 1 to 2": {"exit_layers": [0, 1]},
    r"exit_layers is '\[1, 1\]', but it has to be a list of different layers": {"exit_layers": [1, 1]},
    r"exit_layers is '\[1, 3\]', but it has to be layers from 1 to 2": {"exit_layers": [1, 3]},
    "has a reduce of 2 x 12 x 48 in int8, and it has to be 2 x 13 x 48": {"rank": 13},
    "has a vocab_ids of 150 in int32, and it has to be 151": {"cut": 151},
}


@pytest.mark.parametrize("sentence", FACTS)
def test_facts_that_cannot_be_are_refused(copied, sentence):
    path = copied / EXIT_HEADS_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | FACTS[sentence]))
    with pytest.raises(BadRequest, match=sentence):
        read_exit_heads(copied)


def without(name):
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def with_value(name, place, value):
    def changed(tensors):
        tensors[name][place] = value
        return tensors

    return changed


WEIGHTS = {
    "has no expand.scales": without("expand.scales"),
    "has a bias that is not all numbers": with_value("bias", (0, 0), torch.nan),
    "has vocab_ids that do not ascend": with_value("vocab_ids", 0, 100),
    "has vocab_ids outside of 0 to": with_value("vocab_ids", 0, -1),
    "has a scale of 2 x 48 in float16": lambda tensors: tensors | {"scale": tensors["scale"].half()},
}


@pytest.mark.parametrize("sentence", WEIGHTS)
def test_weights_that_cannot_be_are_refused(copied, sentence):
    save_file(WEIGHTS[sentence](load_file(copied / WEIGHTS_FILE)), copied / WEIGHTS_FILE)
    with pytest.raises(BadRequest, match=sentence):
        read_exit_heads(copied)


def test_damaged_and_missing_files_are_refused(copied):
    whole = (copied / WEIGHTS_FILE).read_bytes()
    (copied / WEIGHTS_FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadRequest, match=r"weights.safetensors cannot be read .*: restore the folder of exit heads"):
        read_exit_heads(copied)
    (copied / WEIGHTS_FILE).unlink()
    with pytest.raises(BadRequest, match=r"weights.safetensors cannot be read"):
        read_exit_heads(copied)
    (copied / EXIT_HEADS_FILE).write_text("{")
    with pytest.raises(BadRequest, match="is not JSON"):
        read_exit_heads(copied)
    (copied / EXIT_HEADS_FILE).write_text("[]")
    with pytest.raises(BadRequest, match="holds no JSON object"):
        read_exit_heads(copied)
    (copied / EXIT_HEADS_FILE).unlink()
    with pytest.raises(BadRequest, match="name a folder of exit heads"):
        read_exit_heads(copied)
