"""Who takes the lean path, what is refused and in which words, the kept int8 copy, and threads."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from specviz.config import RunSettings
from specviz.engine import embedded, int8_weights, lean_loading
from specviz.engine.embedded import EMBEDDED_NAME, INT8_FILE
from specviz.engine.lean_loading import quantized, read_int8, why_general, write_int8
from specviz.engine.lean_model import LeanModel
from specviz.engine.lean_weights import why_not_lean
from specviz.engine.loader import load_pair
from specviz.errors import BadRequest, SpecVizError
from specviz.runs import Run
from tests.engine.lean_models import LLAMA3_ROPE
from tests.engine.test_loader import save
from tests.tiny_models import MAX_POSITIONS, NUM_LAYERS, VOCAB_SIZE, build_model
from tests.tiny_tokenizers import byte_level_tokenizer

CPU = torch.device("cpu")

pytestmark = pytest.mark.skipif(why_general(CPU) is not None, reason="int8 models do not take the lean path here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    module = build_model("llama")
    module.generation_config.eos_token_id = [4, 2]
    return save(tmp_path_factory.mktemp("lean"), module)


# --- loading ----------------------------------------------------------------------------------


def test_int8_is_a_lean_model_that_says_so(folder):
    pair = load_pair(folder, dtype="int8", device="cpu")
    assert isinstance(pair.target, LeanModel)
    assert pair.target.name == Path(folder).name
    assert pair.target.num_params == sum(parameter.numel() for parameter in build_model("llama").parameters())
    assert pair.target.max_positions == MAX_POSITIONS
    assert pair.eos_token_ids == {2, 4}
    started, *_ = Run(pair, "hello world", RunSettings(max_new_tokens=2))
    assert started["target"]["dtype"] == "int8"
    assert started["target"]["device"] == "cpu"


@pytest.mark.parametrize("kind", ["prompt_lookup", "early_exit", "draft_model"])
def test_a_loaded_pair_says_with_a_drafter_what_it_says_without(folder, kind):
    pair = load_pair(folder, folder if kind == "draft_model" else None, dtype="int8", device="cpu")
    texts = []
    for drafter in ("none", kind):
        run = Run(pair, "one two three one two three", RunSettings(drafter=drafter, max_new_tokens=30, min_ngram=1))
        list(run)
        texts.append(run.result.token_ids)
    assert texts[0] == texts[1]
    assert run.result.counts["drafted"] > 0


def test_any_other_model_takes_the_general_path_unless_it_is_asked_for_int8(folder):
    assert not isinstance(load_pair(folder, device="cpu").target, LeanModel)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_end_tokens_are_the_same_on_both_paths_without_a_generation_config(tmp_path, dtype):
    module = build_model("llama", eos_token_id=[4, 2])
    folder = Path(save(tmp_path / "bare", module))
    (folder / "generation_config.json").unlink()
    assert load_pair(str(folder), dtype=dtype, device="cpu").eos_token_ids == {2, 4}


@pytest.mark.parametrize("dtype", ["auto", "int8"])
def test_a_users_folder_of_the_embedded_models_name_is_the_users(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(embedded, "embedded_int8_folder", lambda *_: pytest.fail("the embedded weights were taken"))
    folder = save(tmp_path / EMBEDDED_NAME, build_model("llama"))
    target = load_pair(folder, dtype=dtype, device="cpu").target
    assert (target.num_layers, target.vocab_size) == (NUM_LAYERS, VOCAB_SIZE)
    assert isinstance(target, LeanModel) == (dtype == "int8")


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gpt2", "qwen2"])
def test_another_family_is_refused_in_int8_with_a_reason_and_a_remedy(tmp_path, family):
    folder = save(tmp_path / "other", build_model(family))
    with pytest.raises(BadRequest, match=rf"int8.* {family} family.*choose another dtype\.$") as caught:
        load_pair(folder, dtype="int8", device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "hide, reason",
    [
        (lambda patch: patch.setattr(lean_loading, "find_spec", lambda name: None), "numba"),
        (
            lambda patch: patch.setattr(lean_loading.torch.backends.quantized.__class__, "supported_engines", []),
            "fbgemm",
        ),
    ],
    ids=["numba", "fbgemm"],
)
def test_a_machine_that_cannot_refuses_int8_and_takes_the_general_path_for_auto(folder, monkeypatch, hide, reason):
    hide(monkeypatch)
    assert reason in why_general(CPU)
    with pytest.raises(BadRequest, match=rf"dtype is 'int8', but .*{reason}.*float32"):
        load_pair(folder, dtype="int8", device="cpu")
    assert not isinstance(load_pair(folder, dtype="auto", device="cpu").target, LeanModel)


def test_other_devices_take_the_general_path():
    assert "cuda" in why_general(torch.device("cuda"))
    assert "mps" in why_general(torch.device("mps"))


LEAN = {"plain": {}, "tied": {"tie_word_embeddings": True}, "llama3": {"rope_parameters": LLAMA3_ROPE}}
NOT_LEAN = {
    "attention biases": ({"attention_bias": True}, "biases"),
    "other biases": ({"mlp_bias": True}, "biases"),
    "another activation": ({"hidden_act": "gelu"}, "activation"),
    "frequencies that change": (
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
        "dynamic",
    ),
    "yarn": ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}}, "yarn"),
}


@pytest.mark.parametrize("changes", LEAN.values(), ids=LEAN)
def test_plain_llamas_are_lean(changes):
    assert why_not_lean(AutoConfig.for_model("llama", **changes)) is None


@pytest.mark.parametrize("changes, reason", NOT_LEAN.values(), ids=NOT_LEAN)
def test_what_the_lean_forward_does_not_do_is_named(changes, reason):
    assert reason in why_not_lean(AutoConfig.for_model("llama", **changes))


@pytest.mark.parametrize("family", ["mistral", "qwen3", "gemma", "gpt_neox", "phi3"])
def test_other_families_are_not_lean(family):
    assert family in why_not_lean(build_model(family).config)


# --- the kept copy ----------------------------------------------------------------------------


def test_the_int8_copy_is_written_once_and_read_as_it_was_made(folder, monkeypatch):
    path = write_int8(Path(folder))
    assert path.name == INT8_FILE
    assert [each.name for each in Path(folder).glob(".int8-*")] == [], "nothing is left of the writing"
    tensors, num_params = read_int8(Path(folder))
    module = build_model("llama")
    made = quantized(module, byte_level_tokenizer())
    assert tensors.keys() == made.keys()
    assert all(torch.equal(tensors[name], made[name]) for name in made)
    assert num_params == sum(parameter.numel() for parameter in module.parameters())
    monkeypatch.setattr(lean_loading, "quantized", lambda *_: pytest.fail("it is there already"))
    assert write_int8(Path(folder)) == path


def test_a_copy_that_could_not_be_written_leaves_nothing(tmp_path, monkeypatch):
    folder = Path(save(tmp_path / "lean", build_model("llama")))
    before = sorted(folder.iterdir())

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(SpecVizError, match=r"disk .* is full"):
        write_int8(folder)
    assert sorted(folder.iterdir()) == before


def test_a_context_shorter_than_the_calibration_texts_is_enough(tmp_path):
    texts = [json.loads(line)["text"] for line in lean_loading.CALIBRATION_FILE.read_text("utf-8").splitlines()]
    assert min(len(byte_level_tokenizer()(text)["input_ids"]) for text in texts) > 12
    folder = save(tmp_path / "short", build_model("llama", max_positions=12))
    run = Run(load_pair(folder, dtype="int8", device="cpu"), "a", RunSettings(max_new_tokens=20), raw=True)
    list(run)
    assert run.result.reason == "context"


# --- threads ----------------------------------------------------------------------------------


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_rounding_takes_one_thread_and_gives_the_others_back(four_threads, monkeypatch):
    seen = []
    monkeypatch.setattr(int8_weights, "quantize", lambda *_: seen.append(torch.get_num_threads()) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        quantized(build_model("llama"), byte_level_tokenizer())
    assert (seen, torch.get_num_threads()) == ([1], 4)


def test_a_loaded_model_keeps_to_the_threads_that_the_user_named_in_every_thread(folder, four_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    target, seen = load_pair(folder, dtype="int8", device="cpu").target, []

    def one_pass() -> None:
        torch.set_num_threads(1)
        target.forward([1], target.new_cache())
        seen.append(torch.get_num_threads())

    one_pass()
    thread = threading.Thread(target=one_pass)
    thread.start()
    thread.join()
    assert seen == [4, 4]
