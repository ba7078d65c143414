"""`specviz generate --draft` with draft folders: the drafter that they are for, and what is refused before loading."""

from __future__ import annotations

import json

import pytest

from specviz.__main__ import build_parser
from specviz.commands import generate as generate_command
from specviz.commands.arguments import model_sources
from specviz.config import RunSettings
from specviz.engine import draft_facts
from specviz.engine.loader import load_pair
from specviz.errors import BadRequest
from specviz.presets import find_preset
from tests.draft_folders import model_draft, random_head, save_draft
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer

SHORT = ("--prompt", "one two three", "--raw", "--max-new-tokens", "12", "--dtype", "float32", "--device", "cpu")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("drafts")
    tiny_model().save_pretrained(folder / "target")
    byte_level_tokenizer().save_pretrained(folder / "target")
    save_draft(folder / "head", random_head(tiny_model()))
    save_draft(folder / "model", model_draft(tiny_model()))
    return {name: str(folder / name) for name in ("target", "head", "model")}


def settings_of(*arguments: str) -> RunSettings:
    args = build_parser().parse_args(["generate", "--prompt", "Q", *arguments])
    return args.command._settings(args, None, model_sources(args, None))


def test_the_default_is_the_shipped_head_with_a_short_draft(monkeypatch, tmp_path):
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path)
    assert settings_of().drafter == "prompt_lookup"
    save_draft(tmp_path / "a-head", random_head(tiny_model()))
    best = settings_of()
    assert (best.drafter, best.num_draft_tokens) == ("draft_head", "auto")
    assert settings_of("--k", "3").num_draft_tokens == 3
    assert settings_of("--drafter", "prompt_lookup").num_draft_tokens == 4
    assert settings_of("--drafter", "draft_head").num_draft_tokens == "auto"
    assert settings_of("--target", str(tmp_path)).drafter == "prompt_lookup"


@pytest.mark.parametrize("kind", ["head", "model"])
def test_k_is_auto_for_a_draft_that_is_named(kind, folders):
    draft = ("--target", folders["target"], "--draft", folders[kind])
    for arguments in (draft, (*draft, "--drafter", f"draft_{kind}")):
        assert settings_of(*arguments).num_draft_tokens == "auto"
        assert settings_of(*arguments, "--k", "4").num_draft_tokens == 4


@pytest.mark.parametrize(
    ("preset", "arguments", "k"),
    [
        ("copy", [], 4),
        ("copy", ["--drafter", "early_exit"], 4),
        ("gpt2-large", [], "auto"),
        ("gpt2-large", ["--drafter", "prompt_lookup"], 4),
        ("gpt2-large", ["--drafter", "early_exit"], "auto"),
        ("gpt2-large", ["--k", "2"], 2),
    ],
)
def test_a_presets_k_is_kept_and_where_it_has_none_the_drafters_is_taken(preset, arguments, k):
    args = build_parser().parse_args(["generate", "--preset", preset, *arguments])
    preset = find_preset(preset)
    assert args.command._settings(args, preset, model_sources(args, preset)).num_draft_tokens == k


def test_a_shipped_head_for_another_target_gives_way_to_prompt_lookup(folders, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path)
    save_draft(tmp_path / "a-head", random_head(tiny_model()))
    pair = load_pair(folders["target"], dtype="float32", device="cpu")
    settings = generate_command._with_a_draft_that_fits(settings_of("--max-new-tokens", "7"), pair)
    assert (settings.drafter, settings.num_draft_tokens, settings.max_new_tokens) == ("prompt_lookup", 4, 7)
    assert "No draft head that is shipped fits this target" in capsys.readouterr().err


def generate(*arguments: str) -> int:
    args = build_parser().parse_args(["generate", *arguments])
    return args.command.run(args)


@pytest.mark.parametrize("kind", ["head", "model"])
def test_the_drafter_is_the_one_that_the_folder_is_for(kind, folders, tmp_path, capsys):
    trace = tmp_path / "run.jsonl"
    arguments = ["--target", folders["target"], "--draft", folders[kind], *SHORT]
    assert generate(*arguments, "--check", "--json", "--trace", str(trace)) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["identity"]["identical"] is True and summary["counts"]["drafted"] > 0
    assert json.loads(trace.read_text("utf-8").splitlines()[0])["drafter"]["kind"] == f"draft_{kind}"


def test_another_drafter_than_the_folders_is_refused(folders):
    with pytest.raises(BadRequest, match="--drafter is draft_model: use --drafter draft_head"):
        generate("--target", folders["target"], "--draft", folders["head"], "--drafter", "draft_model", *SHORT)


@pytest.mark.parametrize("drafter", ["draft_head", "draft_model"])
def test_without_a_draft_the_sentence_says_which_are_shipped(drafter, folders, monkeypatch, tmp_path):
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path)
    with pytest.raises(BadRequest, match="No drafts are shipped"):
        generate("--drafter", drafter, *SHORT)
    save_draft(tmp_path / "a-head", random_head(tiny_model()))
    with pytest.raises(BadRequest, match="shipped are a-head"):
        generate("--target", folders["target"], "--drafter", drafter, *SHORT)
