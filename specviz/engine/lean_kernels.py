"""What the lean forward does between its matrix products, compiled with numba: one call a phase instead of a dozen.

Every kernel works row by row, and a row is one token: what comes out for a token does not depend on which
other tokens are in the pass. Rows leave here divided by their largest magnitude, so that the next matrix
product can round them to 8 bits with one fixed scale; `scales` [rows] holds what undoes it, and goes to
the next kernel. All arrays are float32 and C-contiguous; all kernels release the GIL.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from numba import njit

# Compiled code is kept beside this file, or in the user's cache folder; on a machine where neither can be written
# every start compiles anew.
_CAN_KEEP = any(os.access(folder, os.W_OK) for folder in (Path(__file__).parent, Path.home()))
_OPTIONS = {
    "cache": _CAN_KEEP,
    "nogil": True,
    "fastmath": {"reassoc", "nsz", "contract", "arcp"},
    "error_model": "numpy",
}
# A helper becomes part of each kernel that calls it. Compiled by itself, it would be another version of the same sums, and
# which of the two a kernel ran would depend on whether it was compiled now or kept from an earlier start.
_INSIDE = {**_OPTIONS, "cache": False, "forceinline": True}
TINY = np.float32(1e-30)  # so that a row of zeros stays one

SECOND_DIGIT = np.float32(254)  # what the rest of rounding to steps of 1/127 is at most, upside down

LOG2_E = np.float32(math.log2(math.e))
# 2^f on [-0.5, 0.5], from Cephes' exp2f: relative error 2e-7.
C1, C2, C3, C4, C5, C6 = (
    np.float32(c)
    for c in (
        6.931472028550421e-1,
        2.402264791363012e-1,
        5.550332471162809e-2,
        9.618437357674640e-3,
        1.339887440266574e-3,
        1.535336188319500e-4,
    )
)


@njit(inline="always", **_OPTIONS)
def _exp(x):
    """e^x for x <= 87, in a form that compilers make vectors of; 0 below -87."""
    y = max(x * LOG2_E, np.float32(-126.0))
    whole = np.floor(y + np.float32(0.5))
    f = y - whole
    power = np.float32(1) + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    return power * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(**_INSIDE)
def _shrink(row):
    """Divide a row by its largest magnitude, which is returned: NaN if the row holds one (8 bits would lose it)."""
    largest = TINY
    for i in range(row.shape[0]):
        largest = max(largest, abs(row[i]))
    shrink = np.float32(1) / largest
    squares = np.float32(0)
    for i in range(row.shape[0]):
        row[i] *= shrink
        squares += row[i] * row[i]
    return largest + np.float32(0) * squares


@njit(**_INSIDE)
def _normalise(row, weight, epsilon, out):
    """out = row * weight over its largest magnitude; returns the scale that makes RMSNorm(row) * weight of it."""
    squares = np.float32(0)
    for i in range(row.shape[0]):
        squares += row[i] * row[i]
        out[i] = row[i] * weight[i]
    return _shrink(out) / math.sqrt(squares / np.float32(row.shape[0]) + epsilon)


@njit(**_OPTIONS)
def norm_rows(x, weight, epsilon, out, scales):
    """RMSNorm. x, out: [rows, hidden]."""
    for r in range(x.shape[0]):
        scales[r] = _normalise(x[r], weight, epsilon, out[r])


@njit(**_OPTIONS)
def add_norm_rows(x, update, update_scales, weight, epsilon, out, scales):
    """Residual and RMSNorm: x += update * update_scales; x, out, scales as in `norm_rows`.

    update: [rows, hidden], or [2 * rows, hidden] where the product's input had two digits (see `gate_rows`).
    """
    rows = x.shape[0]
    for r in range(rows):
        scale = update_scales[r]
        for i in range(x.shape[1]):
            x[r, i] += update[r, i] * scale
        if update.shape[0] > rows:
            for i in range(x.shape[1]):
                x[r, i] += update[rows + r, i] * (scale / SECOND_DIGIT)
        scales[r] = _normalise(x[r], weight, epsilon, out[r])


@njit(**_OPTIONS)
def gate_rows(gate_up, in_scales, out, scales):
    """SiLU(gate) * up, where single channels are so large that 8 bits a row leave little for the others.

    gate_up: [rows, 2 * width]; out: [rows, width], or [2 * rows, width] for two digits of 8 bits: row r holds
    what 8 bits can say of the value, row rows + r the rest of it, times `SECOND_DIGIT`.
    """
    rows, width = gate_up.shape[0], out.shape[1]
    for r in range(rows):
        scale = in_scales[r]
        for i in range(width):
            gate = gate_up[r, i] * scale
            up = gate_up[r, width + i] * scale
            out[r, i] = gate * up / (np.float32(1) + _exp(min(-gate, np.float32(87))))
        scales[r] = _shrink(out[r])
        if out.shape[0] > rows:
            for i in range(width):
                first = np.floor(out[r, i] * np.float32(127) + np.float32(0.5)) / np.float32(127)
                out[rows + r, i] = (out[r, i] - first) * SECOND_DIGIT
                out[r, i] = first


@njit(**_INSIDE)
def _rotate(source, scale, cosines, sines, target):
    """Rotary embedding of one head, halves paired as in transformers' `rotate_half`."""
    half = cosines.shape[0]
    for i in range(half):
        first, second = source[i] * scale, source[half + i] * scale
        target[i] = first * cosines[i] - second * sines[i]
        target[half + i] = second * cosines[i] + first * sines[i]


@njit(**_INSIDE)
def _keep_row(qkv, scale, position, cosines, sines, keys, values):
    """Key and value of one row of `attend_rows`, into their place."""
    kv_heads, head_dim = keys.shape[0], keys.shape[2]
    heads = qkv.shape[0] // head_dim - 2 * kv_heads
    for h in range(kv_heads):
        k = (heads + h) * head_dim
        v = (heads + kv_heads + h) * head_dim
        _rotate(qkv[k : k + head_dim], scale, cosines[position], sines[position], keys[h, position])
        for i in range(head_dim):
            values[h, position, i] = qkv[v + i] * scale


@njit(**_INSIDE)
def _attend_row(qkv, scale, position, cosines, sines, keys, values, scores, query, out):
    """One row of `attend_rows`: qkv [(heads + 2 * kv_heads) * head_dim], query [head_dim] to work in."""
    kv_heads, head_dim = keys.shape[0], keys.shape[2]
    heads = out.shape[0] // head_dim
    group = heads // kv_heads
    soften = np.float32(1) / math.sqrt(np.float32(head_dim))
    _keep_row(qkv, scale, position, cosines, sines, keys, values)
    for h in range(heads):
        kv, q = h // group, h * head_dim
        _rotate(qkv[q : q + head_dim], scale * soften, cosines[position], sines[position], query)
        row, head_out = scores[h], out[q : q + head_dim]
        top = np.float32(-np.inf)
        for t in range(position + 1):
            dot = np.float32(0)
            for i in range(head_dim):
                dot += query[i] * keys[kv, t, i]
            row[t] = dot
            top = max(top, dot)
        total = np.float32(0)
        for t in range(position + 1):
            weight = _exp(row[t] - top)
            row[t] = weight
            total += weight
        head_out[:] = np.float32(0)
        for t in range(position + 1):
            weight = row[t]
            for i in range(head_dim):
                head_out[i] += weight * values[kv, t, i]
        for i in range(head_dim):
            head_out[i] /= total


@njit(**_OPTIONS)
def attend_rows(qkv, in_scales, start, cosines, sines, keys, values, scores, out, scales):
    """Rotary embedding, KV write and causal attention; the rows follow each other in one sequence.

    Args:
        qkv: [rows, (heads + 2 * kv_heads) * head_dim], heads of q, then k, then v.
        start: the position of row 0; row r attends to positions 0..start + r.
        cosines, sines: [positions, head_dim / 2].
        keys, values: [kv_heads, capacity, head_dim] of one layer; positions start.. are written.
        scores: [heads, capacity], room to work in.
        out: [rows, heads * head_dim].
    """
    query = np.empty(keys.shape[2], np.float32)
    for r in range(out.shape[0]):
        _attend_row(qkv[r], in_scales[r], start + r, cosines, sines, keys, values, scores, query, out[r])
        scales[r] = _shrink(out[r])


@njit(**_OPTIONS)
def keep_rows(qkv, in_scales, start, cosines, sines, keys, values):
    """The keys and values of `attend_rows` alone, for rows whose attention nobody asks for."""
    for r in range(qkv.shape[0]):
        _keep_row(qkv[r], in_scales[r], start + r, cosines, sines, keys, values)


@njit(**_OPTIONS)
def attend_apart(qkv, in_scales, positions, cosines, sines, keys, values, scores, out, scales):
    """As `attend_rows`, where every row is a sequence of its own.

    Args:
        positions: [rows], that of each row in its sequence.
        keys, values: [rows, kv_heads, capacity, head_dim] of one layer.
    """
    query = np.empty(keys.shape[3], np.float32)
    for r in range(out.shape[0]):
        _attend_row(qkv[r], in_scales[r], positions[r], cosines, sines, keys[r], values[r], scores, query, out[r])
        scales[r] = _shrink(out[r])


@njit(**_OPTIONS)
def choose_rows(logits, scales, temperatures, uniforms, tokens, log_sums):
    """Next tokens without sorting: the argmax where the temperature is 0, else the token at which the cumulative
    probability exceeds the row's uniform.

    Args:
        logits: [rows, vocab], to be multiplied by scales [rows].
        temperatures, uniforms: [rows]; a uniform is in [0, 1).
        tokens: [rows], out.
        log_sums: [rows], out: log of the sum of exp(logits), at temperature 1.
    """
    vocab = logits.shape[1]
    exps = np.empty(vocab, np.float32)
    for r in range(logits.shape[0]):
        row, scale = logits[r], scales[r]
        top, best = row[0], 0
        for i in range(vocab):
            if row[i] > top:
                top, best = row[i], i
        total = 0.0
        for i in range(vocab):
            total += np.float64(_exp((row[i] - top) * scale))
        log_sums[r] = top * scale + math.log(total)
        tokens[r] = best
        if temperatures[r] > 0:
            heat = scale / temperatures[r]
            total = 0.0
            for i in range(vocab):
                exps[i] = _exp((row[i] - top) * heat)
                total += np.float64(exps[i])
            goal, reached = uniforms[r] * total, 0.0
            for i in range(vocab):
                reached += np.float64(exps[i])
                if reached > goal:
                    tokens[r] = i
                    break
