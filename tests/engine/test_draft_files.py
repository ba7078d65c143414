"""Draft folders: what is written is read, and each way of being wrong has its sentence."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.engine import draft_facts, draft_files
from specviz.engine.draft_facts import (
    DRAFT_FILE,
    WEIGHTS_FILE,
    draft_kind_of,
    find_draft_folder,
    read_draft_facts,
    shipped_names,
    shipped_sentence,
    why_no_draft,
)
from specviz.engine.draft_files import embedding_fingerprint, read_draft, shipped_for
from specviz.engine.draft_loading import open_draft
from specviz.errors import BadRequest
from tests.draft_folders import model_draft, random_head, save_draft
from tests.engine.lean_models import float32_of
from tests.engine.runs import tiny_target
from tests.tiny_models import build_model, tiny_model

MAKERS = {"draft_head": random_head, "draft_model": model_draft}


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_written_is_read(kind, int8, tmp_path):
    file = MAKERS[kind](tiny_model(), int8=int8)
    read = read_draft(save_draft(tmp_path / "draft", file))
    assert read.facts == type(read.facts)(
        **{name: getattr(file.facts, name) for name in file.facts.__dataclass_fields__ if name != "folder"},
        folder=tmp_path / "draft",
    )
    assert torch.equal(read.vocab_ids, file.vocab_ids)
    assert read.tensors.keys() == file.tensors.keys()
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in file.tensors.items())
    assert (read.is_int8, read.is_tied) == (int8, False)


def test_half_precision_is_read_as_numbers(tmp_path):
    file = random_head(tiny_model())
    folder = save_draft(tmp_path / "draft", file)
    halves = {n: t.half() if t.dim() == 2 and n != "feature_norms" else t for n, t in file.tensors.items()}
    save_file(halves | {"vocab_ids": file.vocab_ids.int()}, folder / WEIGHTS_FILE)
    floats = read_draft(folder).floats()
    torch.testing.assert_close(floats["qkv"], file.tensors["qkv"], atol=1e-3, rtol=1e-3)
    assert open_draft(read_draft(folder), float32_of(tiny_model())).precision == "float32"


def test_a_tied_target_needs_no_head_in_the_file(tmp_path):
    module = build_model("llama", tie_word_embeddings=True)
    read = read_draft(save_draft(tmp_path / "draft", random_head(module)))
    assert read.is_tied and "head" not in read.tensors


def test_the_fingerprint_is_of_the_numbers_rounded_to_bfloat16():
    embedding = torch.randn(5000, 7)
    expected = hashlib.sha256(embedding.to(torch.bfloat16).float().numpy().tobytes()).hexdigest()
    assert embedding_fingerprint(embedding) == expected
    assert embedding_fingerprint(embedding.to(torch.bfloat16)) == expected
    assert embedding_fingerprint(embedding + 0.1) != expected
    assert embedding_fingerprint(torch.randn(7, 5000).T) != expected


# --- wrong facts ----------------------------------------------------------------------------------


def sentence_of(call: Callable[[], object]) -> str:
    with pytest.raises(BadRequest) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


def with_facts(folder: Path, change: Callable[[dict], object]) -> Path:
    path = folder / DRAFT_FILE
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")
    return folder


WRONG_FACTS = {
    "another format": (lambda v: v.update(format=2), "format is 2, and this version reads 1"),
    "no format": (lambda v: v.pop("format"), "format is None"),
    "another kind": (lambda v: v.update(kind="draft_tree"), "kind is 'draft_tree'.*one of draft_head, draft_model"),
    "no name": (lambda v: v.pop("name"), "name is missing.*a text"),
    "no target": (lambda v: v.pop("target"), "target is missing.*an object"),
    "a target that is a list": (lambda v: v.update(target=[1]), "target is .*an object"),
    "no fingerprint": (lambda v: v["target"].pop("embedding_sha256"), "target.embedding_sha256 is missing"),
    "a negative size": (lambda v: v["shape"].update(hidden=-1), "shape.hidden is '-1'"),
    "an endless size": (lambda v: v["shape"].update(heads=10**30), "shape.heads is"),
    "a size of true": (lambda v: v["shape"].update(heads=True), "shape.heads is"),
    "another width than the target": (lambda v: v["shape"].update(hidden=50), "shape.hidden is '50'.*target's 48"),
    "heads that do not share": (lambda v: v["shape"].update(kv_heads=3), "shape.kv_heads is '3'.*divisor"),
    "odd heads": (lambda v: v["shape"].update(head_dim=11), "shape.head_dim is '11'.*even"),
    "no layers": (lambda v: v["shape"].update(feature_layers=[]), "shape.feature_layers is"),
    "a layer twice": (lambda v: v["shape"].update(feature_layers=[1, 1]), "shape.feature_layers is"),
    "layers as text": (lambda v: v["shape"].update(feature_layers="123"), "shape.feature_layers is"),
    "no epsilon": (lambda v: v["shape"].pop("epsilon"), "shape.epsilon is missing"),
    "an infinite base": (lambda v: v["shape"].update(rotary_base=1e999), "shape.rotary_base is"),
    "no positions": (lambda v: v.update(max_positions=0), "max_positions is '0'"),
    "three digits": (lambda v: v.update(down_digits=3), "down_digits is '3'.*one of 1, 2"),
    "no history": (lambda v: v.update(trained=None), "trained is 'None'.*an object"),
}


@pytest.mark.parametrize(("change", "words"), WRONG_FACTS.values(), ids=WRONG_FACTS)
def test_wrong_facts_are_named(change, words, tmp_path):
    folder = with_facts(save_draft(tmp_path / "draft", random_head(tiny_model())), change)
    assert re.search(words, sentence_of(lambda: read_draft(folder)))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_facts_that_are_no_object_are_refused(content, tmp_path):
    folder = save_draft(tmp_path / "draft", random_head(tiny_model()))
    (folder / DRAFT_FILE).write_bytes(content)
    assert DRAFT_FILE in sentence_of(lambda: read_draft_facts(folder))


# --- wrong weights --------------------------------------------------------------------------------


def with_tensors(folder: Path, change: Callable[[dict], object]) -> Path:
    tensors = load_file(folder / WEIGHTS_FILE)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS_FILE)
    return folder


def overflow(tensors: dict) -> None:
    tensors["qkv"][3, 4:6] = 100


WRONG_WEIGHTS = {
    "no ids": (lambda t: t.pop("vocab_ids"), "has no vocab_ids"),
    "ids in another dtype": (lambda t: t.update(vocab_ids=t["vocab_ids"].long()), "vocab_ids of .* in int64"),
    "no id at all": (lambda t: t.update(vocab_ids=t["vocab_ids"][:0]), "vocab_ids of 0"),
    "ids that do not ascend": (lambda t: t.update(vocab_ids=t["vocab_ids"].flip(0)), "do not ascend"),
    "an id twice": (lambda t: t["vocab_ids"].__setitem__(1, int(t["vocab_ids"][0])), "do not ascend"),
    "an id beyond": (lambda t: t["vocab_ids"].__setitem__(-1, 10**6), "vocab_ids from .* to 1000000"),
    "an id below": (lambda t: t["vocab_ids"].__setitem__(0, -1), "vocab_ids from -1"),
    "no matrix": (lambda t: t.pop("gate_up"), "has no gate_up"),
    "no norm": (lambda t: t.pop("state_norm"), "has no state_norm"),
    "no scales": (lambda t: t.pop("fuse.scales"), "has no fuse.scales"),
    "another shape": (lambda t: t.update(join=t["join"][:, :-1]), "a join of 48 x 95.*48 x 96"),
    "scales of another shape": (lambda t: t.update({"down.scales": torch.ones(3)}), "a down.scales of 3"),
    "a norm in halves": (
        lambda t: t.update(final_norm=t["final_norm"].half()),
        "final_norm in float16, not in float32",
    ),
    "a matrix of doubles": (lambda t: t.update(output=t["output"].double()), "output in float64"),
    "no number": (lambda t: t["mlp_norm"].__setitem__(0, torch.nan), "mlp_norm that is not all numbers"),
    "an infinite scale": (lambda t: t["qkv.scales"].__setitem__(0, torch.inf), "qkv.scales that is not all numbers"),
    "neighbours that overflow": (overflow, "qkv whose neighbours sum to more than 128"),
    "a head of another size": (lambda t: t.update(head=t["head"][1:]), "a head of"),
}


@pytest.mark.parametrize(("change", "words"), WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS)
def test_wrong_weights_are_named(change, words, tmp_path):
    folder = with_tensors(save_draft(tmp_path / "draft", random_head(tiny_model(), int8=True)), change)
    assert re.search(words, sentence_of(lambda: read_draft(folder)))


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_file_is_refused(kept, tmp_path):
    path = save_draft(tmp_path / "draft", random_head(tiny_model())) / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:kept])
    assert WEIGHTS_FILE in sentence_of(lambda: read_draft(tmp_path / "draft"))


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = save_draft(tmp_path / "draft", model_draft(tiny_model()))
    (folder / WEIGHTS_FILE).unlink()
    assert "restore the draft folder" in sentence_of(lambda: read_draft(folder))


# --- another target -------------------------------------------------------------------------------


def test_another_target_is_refused_with_what_differs():
    file = random_head(tiny_model())
    other = float32_of(build_model("llama", seed=5))
    assert "another fingerprint" in sentence_of(lambda: open_draft(file, other))
    wider = float32_of(build_model("llama", vocab_size=900))
    assert "900 x 48" in sentence_of(lambda: open_draft(file, wider))
    deep = random_head(tiny_model(), feature_layers=(1, 9))
    assert "reads layer 9" in sentence_of(lambda: open_draft(deep, tiny_target()))


# --- drafts by name -------------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path, monkeypatch) -> Path:
    for module in (draft_facts, draft_files):
        monkeypatch.setattr(module, "SHIPPED_DIR", tmp_path / "drafts")
    return tmp_path / "drafts"


def test_without_shipped_drafts_there_is_none_and_a_sentence_says_so(shipped):
    assert shipped_names() == () and find_draft_folder("head") is None
    assert "No drafts are shipped" in shipped_sentence()
    assert "no draft head" in why_no_draft("draft_head", None, is_embedded=True)


def test_shipped_drafts_are_found_by_name_and_by_the_target_that_they_were_trained_for(shipped):
    other = build_model("llama", seed=5)
    save_draft(shipped / "a-head", random_head(other))
    save_draft(shipped / "b-head", random_head(tiny_model()))
    save_draft(shipped / "model", model_draft(tiny_model()))
    assert shipped_names() == ("a-head", "b-head", "model")
    assert shipped_names("draft_head") == ("a-head", "b-head")
    assert find_draft_folder("model") == shipped / "model"
    assert draft_kind_of("b-head") == "draft_head" and draft_kind_of("owner/model") == "draft_model"
    embedding = tiny_model().get_input_embeddings().weight
    assert shipped_for("draft_head", embedding) == shipped / "b-head"
    assert shipped_for("draft_model", other.get_input_embeddings().weight) is None
    assert "a-head, b-head, model" in shipped_sentence()


def test_why_there_is_no_draft(shipped):
    save_draft(shipped / "b-head", random_head(tiny_model()))
    assert why_no_draft("draft_head", None, is_embedded=True) is None
    assert "no draft head" in why_no_draft("draft_head", None, is_embedded=False)
    assert "no draft model" in why_no_draft("draft_model", None, is_embedded=True)
    assert why_no_draft("draft_head", "b-head", is_embedded=False) is None
    assert "is for the drafter draft_head" in why_no_draft("draft_model", "b-head", is_embedded=False)
    assert why_no_draft("draft_model", "owner/model", is_embedded=False) is None


@pytest.mark.parametrize("name", ["", ".", "..", "../drafts/b-head", "a/b", "x\\y"])
def test_a_name_leads_nowhere_else(shipped, name):
    save_draft(shipped / "b-head", random_head(tiny_model()))
    assert find_draft_folder(name) is None
