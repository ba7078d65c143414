"""What the lean draft head does around its layer, compiled with numba; see `lean_kernels.py` for the rules."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from specviz.engine.lean_kernels import _INSIDE, _OPTIONS, _shrink


@njit(**_INSIDE)
def _norm_into(row, scale, weight, epsilon, out):
    """out = RMSNorm(row * scale) * weight."""
    squares = np.float32(0)
    for i in range(row.shape[0]):
        squares += row[i] * row[i]
    factor = scale / math.sqrt(squares * scale * scale / np.float32(row.shape[0]) + epsilon)
    for i in range(row.shape[0]):
        out[i] = row[i] * factor * weight[i]


@njit(**_OPTIONS)
def fuse_rows(features, weights, epsilon, out, scales):
    """The input of `fuse`: features [rows, layers, hidden], each with its own norm, one after the other in `out`."""
    hidden = features.shape[2]
    for r in range(features.shape[0]):
        for layer in range(features.shape[1]):
            _norm_into(
                features[r, layer],
                np.float32(1),
                weights[layer],
                epsilon,
                out[r, layer * hidden : (layer + 1) * hidden],
            )
        scales[r] = _shrink(out[r])


@njit(**_OPTIONS)
def join_rows(states, state_scales, embeddings, state_norm, token_norm, epsilon, out, scales):
    """The input of `join`: states * state_scales and embeddings, [rows, hidden], each normed, side by side in `out`."""
    hidden = states.shape[1]
    for r in range(states.shape[0]):
        _norm_into(states[r], state_scales[r], state_norm, epsilon, out[r, :hidden])
        _norm_into(embeddings[r], np.float32(1), token_norm, epsilon, out[r, hidden:])
        scales[r] = _shrink(out[r])


@njit(**_OPTIONS)
def say_more(state, scale, rows, token_ids, logits):
    """The logits of a few more tokens, into their places in `logits` [vocab]: state * scale times rows [tokens, hidden]."""
    for t in range(rows.shape[0]):
        dot = np.float32(0)
        for i in range(state.shape[0]):
            dot += state[i] * rows[t, i]
        logits[token_ids[t]] = dot * scale
