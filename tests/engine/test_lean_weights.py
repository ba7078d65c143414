"""Int8 weights: within the limit of CPUs without VNNI, multiplied exactly, rounded and smoothed without harm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from torch import Tensor

from specviz.engine import int8_weights
from specviz.engine.int8_weights import LARGEST, LARGEST_PAIR, round_columns, smoothing_factors
from specviz.engine.lean_model import LeanModel
from specviz.engine.lean_weights import assemble
from specviz.engine.row_linear import Int8Linear
from tests.engine.lean_models import SHAPES, int8_of, int8_tensors, lean_float32, module_of, one_by_one, some_ids
from tests.tiny_models import build_model


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def largest_pair(weight: Tensor) -> int:
    """The largest magnitude of two weights of one sign that the CPU adds up, or of one of them."""
    pairs = torch.nn.functional.pad(weight.int(), (0, weight.shape[1] % 2)).unflatten(1, (-1, 2))
    positive, negative = pairs.clamp_min(0).sum(-1), pairs.clamp_max(0).sum(-1)
    return int(torch.maximum(positive, -negative).max())


# --- the limit --------------------------------------------------------------------------------

MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 12)).flatmap(
    lambda shape: arrays_of.arrays(
        np.float32, shape, elements=st.floats(-1, 1, width=32) | st.sampled_from([0.0, 1.0, -1.0, 300.0, -300.0])
    )
)


@given(weight=MATRICES, seed=st.integers(0, 3), is_known=st.booleans())
def test_no_pair_of_one_sign_is_beyond_the_limit(weight, seed, is_known):
    weight = torch.from_numpy(weight)
    inputs = normal(20, weight.shape[1], seed=seed) @ normal(weight.shape[1], weight.shape[1], seed=seed + 1)
    rounded, scales = round_columns(
        weight.clone(), inputs.T @ inputs if is_known else torch.zeros(2 * inputs.shape[1:])
    )
    assert rounded.dtype == torch.int8
    assert int(rounded.int().abs().max()) <= LARGEST
    assert largest_pair(rounded) <= LARGEST_PAIR
    assert scales.isfinite().all()
    assert (scales > 0).all()


@given(seed=st.integers(0, 10_000), outlier=st.sampled_from([1.0, 8.0, 100.0]))
def test_so_in_wide_matrices_whose_errors_are_passed_on(seed, outlier):
    weight = normal(8, 64, seed=seed)
    weight[:, seed % 64] *= outlier
    weight[seed % 8] = weight[seed % 8].abs()  # where every pair has one sign
    inputs = normal(80, 64, seed=seed + 1) @ normal(64, 64, seed=seed + 2)
    rounded, _ = round_columns(weight, inputs.T @ inputs)
    assert largest_pair(rounded) <= LARGEST_PAIR


@pytest.mark.parametrize("shape", SHAPES)
def test_so_in_a_whole_model(shape):
    tensors = int8_tensors(module_of(shape))
    matrices = {name: tensor for name, tensor in tensors.items() if tensor.dtype == torch.int8}
    assert len(matrices) == 1 + 4 * lean_float32(shape).num_layers
    assert max(map(largest_pair, matrices.values())) <= LARGEST_PAIR
    assert max(map(largest_pair, matrices.values())) > 100, "and most of it is used"


# --- the product ------------------------------------------------------------------------------

EXTREME_PAIRS = [(127, 1), (1, 127), (64, 64), (-127, -1), (-64, -64), (127, -127), (-127, 127), (100, 28), (0, 127)]
WIDTHS = (2, 8, 30, 64, 65, 576)


def exactly(rows: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """The product of whole numbers, scaled at the end."""
    return ((rows * 127).round().double() @ weight.double().T * scales.double() / 127).float()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("pair", EXTREME_PAIRS, ids=str)
def test_the_largest_weights_times_the_largest_rows_are_exact(pair, width):
    weight = torch.tensor([*pair] * (width // 2 + 1), dtype=torch.int8)[:width].repeat(9, 1)
    signs = torch.ones(width)
    signs[1::2] = -1
    rows = torch.stack([torch.ones(width), -torch.ones(width), signs, -signs, torch.zeros(width)])
    scales = torch.ones(9)
    product = Int8Linear(weight, scales)(rows)
    assert torch.equal((product * 127).round(), (exactly(rows, weight, scales) * 127).round())
    torch.testing.assert_close(product, exactly(rows, weight, scales), rtol=1e-6, atol=0)


@pytest.mark.parametrize("width", WIDTHS)
def test_any_rows_are_rounded_to_127ths_and_then_exact(width):
    generator = torch.Generator().manual_seed(width)
    rows = torch.randint(-127, 128, (7, width), generator=generator) / 127
    rounded, scales = round_columns(normal(33, width), torch.eye(width))
    product = Int8Linear(rounded, scales)(rows + 0.3 / 127 * (rows < 1))
    torch.testing.assert_close(product, exactly(rows, rounded, scales), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_comes_out_the_same_whatever_its_neighbours(width):
    rounded, scales = round_columns(normal(33, width), torch.eye(width))
    linear, rows = Int8Linear(rounded, scales), normal(40, width, seed=3)
    rows = (rows / rows.abs().amax(1, keepdim=True) * 254).round() / 254  # half of them lie between two steps
    alone = torch.cat([linear(row[None]) for row in rows])
    for first in range(9):
        for last in range(first + 1, 40):
            assert torch.equal(linear(rows[first:last].clone()), alone[first:last])


# --- rounding and smoothing -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_passing_errors_on_beats_rounding_to_the_nearest_on_correlated_inputs(seed):
    inputs = normal(400, 6, seed=seed) @ normal(6, 48, seed=seed + 1) + 0.1 * normal(400, 48, seed=seed + 2)
    weight = normal(40, 48, seed=seed + 3)
    rounded, scales = round_columns(weight.clone(), inputs.T @ inputs)
    nearest = (weight / scales[:, None]).round()

    def error(whole_numbers: Tensor) -> float:
        return float((inputs @ (whole_numbers * scales[:, None] - weight).T).norm())

    assert error(rounded.float()) < 0.7 * error(nearest)


def test_without_correlations_every_weight_goes_to_the_nearest():
    weight = normal(40, 48)
    rounded, scales = round_columns(weight.clone(), torch.eye(48))
    assert ((rounded * scales[:, None] - weight).abs() <= 0.51 * scales[:, None]).all()


def test_a_channel_that_is_large_in_the_input_is_made_smaller_there():
    largest = torch.ones(16)
    largest[3] = 100
    factors = smoothing_factors(largest, normal(8, 16))
    assert factors.argmax() == 3
    assert (largest / factors).max() / (largest / factors).min() < 20
    assert float(factors.log().mean()) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_smoothing_alone_changes_no_logits(monkeypatch, shape):
    monkeypatch.setattr(int8_weights, "round_columns", lambda weight, products: (weight, None))
    smoothed = {name: tensor for name, tensor in int8_tensors(module_of(shape)).items() if tensor is not None}
    exact, ids = lean_float32(shape), some_ids(40)
    assert not torch.allclose(smoothed["final_norm"], smoothed["feature_norm"], rtol=0.05), "it has been smoothed"
    model = LeanModel(assemble(smoothed, module_of(shape).config), "smoothed", None, torch.float32, 1)
    layer = (model.num_layers,)
    output, expected = (each.forward(ids, each.new_cache(), feature_layers=layer) for each in (model, exact))
    torch.testing.assert_close(output.logits, expected.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(output.features[layer[0]], expected.features[layer[0]], atol=1e-4, rtol=1e-4)


def test_quantizing_changes_nothing_of_the_module_that_it_reads():
    module = build_model("llama", tie_word_embeddings=True)
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    int8_tensors(module)
    assert all(torch.equal(weight, before[name]) for name, weight in module.state_dict().items())


# --- weights of an unlikely kind --------------------------------------------------------------

ODD_WEIGHTS = {
    "a row of zeros": lambda weight: weight[3].zero_(),
    "a column of zeros": lambda weight: weight[:, 3].zero_(),
    "zeros": lambda weight: weight.zero_(),
    "one constant": lambda weight: weight.fill_(0.02),
    "one huge weight": lambda weight: weight[3, 3].fill_(1e3),
    "next to nothing": lambda weight: weight.mul_(1e-30),
}


@pytest.mark.parametrize("change", ODD_WEIGHTS)
def test_odd_weights_give_numbers(change):
    module = build_model("llama")
    with torch.no_grad():
        for layer in module.model.layers[1:]:
            for linear in (*layer.self_attn.children(), *layer.mlp.children()):
                if isinstance(linear, torch.nn.Linear):
                    ODD_WEIGHTS[change](linear.weight)
    tensors = int8_tensors(module)
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert one_by_one(int8_of(module), some_ids(5)).isfinite().all()


def test_a_row_of_zeros_and_an_embedding_of_zeros_give_zeros_not_nan():
    module = build_model("llama")
    with torch.no_grad():
        module.model.embed_tokens.weight[7] = 0
    for model in (int8_of(module), lean_float32("grouped")):
        assert one_by_one(model, [7, 7, 1]).isfinite().all()
    assert not one_by_one(int8_of(module), [7]).any()
