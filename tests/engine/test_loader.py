"""Loading pairs from folders: what is read, what is refused and in which words."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.config import RunSettings
from specviz.engine import loader
from specviz.engine.draft_facts import DRAFT_FILE
from specviz.engine.embedded import EMBEDDED_NAME, is_embedded_source
from specviz.engine.loader import load_pair
from specviz.errors import BadRequest
from specviz.presets import find_pair
from specviz.runs import Run
from tests.draft_folders import random_head, save_draft
from tests.engine.runs import generate_ids
from tests.tiny_models import VOCAB_SIZE, build_model, encoder_decoder_model, noisy_copy, recurrent_model
from tests.tiny_tokenizers import byte_level_tokenizer, unigram_tokenizer

TARGET_WIDTH, DRAFT_WIDTH = 512, 640


def save(folder: Path, model, tokenizer=None) -> str:
    model.save_pretrained(folder)
    (tokenizer or byte_level_tokenizer()).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def target_module():
    model = build_model("llama", vocab_size=TARGET_WIDTH)
    model.generation_config.eos_token_id = [4, 2]
    return model


@pytest.fixture(scope="module")
def target_dir(target_module, tmp_path_factory) -> str:
    return save(tmp_path_factory.mktemp("target"), target_module)


@pytest.fixture(scope="module")
def draft_dir(target_module, tmp_path_factory) -> str:
    wider = build_model("llama", vocab_size=DRAFT_WIDTH)
    weights = {name: w for name, w in target_module.state_dict().items() if w.shape[0] != TARGET_WIDTH}
    wider.load_state_dict(weights, strict=False)
    with torch.no_grad():
        wider.model.embed_tokens.weight[:TARGET_WIDTH] = target_module.model.embed_tokens.weight
        wider.lm_head.weight[:TARGET_WIDTH] = target_module.lm_head.weight
    return save(tmp_path_factory.mktemp("draft"), noisy_copy(wider, 0.02))


def texts_of(pair, **settings) -> Run:
    run = Run(pair, "hello world", RunSettings(max_new_tokens=20, **settings))
    list(run)
    return run


def test_a_target_comes_with_its_tokenizer_its_end_tokens_and_its_dtype(target_dir):
    pair = load_pair(target_dir, dtype="float32", device="cpu")
    assert pair.target.dtype == torch.float32
    assert pair.target.vocab_size == TARGET_WIDTH
    assert pair.eos_token_ids == {2, 4}
    assert pair.vocabulary.size == VOCAB_SIZE
    assert pair.draft is None
    assert pair.target.name == Path(target_dir).name


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_dtype_is_the_one_that_was_asked_for(target_dir, dtype):
    assert load_pair(target_dir, dtype=dtype, device="cpu").target.dtype == getattr(torch, dtype)


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16", "int8", "int4"])
def test_a_loaded_pair_of_any_draft_precision_says_what_generate_says(target_dir, draft_dir, target_module, precision):
    pair = load_pair(target_dir, draft_dir, dtype="float32", device="cpu", draft_precision=precision)
    _, ids = pair.vocabulary.encode("hello world", raw=False)
    expected = generate_ids(
        target_module, ids, 20, eos_token_id=[4, 2], suppress_tokens=list(range(VOCAB_SIZE, TARGET_WIDTH))
    )
    run = texts_of(pair, drafter="draft_model")
    assert run.result.token_ids == expected
    assert run.result.counts["accepted"] > 0
    assert pair.draft.vocab_size == DRAFT_WIDTH


def test_another_draft_precision_leaves_the_target_as_it_is(target_dir, draft_dir):
    pair = load_pair(target_dir, draft_dir, dtype="float32", device="cpu")
    other = pair.with_draft_precision("bfloat16")
    assert other.target is pair.target and other.vocabulary is pair.vocabulary
    assert (pair.draft.dtype, other.draft.dtype) == (torch.float32, torch.bfloat16)
    assert texts_of(other, drafter="draft_model").result.counts["accepted"] > 0
    with pytest.raises(BadRequest, match="draft_precision is 'int3': choose one of auto"):
        pair.with_draft_precision("int3")


def test_a_draft_folder_in_another_precision_is_read_anew(target_dir, target_module, tmp_path):
    folder = str(save_draft(tmp_path / "head", random_head(target_module)))
    pair = load_pair(target_dir, folder, dtype="float32", device="cpu")
    other = pair.with_draft_precision("bfloat16")
    assert other.draft_for("draft_head").dtype == torch.bfloat16
    assert pair.draft_for("draft_head").dtype == torch.float32


def test_what_is_loaded_is_told(target_dir, draft_dir):
    told: list[str] = []
    load_pair(target_dir, draft_dir, dtype="float32", device="cpu", notify=told.append)
    assert [Path(target_dir).name in told[0], Path(draft_dir).name in told[1]] == [True, True]


# --- refused ----------------------------------------------------------------------------------


def refusal(*arguments, **keywords) -> str:
    with pytest.raises(BadRequest) as caught:
        load_pair(*arguments, dtype="float32", device="cpu", **keywords)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("family", ["mamba", "jamba"])
def test_a_recurrent_model_is_refused_by_name(tmp_path, target_dir, family):
    folder = save(tmp_path / f"my-{family}", recurrent_model(family))
    for sentence in (refusal(folder), refusal(target_dir, folder)):
        assert f"my-{family}" in sentence
        assert "recurrent" in sentence


def test_an_encoder_decoder_is_refused(tmp_path):
    assert "my-t5" in refusal(save(tmp_path / "my-t5", encoder_decoder_model()))


def test_a_draft_of_another_tokenizer_is_refused_with_where_it_differs(tmp_path, target_dir):
    sentence = refusal(target_dir, save(tmp_path / "other", build_model("llama"), unigram_tokenizer()))
    assert "token" in sentence
    assert "other" in sentence or "draft" in sentence


def test_a_draft_too_narrow_for_the_tokenizer_is_refused(tmp_path, target_dir):
    narrow = build_model("llama", vocab_size=300)
    sentence = refusal(target_dir, save(tmp_path / "narrow", narrow))
    assert "300" in sentence


def test_a_folder_without_a_model_is_refused_with_what_to_give(tmp_path, target_dir):
    empty, told = tmp_path / "empty", []
    empty.mkdir()
    head = str(save_draft(tmp_path / "head", random_head(build_model("llama"))))
    assert f"'{empty}' has no config.json" in refusal(str(empty), notify=told.append)
    assert "is a draft, not a model: give it as the draft" in refusal(head, notify=told.append)
    assert "The drafts that are shipped are" in refusal(target_dir, str(empty), notify=told.append)
    (tmp_path / "head" / DRAFT_FILE).write_text("{")
    assert "is not JSON" in refusal(target_dir, head, notify=told.append)
    assert told == [], "nothing was loaded"


def test_a_folder_without_a_tokenizer_is_refused_as_such(tmp_path):
    build_model("llama").save_pretrained(tmp_path)
    assert "no tokenizer is in it" in refusal(str(tmp_path))


def test_a_draft_of_another_tokenizer_is_refused_before_any_weights_are_read(tmp_path, target_dir, monkeypatch):
    monkeypatch.setattr(loader, "load_module", None)
    assert "another tokenizer" in refusal(target_dir, save(tmp_path, build_model("llama"), unigram_tokenizer()))


def test_without_a_network_what_can_be_done_without_one_is_said(monkeypatch):
    monkeypatch.setattr(loader, "_hub_answers", lambda: False)
    sentence = refusal("nobody/no-such-model")
    assert "no network to the model hub: choose the embedded model" in sentence and "fetch" not in sentence
    for model in (find_pair("smollm2-1.7b").target, find_pair("gpt2-large").draft):
        assert "`python -m specviz fetch " in loader._unreachable_sentence(model)
    assert "fetch smollm2-1.7b`" in loader._unreachable_sentence(find_pair("smollm2-1.7b").target)


def test_the_hub_is_asked_again_after_a_minute(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    now, asked = [0.0], []

    def connect(address, timeout):
        asked.append(address)
        if len(asked) == 1:
            raise OSError("no network")
        return io.BytesIO()

    monkeypatch.setattr(loader.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(loader.socket, "create_connection", connect)
    loader._hub_answered.cache_clear()
    answers = []
    for now[0] in (1.0, 59.0, 61.0):
        answers.append(loader._hub_answers())
    loader._hub_answered.cache_clear()
    assert answers == [False, False, True] and len(asked) == 2


@pytest.mark.parametrize(
    ("source", "is_it"),
    [(None, True), ("embedded", True), ("Embedded", True), ("SmolLM2-135M-Instruct", True), ("smollm2-135m-instruct", True),
     ("HuggingFaceTB/SmolLM2-135M-Instruct", False), ("", False), ("SmolLM2-135M", False)],
)  # fmt: skip
def test_the_embedded_model_goes_by_the_name_that_is_shown_too(source, is_it):
    assert is_embedded_source(source) is is_it


def test_a_folder_here_goes_before_the_shown_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / EMBEDDED_NAME).mkdir()
    assert not is_embedded_source(EMBEDDED_NAME)


@pytest.mark.parametrize("what", ["missing folder", "empty folder", "no weights", "broken weights"])
def test_what_is_no_model_is_refused_in_one_sentence(tmp_path, what):
    folder = tmp_path / "nothing-here"
    if what != "missing folder":
        folder.mkdir()
    if what in ("no weights", "broken weights"):
        save(folder, build_model("llama"))
        (folder / "model.safetensors").unlink()
    if what == "broken weights":
        (folder / "model.safetensors").write_bytes(b"not a tensor in sight")
    assert "nothing-here" in refusal(str(folder))


def test_pickled_weights_are_not_read(tmp_path):
    model = build_model("llama")
    folder = Path(save(tmp_path / "pickled", model))
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert "safetensors" in refusal(str(folder))


@pytest.mark.parametrize("argument", ["device", "dtype", "draft_precision"])
def test_an_unknown_choice_is_refused_with_the_choices(target_dir, argument):
    with pytest.raises(BadRequest, match=rf"{argument} is 'nonsense'.*auto"):
        load_pair(target_dir, **{argument: "nonsense"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_here_is_refused_with_those_that_are(target_dir):
    with pytest.raises(BadRequest, match=r"cuda.*cpu"):
        load_pair(target_dir, device="cuda")


def test_a_model_that_lacks_weights_is_refused_and_never_filled_with_random_ones(target_dir, tmp_path):
    folder = tmp_path / "gap"
    shutil.copytree(target_dir, folder)
    weights = load_file(folder / "model.safetensors")
    lost = [name for name in weights if ".layers.1." in name]
    save_file(
        {name: w for name, w in weights.items() if name not in lost}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(BadRequest, match="lacks"):
        load_pair(str(folder), dtype="float32")


@pytest.mark.parametrize("source", ["/no/such/folder", "./nothing", "a/b/c", ""])
def test_what_is_neither_a_folder_nor_a_hub_id_is_refused_at_once(source):
    with pytest.raises(BadRequest, match="no folder here and no hub id"):
        load_pair(source)


def test_a_quantized_draft_says_so_and_weighs_less(target_dir, draft_dir):
    sizes = {}
    for precision in ("float32", "int8"):
        pair = load_pair(target_dir, draft_dir, dtype="float32", draft_precision=precision)
        described = Run(pair, "hi", RunSettings(drafter="draft_model")).drafter.describe()
        assert described["precision"] == precision
        sizes[precision] = described["weight_bytes"]
    assert sizes["int8"] < sizes["float32"]
