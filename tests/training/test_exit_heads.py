"""Exit heads from text to folder: learnt, broken off, gone on with, measured, exported."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from specviz.config import RunSettings
from specviz.early_exit.exit_decoding import ExitDecodingRun
from specviz.early_exit.exit_head_files import read_exit_heads
from specviz.early_exit.exit_plan import ExitPlan
from specviz.early_exit.exit_settings import ExitSettings
from specviz.early_exit.translators import TranslatedHeads
from specviz.engine.clock import RunClock
from specviz.engine.draft_facts import WEIGHTS_FILE
from specviz.engine.kv_memory import KVMemory
from specviz.engine.speculative import events_of
from specviz.errors import BadRequest, RunFailed
from specviz.training import exit_heads, exit_replay
from specviz.training.answer_states import AnswerStateStore, roles
from specviz.training.corpus import Corpus
from specviz.training.exit_drafting import draft_with_exits
from specviz.training.exit_heads import ExitHeadTraining
from specviz.training.exit_measuring import greedy_positions, measure_exits, read
from specviz.training.translator_fit import fit
from specviz.training.translator_net import CutRows, ExitLoss, choose_candidates
from tests.engine.runs import byte_vocabulary
from tests.training.tiny_exit_heads import PLAN, exit_training, small_parts, write_text
from tests.training.tiny_teachers import tiny_teacher


@pytest.fixture(scope="module", autouse=True)
def parts():
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory, parts):
    return write_text(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text):
    training = exit_training(tmp_path_factory.mktemp("trained"), text)
    training.train()
    return training


def interrupt_at(step):
    def report(stage, done, total):
        if (stage, done) == ("train_exits", step):
            raise KeyboardInterrupt

    return report


def test_the_states_are_the_targets_own(text, tmp_path):
    model, store = tiny_teacher().model, AnswerStateStore(tmp_path, 3)
    shard = Corpus(text).read(1)
    store.compute(model, [shard], lambda done, total: None)
    held = store.read(1)
    assert store.has(shard)
    at = 0
    for index in roles(shard, 3):
        ids, start = shard.sequence(index), int(shard.answer_starts[index])
        output = model.forward(ids[:-1].tolist(), model.new_cache(), feature_layers=(1, 2, 3))
        rows = range(start - 1, len(ids) - 1)
        own = slice(at, at + len(rows))
        np.testing.assert_array_equal(held.choices[own], output.logits[rows].argmax(-1))
        np.testing.assert_array_equal(held.next_ids[own], ids[start:])
        np.testing.assert_allclose(held.log_sums[own], output.logits[rows].logsumexp(-1), rtol=1e-5)
        first = output.features[1][rows]
        expected = first / first.square().mean(-1, keepdim=True).sqrt()
        np.testing.assert_allclose(held.states[own, 0], expected, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(held.states[own, 2], output.features[3][rows], rtol=2e-3, atol=2e-3)
        at += len(rows)
    assert at == len(held.states)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("content", [b"", b"PK", b"nothing of the kind", None])
def test_damaged_or_missing_states_are_computed_again(text, tmp_path, which, content):
    store, shard = AnswerStateStore(tmp_path, 3), Corpus(text).read(1)
    store.compute(tiny_teacher().model, [shard], lambda done, total: None)
    path = store.paths(1)[which]
    path.unlink() if content is None else path.write_bytes(content)
    assert not store.has(shard)
    store.compute(tiny_teacher().model, [shard], lambda done, total: None)
    assert store.has(shard)


def test_held_out_text_is_never_trained_on(text):
    shard = Corpus(text).read(0)
    named = roles(shard, 2)
    assert set(named.values()) == {"train", "tune", "held_out"}
    assert all((role == "held_out") == shard.is_held_out(index) for index, role in named.items())
    assert set(roles(shard, 4)) < set(named)


def test_the_start_foretells_what_can_be_foretold():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1, 400, 16, generator=generator)
    true = torch.diag(torch.rand(16, generator=generator) + 1) + torch.outer(
        torch.randn(16, generator=generator), torch.randn(16, generator=generator)
    )
    last = states[0] @ true.T + 3
    maps = fit([(states, last)], rank=2)
    found = maps.scale[0] * states[0] + states[0] @ maps.reduce[0].T @ maps.expand[0].T + maps.bias[0]
    coarse = fit([(states, last)], rank=1)
    rough = coarse.scale[0] * states[0] + states[0] @ coarse.reduce[0].T @ coarse.expand[0].T + coarse.bias[0]
    assert float((found - last).square().mean()) < 0.1 * float(last.var())
    assert float((found - last).square().mean()) <= float((rough - last).square().mean()) + 1e-6


def test_the_loss_and_its_gradient_are_those_of_the_whole_vocabulary_where_all_of_it_is_taken():
    generator = torch.Generator().manual_seed(1)
    rows, inputs = torch.randn(30, 8, generator=generator), torch.randn(2, 5, 8, generator=generator)
    probs = torch.randn(5, 30, generator=generator).softmax(-1)
    cut = CutRows(torch.arange(30), rows, torch.zeros(30, dtype=torch.bool))
    candidates = choose_candidates(cut, probs, 2.0, 30, generator)  # none is that probable: all are drawn
    first, second = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    losses = ExitLoss.apply(first, candidates)
    expected = -(probs * (second @ rows.T).log_softmax(-1)).sum(-1).mean(-1)
    torch.testing.assert_close(losses, expected)
    losses.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(first.grad, second.grad)


def test_drawn_tokens_stand_for_those_that_are_not():
    probs = torch.full((3, 100), 1e-4)
    probs[:, 7] = 0.9
    cut = CutRows(torch.arange(100), torch.randn(100, 4), torch.arange(100) < 5)
    candidates = choose_candidates(cut, probs, 0.1, 10, torch.Generator().manual_seed(0))
    assert len(candidates.rows) == 5 + 1 + 10
    assert float(candidates.log_weights.exp().sum()) == pytest.approx(100)


def test_translators_beat_the_plain_head_at_every_layer(trained):
    metrics = trained.evaluate()
    assert [row["layer"] for row in metrics["by_layer"]["rows"]] == [1, 2]
    for row in metrics["by_layer"]["rows"]:
        assert row["translators"]["kl"] < row["plain"]["kl"]
        assert row["translators"]["agreement"] > row["plain"]["agreement"]
    assert set(metrics["exit_layers"]) <= {1, 2}


def test_training_improves_on_its_start_where_it_learns(trained, text, tmp_path):
    start = exit_training(tmp_path, text, replace(PLAN, epochs=1e-9))
    start.trainer.train()  # one step
    of = {}
    for name, training in (("start", start), ("end", trained)):
        found = measure_exits(training._heads(), training.teacher.model, training.training, training.training)
        of[name] = [row["translators"]["kl"] for row in found["by_layer"]["rows"]]
    assert sum(of["end"]) < sum(of["start"])


def test_a_broken_off_training_ends_with_the_same_bits(trained, text, tmp_path):
    training = exit_training(tmp_path, text, report=interrupt_at(9))
    with pytest.raises(KeyboardInterrupt):
        training.train()
    again = exit_training(tmp_path, text)
    assert again.trainer.step == 9
    again.train()
    for name, tensor in trained.trainer.net.state_dict().items():
        assert torch.equal(tensor, again.trainer.net.state_dict()[name]), name


def test_a_checkpoint_of_another_training_is_refused(trained, text, tmp_path):
    training = exit_training(tmp_path, text, report=interrupt_at(2))
    with pytest.raises(KeyboardInterrupt):
        training.train()
    with pytest.raises(BadRequest, match="belongs to another training"):
        exit_training(tmp_path, text, replace(PLAN, learning_rate=1e-3)).train()
    (training.folder / "checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(BadRequest, match="cannot be read as a checkpoint"):
        exit_training(tmp_path, text).train()


def test_what_is_exported_is_what_was_measured(trained, tmp_path):
    metrics = trained.evaluate()
    folder = trained.export()
    file = read_exit_heads(folder)
    assert file.facts.exit_layers == tuple(metrics["exit_layers"])
    assert file.facts.trained["by_layer"] == metrics["by_layer"]
    model = trained.teacher.model
    heads = TranslatedHeads(file, model, trained.teacher.embedding)
    indices = np.arange(20)
    first, second = (read(held, trained.held_out, indices, (1, 2)) for held in (heads, trained._heads()))
    np.testing.assert_array_equal(first.confidences["top1"], second.confidences["top1"])
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| 1 | " in card and "Layers saved against agreement" in card and "rank 12" in card
    assert (folder / WEIGHTS_FILE).stat().st_size < 100_000


def test_rounding_to_eight_bits_costs_little(trained):
    maps, file = trained.trainer.net.maps, trained._export({}).as_read()
    states = torch.randn(50, maps.scale.shape[1])
    for layer in range(len(maps.scale)):
        exact = states @ maps.reduce[layer].T @ maps.expand[layer].T
        rounded = states @ file.reduce[layer].T @ file.expand[layer].T
        assert float((exact - rounded).norm() / exact.norm()) < 0.02


def test_untrained_heads_are_not_exported(text, tmp_path):
    with pytest.raises(BadRequest, match="holds no trained exit heads yet"):
        exit_training(tmp_path, text).export()


def test_measures_of_an_earlier_step_are_left_out(text, tmp_path):
    training = exit_training(tmp_path, text, report=interrupt_at(5))
    with pytest.raises(KeyboardInterrupt):
        training.train()
    training.evaluate()
    again = exit_training(tmp_path, text)
    again.train()
    facts = json.loads((again.export() / "specviz-exit-heads.json").read_text(encoding="utf-8"))
    assert "by_layer" not in facts["trained"] and facts["exit_layers"]


def test_weights_that_are_no_numbers_are_not_exported(text, tmp_path):
    training = exit_training(tmp_path, text, replace(PLAN, epochs=0.1))
    training.train()
    with torch.no_grad():
        training.trainer.net.bias[0, 0] = torch.nan
    with pytest.raises(RunFailed, match="not all numbers"):
        training.export()


def test_what_the_target_does_not_have_is_refused(text, tmp_path):
    with pytest.raises(BadRequest, match="cut is 100000"):
        exit_training(tmp_path, text, cut=100_000)
    with pytest.raises(BadRequest, match="rank is 49"):
        exit_training(tmp_path, text, replace(PLAN, rank=49))


def test_text_of_another_target_is_refused(text, tmp_path):
    other = tiny_teacher(torch.float32)
    with pytest.raises(BadRequest, match="holds text whose target"):
        exit_training(tmp_path, text, teacher=other).train()


def test_a_position_is_greedy_where_its_whole_answer_is(trained):
    greedy = greedy_positions(trained.held_out)
    for sequence in np.unique(trained.held_out.sequences):
        own = trained.held_out.sequences == sequence
        assert len(set(greedy[own])) == 1


def greedy_answer(model, prompt=(1, 3, 7, 20, 21), num_tokens=12):
    ids, cache, fed = [], model.new_cache(), list(prompt)
    for _ in range(num_tokens):
        fed = [int(model.forward(fed, cache, num_logits=1).logits.argmax())]
        ids += fed
    return exit_replay.Answer(prompt, ids)


def test_real_exits_along_the_targets_text(trained, monkeypatch):
    model, heads = trained.teacher.model, trained._heads()
    answers = [greedy_answer(model), greedy_answer(model, (1, 3, 7, 40), 9)]
    monkeypatch.setattr(exit_replay, "THRESHOLDS", (1.0, 0.0))  # nothing is as sure as that, and everything
    found = exit_replay.replay(heads, model, answers, (1, 2))
    assert (found["answers"], found["tokens"]) == (2, 21)
    never, always = found["rows"]
    assert never["agreement"] == 1 and never["layers_saved"] == 0 and never["looks"] == 2
    assert never["median_common_prefix"] == 10.5 and never["texts_that_stay_equal"] == 2
    assert never["through_all_layers"] == never["through_all_layers_agreeing"] == never["agreeing"] == 21
    assert always["layers_per_token"] == 1 and always["layers_saved"] == pytest.approx(2 / 3, abs=1e-3)
    assert always["looks"] == 1 and always["through_all_layers"] == 0


def test_along_the_text_the_decoder_goes_as_it_does_by_itself_until_it_departs(trained):
    model, heads = trained.teacher.model, trained._heads()
    answer = greedy_answer(model, num_tokens=20)
    cache = model.new_cache()
    model.forward(list(answer.prompt[:-1]), cache, num_logits=0)
    settings = ExitSettings("top1", 0.1, exit_layers=(1, 2))
    plan = ExitPlan.of(settings, heads, model, 20)
    walk = exit_replay._walk(plan, model, answer, cache)
    assert len(set(walk.layers)) > 1, "some leave and some do not"

    memory, run_settings = KVMemory(), RunSettings(drafter="none", max_new_tokens=20, trace_detail="none")
    run = ExitDecodingRun(
        plan,
        model,
        None,
        list(answer.prompt),
        byte_vocabulary(),
        run_settings,
        frozenset(),
        lambda: False,
        memory,
        RunClock(),
    )
    rounds = [event for event in events_of(run, memory) if event["type"] == "round"]
    said = [event["committed"][0] for event in rounds]
    same = [token == own for token, own in zip(said, answer.ids, strict=True)]
    prefix = same.index(False)
    assert walk.common_prefix == prefix < 20
    assert [event["exit"]["layer"] for event in rounds[: prefix + 1]] == walk.layers[: prefix + 1].tolist()
    assert [len(event["exit"]["confidences"]) for event in rounds[: prefix + 1]] == walk.looks[: prefix + 1].tolist()


def test_over_its_own_states_no_exit_reaches_a_later_token(trained, monkeypatch):
    """The first token knows of no other that left; its own states are the full model's."""
    model, heads = trained.teacher.model, trained._heads()
    monkeypatch.setattr(exit_replay, "THRESHOLDS", (0.05, 0.1, 0.2))
    answers = [greedy_answer(model, (1, 3, 7, first), 1) for first in range(20, 30)]
    for row in exit_replay.replay(heads, model, answers, (1, 2))["rows"]:
        assert row["own_states"] == {name: row[name] for name in ("agreement", "layers_saved")}
        assert row["through_all_layers"] == row["through_all_layers_agreeing"]


def test_drafts_change_no_text_and_are_counted_for_both_heads(trained):
    model, heads = trained.teacher.model, trained._heads()
    answers = [greedy_answer(model, (1, 3, 7, first), 12) for first in (20, 30, 40)]
    found = draft_with_exits(heads, model, answers, byte_vocabulary())
    assert (found["prompts"], found["tokens"], found["exit_layer"], found["num_draft_tokens"]) == (3, 36, 1, 4)
    for name in ("translators", "plain"):
        row = found[name]
        assert row["identical"] == 3 and row["committed"] == 36
        assert row["mean_tokens_per_round"] == pytest.approx(36 / row["rounds"])
        assert row["acceptance_at_first"] == pytest.approx(row["first_accepted"] / row["first_judged"])
        assert 0 < row["first_judged"] <= row["rounds"]
    assert found == draft_with_exits(heads, model, answers, byte_vocabulary())


def test_what_was_measured_is_kept_part_by_part(text, tmp_path, monkeypatch):
    training = exit_training(tmp_path, text, replace(PLAN, epochs=0.1))
    training.train()
    answers = [greedy_answer(training.teacher.model, num_tokens=6)]
    monkeypatch.setattr(ExitHeadTraining, "_greedy_answers", lambda self: answers)
    monkeypatch.setattr(ExitHeadTraining, "_vocabulary", lambda self: byte_vocabulary())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(exit_heads, "draft_with_exits", interrupted)
        training.evaluate()
    with monkeypatch.context() as patch:
        patch.setattr(exit_heads, "measure_exits", interrupted)
        patch.setattr(exit_heads, "replay", interrupted)
        again = exit_training(tmp_path, text, replace(PLAN, epochs=0.1))
        metrics = again.evaluate()
        assert metrics["real_exits"]["tokens"] == metrics["drafting"]["tokens"] == 6
        facts = json.loads((again.export() / "specviz-exit-heads.json").read_text(encoding="utf-8"))
        assert facts["trained"]["drafting"] == metrics["drafting"] and "of" not in facts["trained"]
        with pytest.raises(KeyboardInterrupt):  # another cut is measured anew
            exit_training(tmp_path, text, replace(PLAN, epochs=0.1), cut=100).evaluate()
    card = (again.options.output / "README.md").read_text(encoding="utf-8")
    assert "along 1 held-out greedy answers of the full model (6 tokens" in card and "## As a drafter" in card


def interrupted(*args, **named):
    raise KeyboardInterrupt
