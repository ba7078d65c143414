"""The lean head, the torch head, and the whole text at once: the same keys, values, states and logits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specviz.engine.cut_vocabulary import CutVocabulary
from specviz.engine.draft_loading import open_draft
from specviz.engine.lean_head import LeanHead
from specviz.engine.torch_head import TorchHead
from tests.draft_folders import random_head, recomputed_head, some_vocab_ids
from tests.engine.lean_models import SHAPES, float32_of, int8_of, module_of, some_ids
from tests.tiny_models import build_model

NUM_ENTRIES = 40
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def opened(shape: str, precision: str, *, int8: bool = False):
    module = module_of(shape)
    changes = {"feature_layers": (0, 1)} if module.config.num_hidden_layers == 1 else {}
    file = random_head(module, int8=int8, head_dim=module.config.head_dim, **changes)
    return file, open_draft(file, float32_of(module), precision), module


def some_features(module, file, length: int = NUM_ENTRIES, seed: int = 3) -> tuple[Tensor, list[int]]:
    ids = some_ids(length + 1, seed)
    target = float32_of(module)
    layers = file.facts.feature_layers
    output = target.forward(ids[:length], target.new_cache(), feature_layers=layers)
    return torch.stack([output.features[layer] for layer in layers], 1), ids


def oracle(file, features, ids, module):
    return recomputed_head(file, features, ids, module.get_input_embeddings().weight, file.floats()["head"])


def entries_of(cache) -> tuple[Tensor, Tensor]:
    keys, values = (torch.as_tensor(held) for held in (cache.keys, cache.values))
    return tuple(held.reshape(held.shape[-3:])[:, : cache.length].clone() for held in (keys, values))


@pytest.mark.parametrize("precision", ["auto", "float32"], ids=["lean", "torch"])
@pytest.mark.parametrize("shape", [name for name in SHAPES if "tied" not in name])
def test_a_text_in_pieces_is_the_text_at_once(shape, precision):
    file, head, module = opened(shape, precision)
    assert isinstance(head, LeanHead if precision == "auto" else TorchHead)
    features, ids = some_features(module, file)
    keys, values, states, logits = oracle(file, features, ids, module)
    cache, done = head.new_cache(), 0
    for size in (7, 1, 12, 1, 1, 5, 13):
        output = head.read(features[done : done + size], ids[done + 1 : done + size + 1], cache)
        done += size
        torch.testing.assert_close(output.state[0], states[done - 1], **CLOSE)
        torch.testing.assert_close(output.logits[0, file.vocab_ids], logits[done - 1], **CLOSE)
        assert bool(torch.isneginf(output.logits).sum() == head.vocab_size - len(file.vocab_ids))
    assert cache.length == done == NUM_ENTRIES
    for held, expected in zip(entries_of(cache), (keys, values), strict=True):
        torch.testing.assert_close(held, expected, **CLOSE)


@pytest.mark.parametrize("precision", ["auto", "float32"], ids=["lean", "torch"])
def test_rows_without_output_leave_the_same_entries(precision):
    file, head, module = opened("grouped", precision)
    features, ids = some_features(module, file)
    caches = head.new_cache(), head.new_cache()
    head.read(features, ids[1:], caches[0])
    assert head.read(features, ids[1:], caches[1], wants_output=False) is None
    for one, other in zip(*(entries_of(cache) for cache in caches), strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0)


def test_both_heads_go_on_alike_from_their_own_states():
    file, lean, module = opened("grouped", "auto")
    plain = open_draft(file, float32_of(module), "float32")
    features, ids = some_features(module, file, 5)
    chosen = []
    for head in (lean, plain):
        cache = head.new_cache()
        output, logits = head.read(features, ids[1:], cache), []
        for token_id in (9, 3, 200, 7):
            output = head.go_on(output.state, token_id, cache)
            logits.append(output.logits[:, file.vocab_ids])
        chosen.append(torch.cat(logits))
    torch.testing.assert_close(*chosen, **CLOSE)


def test_int8_says_nearly_what_the_plain_numbers_say_and_bit_for_bit_the_same_in_any_company():
    file, head, module = opened("grouped", "auto", int8=True)
    assert head.precision == "int8"
    features, ids = some_features(module, file)
    expected = oracle(file, features, ids, module)[-1][-1]
    together, alone = head.new_cache(), head.new_cache()
    output = head.read(features, ids[1:], together)
    for entry in range(NUM_ENTRIES):
        single = head.read(features[entry : entry + 1], [ids[entry + 1]], alone)
    assert torch.equal(output.logits, single.logits)
    assert torch.equal(output.state, single.state)
    logits = output.logits[0, file.vocab_ids]
    assert torch.corrcoef(torch.stack([logits, expected]))[0, 1] > 0.995


def test_an_int8_target_lends_its_smoothing_to_the_output_head():
    module = build_model("llama", tie_word_embeddings=True)
    target, exact = int8_of(module), float32_of(module)
    file = random_head(module, int8=True)
    assert file.is_tied
    features, ids = some_features(module, file, 12)
    heads = [open_draft(file, each) for each in (target, exact)]
    outputs = [head.read(features, ids[1:], head.new_cache()) for head in heads]
    pair = torch.stack([output.logits[0, file.vocab_ids] for output in outputs])
    assert torch.corrcoef(pair)[0, 1] > 0.999
    assert not torch.equal(pair[0], pair[1])


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16"])
def test_what_it_adds_is_counted_and_what_it_shares_is_told(precision):
    file, head, module = opened("grouped", precision)
    sizes = sum(t.numel() for t in file.tensors.values())
    assert head.num_params == sizes
    assert head.weight_bytes == sizes * (2 if precision == "bfloat16" else 4)
    assert head.cut_facts["shared_weight_bytes"] == module.get_input_embeddings().weight.numel() * 4
    assert head.cut_facts["cut_vocab_size"] == len(file.vocab_ids)
    cache = head.new_cache()
    features, ids = some_features(module, file, 6)
    head.read(features, ids[1:], cache)
    assert cache.num_bytes == 6 * head.kv_bytes_per_position > 0


def test_a_cache_grows_and_is_cut():
    file, _, module = opened("grouped", "auto")
    features, ids = some_features(module, file, 1)
    roomy = replace(file, facts=replace(file.facts, max_positions=600))
    for precision in ("auto", "float32"):
        head = open_draft(roomy, float32_of(module), precision)
        cache = head.new_cache()
        head.read(features.repeat(300, 1, 1), [ids[1]] * 300, cache, wants_output=False)
        before = entries_of(cache)
        cache.truncate(280)
        head.read(features.repeat(300, 1, 1), [ids[1]] * 300, cache, wants_output=False)
        assert cache.length == 580
        for held, expected in zip(entries_of(cache), before, strict=True):
            torch.testing.assert_close(held[:, :280], expected[:, :280], atol=0, rtol=0)


def test_widening_leaves_nothing_to_what_was_cut():
    cut = CutVocabulary(some_vocab_ids(5, 20), 20)
    logits = torch.randn(3, 5)
    whole = cut.widen(logits)
    assert torch.equal(whole[:, cut.ids], logits)
    probs = whole.softmax(-1)
    assert int((probs == 0).sum()) == 3 * 15
    torch.testing.assert_close(probs.sum(-1), torch.ones(3))
