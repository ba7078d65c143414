"""Whole sequences unrolled at once, against a draft head that really drafts, entry by entry."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from specviz.engine.draft_head_net import DraftHeadNet, HeadShape
from specviz.training.unroll import unrolled

ENTRIES, STEPS = 13, 4
CLOSE = {"atol": 1e-8, "rtol": 1e-6}  # in float64; what is wrong is wrong by far more
SHAPES = {
    "grouped": (24, 4, 2, 6),
    "one kv head": (24, 4, 1, 6),
    "ungrouped": (24, 3, 3, 8),
    "heads wider than hidden": (16, 4, 2, 8),
}


def random_net(hidden, heads, kv_heads, head_dim, seed=0):
    shape = HeadShape(hidden, 40, heads, kv_heads, head_dim, (1, 2, 3), 10000.0, 1e-5)
    net, generator = DraftHeadNet(shape).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            is_norm = name.endswith(("norm", "norms"))
            parameter.copy_(1 + 0.3 * noise if is_norm else noise * 1.5 / parameter.shape[-1] ** 0.5)
    return net


def random_inputs(net, sequences=2, entries=ENTRIES, seed=1):
    generator, hidden = torch.Generator().manual_seed(seed), net.shape.hidden
    return (
        torch.randn(sequences, entries, 3, hidden, generator=generator, dtype=torch.float64),
        torch.randn(sequences, entries, hidden, generator=generator, dtype=torch.float64),
    )


class DraftingHead:
    """Makes one entry after the other of one sequence, and attends to all that it has made."""

    def __init__(self, net):
        self.net, self.keys, self.values = net, [], []

    def entry(self, state, embedding):
        """The output of a new entry, made of a state [hidden] and the embedding of the next token."""
        net, shape = self.net, self.net.shape
        x = net.joined(state, embedding)[None]
        query, key, value = net.queries_keys_values(x, torch.tensor([len(self.keys)]))
        self.keys.append(key[0])
        self.values.append(value[0])
        heads = []
        for head in range(shape.heads):
            kv = head // (shape.heads // shape.kv_heads)
            scores = torch.stack([query[0, head] @ key[kv] for key in self.keys]) / shape.head_dim**0.5
            probs = scores.softmax(0)
            heads.append(sum(prob * value[kv] for prob, value in zip(probs, self.values, strict=True)))
        return net.finished(x, torch.cat(heads)[None])[0]


def drafted(net, features, embeddings, num_true, num_own):
    """The outputs of the newest entry of true features and of those made of the head's own outputs after it."""
    head = DraftingHead(net)
    for place in range(num_true):
        output = head.entry(net.fused(features[place]), embeddings[place])
    outputs = [output]
    for place in range(num_true, num_true + num_own):
        outputs.append(head.entry(outputs[-1], embeddings[place]))
    return outputs


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_step_by_step_it_is_what_a_drafting_head_does(shape):
    net = random_net(*SHAPES[shape])
    features, embeddings = random_inputs(net)
    steps = list(unrolled(net, features, embeddings, STEPS))
    assert [tuple(step.shape) for step in steps] == [(2, ENTRIES, net.shape.hidden)] * STEPS
    compared = 0
    for sequence in range(2):
        for num_true in range(1, ENTRIES + 1):
            num_own = min(STEPS - 1, ENTRIES - num_true)
            outputs = drafted(net, features[sequence], embeddings[sequence], num_true, num_own)
            for step, output in enumerate(outputs):
                torch.testing.assert_close(steps[step][sequence, num_true - 1 + step], output, **CLOSE)
                compared += 1
    assert compared == 2 * sum(ENTRIES - step for step in range(STEPS))


@torch.no_grad()
def test_the_steps_differ():
    net = random_net(*SHAPES["grouped"])
    steps = list(unrolled(net, *random_inputs(net), STEPS))
    for earlier, later in pairwise(steps):
        assert (earlier - later)[:, STEPS:].abs().amax(-1).min() > 1e-2


@torch.no_grad()
def test_what_comes_later_changes_nothing():
    net = random_net(*SHAPES["grouped"])
    features, embeddings = random_inputs(net)
    whole = list(unrolled(net, features, embeddings, STEPS))
    cut = list(unrolled(net, features[:, :8], embeddings[:, :8], STEPS))
    for long, short in zip(whole, cut, strict=True):
        torch.testing.assert_close(long[:, :8], short, **CLOSE)


@pytest.mark.parametrize("entries", [1, 2, 3, ENTRIES])
def test_everything_stays_finite_and_has_a_gradient(entries):
    net = random_net(*SHAPES["grouped"])
    features, embeddings = random_inputs(net, entries=entries)
    outputs = list(unrolled(net, features, embeddings, STEPS))
    assert all(output.isfinite().all() for output in outputs)
    sum(output[:, step:].square().sum() for step, output in enumerate(outputs)).backward()
    for name, parameter in net.named_parameters():
        if name != "final_norm":
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert net.fuse.grad.abs().max() > 0


def test_the_gradient_is_that_of_the_drafting_head():
    net = random_net(*SHAPES["grouped"])
    features, embeddings = random_inputs(net, sequences=1)
    weight = torch.randn(net.shape.hidden, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    steps = list(unrolled(net, features, embeddings, STEPS))
    gradients = torch.autograd.grad(steps[3][0, 8] @ weight, (net.qkv, net.fuse, net.down))
    output = drafted(net, features[0], embeddings[0], 6, 3)[-1]
    expected = torch.autograd.grad(output @ weight, (net.qkv, net.fuse, net.down))
    for found, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found, wanted, **CLOSE)
