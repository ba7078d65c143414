"""A training: what it learns, where it was broken off, and whose checkpoint it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig

from specviz.errors import BadRequest, RunFailed
from specviz.training import corpus as corpora
from specviz.training import trainer as trainers
from specviz.training.checkpoints import CHECKPOINT_FILE
from specviz.training.objective import CutHead
from specviz.training.students import ModelStudent, initialise_model
from specviz.training.trainer import Plan, Trainer, measure
from tests.tiny_models import VOCAB_SIZE
from tests.training.tiny_teachers import cut_head, new_head_student, some_examples, some_shard, tiny_teacher

PLAN = Plan(epochs=3, tokens_per_batch=120, warmup_steps=4, unroll_steps=3)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "HELD_OUT_EVERY", 6)
        return some_examples(tmp_path_factory.mktemp("data"), [some_shard(0, 40)])


def new_model_student():
    module = tiny_teacher().module
    student = ModelStudent(LlamaConfig(**module.config.to_dict() | {"num_hidden_layers": 1}), tiny_teacher().embedding)
    initialise_model(student, module, (2,))
    return student


STUDENTS = {"draft_head": new_head_student, "draft_model": new_model_student}


@pytest.fixture
def new_trainer(parts, tmp_path):
    def make(folder="run", *, kind="draft_head", plan=PLAN, head=None, data=parts, facts=None):
        student = STUDENTS[kind]()
        return Trainer(student, head or cut_head(), *data, plan, tmp_path / folder, facts)

    return make


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.student.module.state_dict().items()}


def are_equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def interrupt_at(step, error=KeyboardInterrupt):
    def report(done, total):
        if done == step:
            raise error

    return report


@pytest.mark.parametrize("kind", STUDENTS)
def test_what_is_trained_on_is_learnt(new_trainer, parts, kind):
    whole_head = cut_head(num_ids=VOCAB_SIZE)
    trainer = new_trainer(
        kind=kind, head=whole_head, plan=replace(PLAN, epochs=20, learning_rate=3e-3, copied_rate=3e-3)
    )
    training, _ = parts
    batches = training.order(0, 0, 200)
    steps = min(2, trainer.student.most_steps)
    before = measure(trainer.student, whole_head, training.batches(batches), steps)
    trainer.train()
    after = measure(trainer.student, whole_head, training.batches(batches), steps)
    for first, second in zip(before, after, strict=True):
        assert second["loss"] < first["loss"] - 0.5
        assert second["overlap"] > 1.3 * first["overlap"] and second["agreement"] > 1.3 * first["agreement"]
        assert second["tokens"] == first["tokens"] > 0


@pytest.mark.parametrize("kind", STUDENTS)
def test_interrupted_and_resumed_the_weights_are_the_same_to_the_bit(new_trainer, kind):
    whole = new_trainer("whole", kind=kind)
    reported = []
    whole.train(lambda done, total: reported.append((done, total)))
    assert reported == [(step + 1, whole.num_steps) for step in range(whole.num_steps)]
    for step in (2, whole.num_steps - 2):
        with pytest.raises(KeyboardInterrupt):
            new_trainer("broken", kind=kind).train(interrupt_at(step))
    resumed = new_trainer("broken", kind=kind)
    assert resumed.step == whole.num_steps - 2
    resumed.train()
    assert are_equal(weights(whole), weights(resumed))
    assert not are_equal(weights(whole), weights(new_trainer("new", kind=kind)))


def test_an_interrupt_within_an_update_loses_the_steps_since_the_last_checkpoint_only(new_trainer, monkeypatch):
    whole = new_trainer("whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        new_trainer().train(interrupt_at(3))
    trainer = new_trainer()
    update = trainer._optimizer.step

    def half_an_update():
        update()
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer._optimizer, "step", half_an_update)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    resumed = new_trainer()
    assert resumed.step == 3
    resumed.train()
    assert are_equal(weights(whole), weights(resumed))


def test_a_finished_training_is_not_gone_on_with(new_trainer):
    trainer = new_trainer()
    trainer.train()
    again = new_trainer()
    assert again.step == again.num_steps
    again.train(lambda done, total: pytest.fail("nothing is left to do"))
    assert are_equal(weights(trainer), weights(again))


@pytest.mark.parametrize(
    "other",
    [
        {"plan": replace(PLAN, epochs=4)},
        {"plan": replace(PLAN, learning_rate=1e-4)},
        {"plan": replace(PLAN, seed=2)},
        {"head": cut_head(num_ids=20)},
        {"head": CutHead(cut_head().vocab_ids + 1, cut_head().rows)},
        {"kind": "draft_model", "facts": {"kind": "draft_model"}},
        {"facts": {"kind": "draft_head", "feature_layers": [0, 1]}},
    ],
)
def test_the_checkpoint_of_another_training_is_refused(new_trainer, other):
    with pytest.raises(KeyboardInterrupt):
        new_trainer(facts={"kind": "draft_head", "feature_layers": [1, 2]}).train(interrupt_at(1))
    with pytest.raises(BadRequest, match=r"checkpoint.pt belongs to another training .* delete it, or name another"):
        new_trainer(**{"facts": {"kind": "draft_head", "feature_layers": [1, 2]}, **other})


def test_the_checkpoint_of_other_data_is_refused(new_trainer, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        new_trainer().train(interrupt_at(1))
    data = some_examples(tmp_path / "other", [some_shard(0, 40, seed=1)])
    with pytest.raises(BadRequest, match="belongs to another training"):
        new_trainer(data=data)


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: b"nothing", lambda content: content[:-2000]])
def test_a_damaged_checkpoint_is_refused(new_trainer, tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        new_trainer().train(interrupt_at(1))
    path = tmp_path / "run" / "checkpoint.pt"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        BadRequest, match=r"checkpoint.pt cannot be read as a checkpoint: delete it to train from the start"
    ):
        new_trainer()


def test_a_loss_that_is_no_number_ends_the_training(new_trainer):
    trainer = new_trainer()
    with torch.no_grad():
        trainer.student.module.join.fill_(float("nan"))
    with pytest.raises(RunFailed, match="The loss of step 1 is not a number: train again with a smaller learning rate"):
        trainer.train()
    assert not (trainer.folder / CHECKPOINT_FILE).exists(), "weights that may be broken are not kept"


def test_progress_on_held_out_text_is_written_down(new_trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(trainers, "SECONDS_BETWEEN_CHECKPOINTS", -1)
    trainer = new_trainer(plan=replace(PLAN, epochs=1))
    trainer.train()
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, trainer.num_steps + 1))
    assert all(set(line["held_out"][0]) == {"loss", "agreement", "overlap", "tokens"} for line in lines)


def test_without_held_out_text_nothing_is_written_down(new_trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(trainers, "SECONDS_BETWEEN_CHECKPOINTS", -1)
    monkeypatch.setattr(corpora, "HELD_OUT_EVERY", 10**9)
    new_trainer(plan=replace(PLAN, epochs=1), data=some_examples(tmp_path / "small", [some_shard(0, 3)])).train()
    assert not (tmp_path / "run" / "log.jsonl").exists()


@pytest.mark.parametrize(("epochs", "share"), [(0.5, 0.5), (1, 1), (2, 2), (2.5, 2.5)])
def test_a_part_of_an_epoch_is_a_part_of_its_batches(new_trainer, parts, epochs, share):
    one = len(parts[0].order(0, PLAN.seed, PLAN.tokens_per_batch))
    assert new_trainer(plan=replace(PLAN, epochs=epochs)).num_steps == pytest.approx(share * one, abs=2)


def test_the_rate_warms_up_and_falls():
    plan = Plan(warmup_steps=10)
    factors = [plan.rate_factor(step / 100, step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1) and max(factors) == factors[9] > 0.95
    assert factors[9:] == sorted(factors[9:], reverse=True) and plan.rate_factor(1, 100) == pytest.approx(0.02)


def test_new_weights_learn_at_another_rate_than_copied_ones(new_trainer):
    trainer = new_trainer()
    peaks = {id(p): group["peak"] for group in trainer._optimizer.param_groups for p in group["params"]}
    for name, parameter in trainer.student.module.named_parameters():
        is_new = name in ("feature_norms", "fuse", "state_norm", "token_norm", "join")
        assert peaks[id(parameter)] == (PLAN.learning_rate if is_new else PLAN.copied_rate)


def test_a_draft_model_begins_as_the_targets_layers():
    student, module = new_model_student(), tiny_teacher().module
    own = student.module.layers[0].state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in module.model.layers[2].state_dict().items())
    assert torch.equal(student.module.norm.weight, module.model.norm.weight)
