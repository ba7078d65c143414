"""`specviz distill` from end to end on a tiny target: generated, trained, broken off, gone on with, measured, used."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from specviz.__main__ import main
from specviz.commands import distill
from specviz.config import RunSettings
from specviz.early_exit.exit_head_files import EXIT_HEADS_FILE, read_exit_heads
from specviz.early_exit.translators import TranslatedHeads
from specviz.engine.draft_facts import DRAFT_FILE
from specviz.engine.draft_files import read_draft
from specviz.engine.loader import load_pair
from specviz.metrics import MetricsFold
from specviz.runs import Run
from specviz.training import corpus, generation
from tests.tiny_models import build_model
from tests.tiny_tokenizers import byte_level_tokenizer

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"draft_head": ["--feature-layers", "1,2"], "draft_model": ["--layers", "2"]}
PROMPTS = ("one two", "The quick brown", "def add", "hello")


def save_target(folder: Path, family: str = "llama", seed: int = 0) -> str:
    """A target that says few tokens, and is mostly sure which: what can be learnt from little text."""
    settings = {"hidden_size": 32} if family == "llama" else {}
    module = build_model(family, seed=seed, max_positions=200, **settings)
    if family == "llama":
        with torch.no_grad():
            module.lm_head.weight *= 0.1
            module.lm_head.weight[5::9] *= 30
    module.save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    return str(folder)


@dataclass
class Spoken:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str
    stages: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def result(self) -> dict:
        return json.loads(self.out)


def specviz(*arguments: str, interrupt_at: tuple[str, int] | None = None) -> Spoken:
    """Runs a command in this process; interrupted once a stage has come so far."""
    stages, real = [], distill.terminal_progress

    @contextmanager
    def watched_progress():
        with real() as report:

            def watch(stage, done, total):
                stages.append((stage, done, total))
                report(stage, done, total)
                if (stage, done) == interrupt_at:
                    raise KeyboardInterrupt

            yield watch

    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(distill, "terminal_progress", watched_progress)
        patch.setattr(generation, "SEQUENCES_PER_SHARD", 16)
        patch.setattr(corpus, "HELD_OUT_EVERY", 8)
        code = main(list(arguments))
    return Spoken(code, out.getvalue(), err.getvalue(), stages)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_target(tmp_path_factory.mktemp("models") / "target")


@dataclass
class Distilled:
    """The whole story of a draft."""

    kind: str
    target: str
    arguments: list[str]
    untrained: Path
    before: Spoken
    interrupted: Spoken
    whole: Spoken
    output: Path


@pytest.fixture(scope="module", params=KINDS)
def distilled(request, tmp_path_factory, target):
    folder, kind = tmp_path_factory.mktemp("distilled"), request.param
    arguments = ["distill", "--target", target, "--kind", kind, "--name", "tiny-draft", "--tokens", "7000"]
    arguments += ["--work", str(folder / "work"), "--output", str(folder / "draft"), "--cut", "300", "--json"]
    arguments += ["--epochs", "16", "--learning-rate", "0.008" if kind == "draft_head" else "0.016", *KINDS[kind]]
    suite = folder / "suite.jsonl"
    suite.write_text("".join(json.dumps({"prompt": prompt, "category": "any"}) + "\n" for prompt in PROMPTS))
    arguments += ["--suite", str(suite)]
    assert specviz(*arguments, interrupt_at=("generate", 0)).code == 130
    before = specviz(*arguments, "generate", "evaluate")
    assert before.code == 0, before.err
    shutil.copytree(folder / "work" / kind / "draft", folder / "untrained")
    interrupted = specviz(*arguments, "train", interrupt_at=("train", 20))
    whole = specviz(*arguments)
    assert whole.code == 0, whole.err
    return Distilled(kind, target, arguments, folder / "untrained", before, interrupted, whole, folder / "draft")


def greedy(draft: Path, kind: str, target: str) -> tuple[MetricsFold, list[list[int]], list[list[int]]]:
    """(the rounds, the tokens, those of plain decoding) of a few prompts."""
    pair, fold, drafted, plain = load_pair(target, str(draft)), MetricsFold(), [], []
    for prompt in PROMPTS:
        for drafter, told in ((kind, drafted), ("none", plain)):
            run = Run(pair, prompt, RunSettings(drafter=drafter, num_draft_tokens=3, max_new_tokens=40))
            for event in run:
                if drafter == kind:
                    fold.add(event)
            told.append(run.result.token_ids)
    return fold, drafted, plain


@pytest.mark.slow
def test_the_draft_is_far_better_than_an_untrained_one_and_changes_no_token(distilled):
    trained, ids, plain = greedy(distilled.output, distilled.kind, distilled.target)
    untrained, _, _ = greedy(distilled.untrained, distilled.kind, distilled.target)
    assert ids == plain and all(len(tokens) == 40 for tokens in ids)
    rates = [fold.metrics()["alpha"] for fold in (untrained, trained)]
    assert rates[1] > 0.25 and rates[1] > rates[0] + 0.15


@pytest.mark.slow
def test_what_was_measured_shows_it_too(distilled):
    before, after = distilled.before.result["metrics"], distilled.whole.result["metrics"]
    assert before["step"] == 0 and after["step"] == distilled.whole.result["steps"]
    for first, second in zip(before["on_text"]["by_position"], after["on_text"]["by_position"], strict=True):
        assert second["agreement"] > first["agreement"] + 0.15 and second["loss"] < first["loss"]
    assert after["on_suite"]["sequences"] == len(PROMPTS) and after["on_suite"]["by_position"][0]["tokens"] > 30
    assert after["in_engine"]["identical"] == 1.0
    assert after["in_engine"]["mean_tokens_per_round"] > before["in_engine"]["mean_tokens_per_round"]


@pytest.mark.slow
def test_an_interrupt_is_130_and_the_next_run_goes_on_from_there(distilled):
    assert distilled.interrupted.code == 130 and distilled.interrupted.out == ""
    assert "interrupted" in distilled.interrupted.err and "Traceback" not in distilled.interrupted.err
    done = [done for stage, done, _ in distilled.whole.stages if stage == "train"]
    assert done == list(range(21, distilled.whole.result["steps"] + 1))


@pytest.mark.slow
def test_text_that_is_there_is_not_written_again(distilled):
    assert [stage for stage in distilled.whole.stages if stage[0] == "generate"] == [("generate", 7000, 7000)]


@pytest.mark.slow
def test_the_folder_tells_what_it_is(distilled):
    draft = read_draft(distilled.output)
    assert draft.facts.kind == distilled.kind and draft.facts.target_name == "target" and len(draft.vocab_ids) == 300
    assert draft.facts.feature_layers == ((1, 2) if distilled.kind == "draft_head" else ())
    assert draft.facts.trained["steps"] == distilled.whole.result["steps"]
    card = (distilled.output / "README.md").read_text()
    overlap = distilled.whole.result["metrics"]["on_text"]["by_position"][0]["overlap"]
    assert "# tiny-draft" in card and f"{overlap:.3f}" in card and "In the engine" in card


@pytest.mark.slow
@pytest.mark.parametrize("distilled", ["draft_head"], indirect=True)
def test_stdout_is_one_json_object_and_progress_is_on_stderr(distilled):
    command = [sys.executable, "-m", "specviz", *distilled.arguments, "generate"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "name": "tiny-draft",
        "kind": distilled.kind,
        "target": "target",
        "corpus": str(distilled.output.parent / "work" / "text"),
    }
    assert "The target writes text" in done.stderr
    assert set(distilled.whole.result) == {"name", "kind", "target", "corpus", "steps", "metrics", "output"}
    for sentence in ("The target writes text", "Training the draft", "Measuring the draft"):
        assert sentence in distilled.whole.err


@pytest.mark.slow
def test_words_for_a_reader(distilled, capsys):
    said = specviz(*[argument for argument in distilled.arguments if argument != "--json"], "train", "export")
    assert said.code == 0 and "Trained: " in said.out and "give it as --draft" in said.out
    distill._print(distilled.whole.result)
    said = capsys.readouterr()
    for words in ("The text lies in", "Trained: ", "greedy agreement 0.", "held-out prompts: ", "give it as --draft"):
        assert words in said.out


@pytest.mark.slow
@pytest.mark.parametrize("step", ["generate", "train", "evaluate"])
def test_the_text_of_another_target_is_refused(distilled, tmp_path, step):
    other = save_target(tmp_path / "target", seed=1)
    arguments = [other if argument == distilled.target else argument for argument in distilled.arguments]
    said = specviz(*arguments, step)
    assert said.code == 2 and said.out == ""
    assert "holds text whose embedding_sha256 is" in said.err and "name another folder with --corpus" in said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (["generate", "--seed", "2"], "holds text whose seed is 1, and now it is 2"),
        (["train", "--epochs", "3"], "checkpoint.pt belongs to another training"),
        (["train", "--cut", "200"], "checkpoint.pt belongs to another training"),
    ],
)
def test_other_settings_for_the_same_folder_are_refused(distilled, changed, sentence):
    said = specviz(*distilled.arguments, *changed)
    assert said.code == 2 and sentence in said.err


def refused(target, tmp_path, *arguments):
    """The sentence on stderr."""
    said = specviz("distill", "--target", target, "--work", str(tmp_path / "work"), *arguments)
    assert said.code == 2 and said.out == "" and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["distil"], "step is 'distil': choose some of generate, train, evaluate, export."),
        (["--kind", "ngram"], "kind is 'ngram': choose one of draft_head, draft_model, exit_heads."),
        (["--tokens", "0"], "tokens is 0: give a whole number from 1 on."),
        (["--cut", "0"], "cut is 0: give a whole number from 1 on."),
        (["--after", "0"], "after is 0: give a whole number from 1 on."),
        (["--after", "50", "--tokens", "50"], "after is 50, of 50 tokens in all: give fewer, or more as --tokens."),
        (["--kind", "exit_heads", "--after", "5"], "--after is '5', which exit_heads do not have: leave it out."),
        (["--seed", "-1"], "seed is -1: give a whole number from 0 to 4294967295."),
        (["--epochs", "nan"], "epochs is nan: give a number above 0, up to 1000."),
        (["--learning-rate", "2"], "--learning-rate is 2: give a number above 0, up to 1."),
        (["--layers", "0"], "layers is '0', which a draft_head does not have: leave it out."),
        (
            ["--kind", "draft_model", "--feature-layers", "0"],
            "--feature-layers is '0', which a draft_model does not have: leave it out.",
        ),
        (
            ["--kind", "exit_heads", "--feature-layers", "0"],
            "--feature-layers is '0', which exit_heads do not have: leave it out.",
        ),
        (["--feature-layers", "a"], "--feature-layers is 'a': give layers as numbers with commas between"),
        (["--feature-layers", "2,1"], "--feature-layers is '2,1': give each layer once, the lowest first."),
        (["--feature-layers", "1,4"], "--feature-layers has 4: target has 3 layers, choose from 0 to 3."),
        (["--kind", "draft_model", "--layers", "0,3"], "layers has 3: target has 3 layers, choose from 0 to 2."),
        (["--bench", "nowhere.json"], "nowhere.json is not the output of `bench --json`"),
        (["train"], "holds no text yet: run the step generate first."),
        (["export"], "holds no trained draft yet: run the step train first"),
        (["--dtype", "int3"], "dtype is 'int3'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(target, tmp_path, arguments, sentence):
    assert sentence in refused(target, tmp_path, *arguments)


def test_a_target_of_another_family_is_refused_by_name(tmp_path):
    gpt2 = save_target(tmp_path / "tiny-gpt2", "gpt2")
    said = refused(gpt2, tmp_path, "--output", str(tmp_path / "draft"))
    assert "target is tiny-gpt2, for which no draft can be distilled, since it is of the gpt2 family" in said
    assert "choose a Llama-like model" in said


def test_a_target_that_is_not_there_is_refused(tmp_path):
    assert "is no folder here and no hub id" in refused("./nowhere", tmp_path)


def test_nothing_else_is_written_over(target, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("My notes.")
    said = refused(target, tmp_path, "--output", str(tmp_path / "mine"))
    assert "mine, where something else lies: name a new folder, or that of a draft" in said


@pytest.mark.parametrize(
    ("held", "kind", "sentence"),
    [
        (DRAFT_FILE, "exit_heads", "which holds a draft: name a new folder, or that of exit heads."),
        (EXIT_HEADS_FILE, "draft_head", "which holds exit heads: name a new folder, or that of a draft."),
        (EXIT_HEADS_FILE, "draft_model", "which holds exit heads: name a new folder, or that of a draft."),
        ("README.md", "exit_heads", "where something else lies: name a new folder, or that of exit heads."),
    ],
)
def test_drafts_and_exit_heads_are_not_written_over_each_other(target, tmp_path, held, kind, sentence):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / held).write_text("{}")
    assert f"{folder}, {sentence}" in refused(target, tmp_path, "--kind", kind, "--output", str(folder))
    # The default folder is the name's, here.
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert sentence in refused(target, tmp_path, "--kind", kind, "--name", "mine")
    assert [path.name for path in folder.iterdir()] == [held]


@pytest.mark.parametrize("option", ["--work", "--corpus"])
def test_a_folder_that_cannot_be_one_is_refused_by_the_name_of_its_option(option, tmp_path):
    file = tmp_path / "file"
    file.touch()
    said = specviz("distill", "--target", "/nowhere", option, str(file))
    assert said.code == 2 and f"{option} is {file}, which is a file: name a folder." in said.err
    said = specviz("distill", "--target", "/nowhere", option, str(file / "inside"))
    assert said.code == 2 and f"{option} is {file / 'inside'}, and {file} is a file: name a folder." in said.err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distill.os, "access", lambda path, mode: False)
        said = specviz("distill", "--target", "/nowhere", option, str(tmp_path / "new"))
    assert said.code == 2 and f"and {tmp_path} cannot be written: name another folder." in said.err
    assert list(tmp_path.iterdir()) == [file]


def test_a_suite_is_read_before_anything_is_loaded_and_is_for_evaluate(target, tmp_path):
    said = specviz("distill", "--target", "/nowhere", "--suite", str(tmp_path / "none.jsonl"))
    assert said.code == 2 and "There is no suite file" in said.err
    suite = tmp_path / "suite.jsonl"
    suite.write_text('{"prompt": "Hello", "category": "chat"}\n')
    arguments = ["distill", "--target", target, "--work", str(tmp_path / "work"), "--tokens", "200"]
    said = specviz(*arguments, "generate", "--suite", str(suite))
    assert said.code == 0 and "--suite has no effect with the steps generate: it is for evaluate." in said.err


def test_an_untrained_draft_is_not_exported_and_too_little_text_is_not_measured(target, tmp_path):
    arguments = ["distill", "--target", target, "--work", str(tmp_path / "work"), "--output", str(tmp_path / "draft")]
    with pytest.MonkeyPatch.context() as patch:
        assert specviz(*arguments, "generate", "--tokens", "200").code == 0
        said = specviz(*arguments, "export")
        assert said.code == 2 and "holds no trained draft yet: run the step train first" in said.err
        patch.setattr(corpus.Shard, "is_held_out", lambda shard, index: False)
        said = specviz(*arguments, "evaluate")
        assert said.code == 2 and "holds no prompts to measure with" in said.err
        patch.setattr(corpus.Shard, "is_held_out", lambda shard, index: True)
        said = specviz(*arguments, "train")
        assert said.code == 2 and "holds no text to train with: generate more tokens" in said.err


def test_exit_heads_are_trained_measured_and_exported_by_the_same_command(target, tmp_path):
    arguments = ["distill", "--target", target, "--kind", "exit_heads", "--name", "tiny-exits", "--tokens", "6000"]
    arguments += [
        "--work",
        str(tmp_path / "work"),
        "--output",
        str(tmp_path / "heads"),
        "--cut",
        "200",
        "--epochs",
        "0.5",
    ]
    interrupted = specviz(*arguments, "generate", "train", interrupt_at=("train_exits", 2))
    assert interrupted.code == 130
    whole = specviz(*arguments, "--json")
    assert whole.code == 0, whole.err
    first = next(done for stage, done, _ in whole.stages if stage == "train_exits")
    assert first == 3 and {stage for stage, _, _ in whole.stages} >= {"train_exits", "evaluate_exits"}
    assert whole.result["kind"] == "exit_heads" and whole.result["output"] == str(tmp_path / "heads")
    file = read_exit_heads(tmp_path / "heads")
    assert file.facts.exit_layers == tuple(whole.result["metrics"]["exit_layers"])
    heads = TranslatedHeads(file, load_pair(target).target)
    assert heads.name == "tiny-exits" and len(heads.vocab_ids) == 200
    again = specviz(*arguments, "evaluate", "export")
    assert again.code == 0 and "of the layers saved" in again.out and "The exit heads are in" in again.out
