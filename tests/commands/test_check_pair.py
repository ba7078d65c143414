"""`specviz check-pair` on draft folders: what is shared, what is cut, and whether it is this target's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specviz.__main__ import build_parser
from specviz.engine.draft_facts import WEIGHTS_FILE
from specviz.errors import BadRequest
from tests.draft_folders import model_draft, random_head, save_draft, some_vocab_ids
from tests.tiny_models import VOCAB_SIZE, build_model, tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("target")
    tiny_model().save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    return str(folder)


def verdict(capsys, target: str, draft: Path, *arguments: str) -> dict:
    args = build_parser().parse_args(["check-pair", target, str(draft), "--dtype", "float32", "--json", *arguments])
    assert args.command.run(args) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("kind", "make"), [("draft head", random_head), ("draft model of 2 layers", model_draft)])
def test_a_draft_of_this_target(kind, make, target, tmp_path, capsys):
    file = make(tiny_model(), some_vocab_ids(100), int8=True)
    found = verdict(capsys, target, save_draft(tmp_path / "draft", file))
    texts = {reason["topic"]: reason["text"] for reason in found["reasons"]}
    assert kind in texts["kind"]
    assert f"100 of the target's {VOCAB_SIZE} tokens" in texts["vocabulary_width"]
    assert "shares the target's embedding" in texts["tie"]
    assert {reason["level"] for reason in found["reasons"] if reason["topic"] != "size"} == {"ok"}
    memory = found["memory"]["draft"]
    assert memory["num_params"] == file.num_params and memory["dtype"] == "int8"
    assert memory["weight_bytes"] == sum(t.numel() * t.element_size() for t in file.tensors.values())
    assert memory["kv_bytes_per_1000_tokens"] == 1000 * 2 * 4 * 24 * file.facts.num_layers


def test_whether_it_can_say_its_text_is_told(tmp_path, capsys):
    module = build_model("llama", tie_word_embeddings=True)
    module.save_pretrained(tmp_path / "target")
    byte_level_tokenizer().save_pretrained(tmp_path / "target")
    folder = save_draft(tmp_path / "draft", random_head(module, some_vocab_ids(100)))
    (text,) = [
        reason["text"]
        for reason in verdict(capsys, str(tmp_path / "target"), folder)["reasons"]
        if reason["topic"] == "vocabulary_width"
    ]
    assert (
        f"100 of the target's {VOCAB_SIZE} tokens and those that stand in its text; the others it never drafts" in text
    )


def test_a_draft_of_another_target_is_refused(target, tmp_path, capsys):
    folder = save_draft(tmp_path / "draft", random_head(build_model("llama", seed=8)))
    found = verdict(capsys, target, folder)
    assert found["verdict"] == "refused"
    assert "another fingerprint" in next(r["text"] for r in found["reasons"] if r["level"] == "refused")


def test_in_words(target, tmp_path, capsys):
    folder = save_draft(tmp_path / "draft", random_head(tiny_model()))
    args = build_parser().parse_args(["check-pair", target, str(folder)])
    args.command.run(args)
    assert "draft head" in capsys.readouterr().out


def test_a_broken_draft_folder_is_a_wrong_request(target, tmp_path):
    folder = save_draft(tmp_path / "draft", random_head(tiny_model()))
    (folder / WEIGHTS_FILE).write_bytes(b"")
    args = build_parser().parse_args(["check-pair", target, str(folder)])
    with pytest.raises(BadRequest, match="restore the draft folder"):
        args.command.run(args)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_an_int8_target_is_told_as_the_lean_path_holds_it(stored, tmp_path, capsys):
    from specviz.engine.loader import load_pair

    target = str(tmp_path / "target")
    build_model("llama").to(stored).save_pretrained(target)
    byte_level_tokenizer().save_pretrained(target)
    loaded = load_pair(target, dtype="int8").target
    folder = save_draft(tmp_path / "draft", random_head(tiny_model(), some_vocab_ids(100)))
    args = build_parser().parse_args(["check-pair", target, str(folder), "--dtype", "int8", "--json"])
    assert args.command.run(args) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["target"] == {
        "weight_bytes": loaded.weight_bytes,
        "kv_bytes_per_1000_tokens": 1000 * loaded.kv_bytes_per_position,
        "num_params": loaded.num_params,
        "dtype": "int8",
    }


@pytest.mark.embedded
def test_the_embedded_target_is_told_as_it_runs_by_default(embedded_dir, capsys):
    from specviz.engine.loader import load_pair

    args = build_parser().parse_args(["check-pair", "smollm2-135m-instruct", "SmolLM2-135M-draft-head", "--json"])
    assert args.command.run(args) == 0
    target, loaded = json.loads(capsys.readouterr().out)["memory"]["target"], load_pair().target
    assert (target["dtype"], target["weight_bytes"]) == (loaded.precision, loaded.weight_bytes)


def test_what_is_no_model_is_told_with_what_to_give(target, tmp_path):
    draft = str(save_draft(tmp_path / "draft", random_head(tiny_model())))
    for arguments, words in (
        ([draft, target], "is a draft, not a model: give it as the draft"),
        ([str(tmp_path), draft], "has no config.json"),
        ([target, str(tmp_path)], "has no config.json"),
    ):
        args = build_parser().parse_args(["check-pair", *arguments])
        with pytest.raises(BadRequest, match=words):
            args.command.run(args)


def test_a_dtype_that_there_is_not(target, tmp_path):
    args = build_parser().parse_args(["check-pair", target, target, "--dtype", "load"])
    with pytest.raises(BadRequest, match="dtype is 'load': choose one of auto, bfloat16, float16, float32, int8"):
        args.command.run(args)
