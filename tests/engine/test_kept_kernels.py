"""Compiled kernels are kept between starts: a start that compiles them and one that finds them give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_EVERY_KERNEL = """
import hashlib
import numpy as np
from specviz.engine import head_kernels, lean_kernels as kernels

rng = np.random.default_rng(0)
epsilon = np.float32(1e-5)


def some(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def tell(name, *arrays):
    print(name, *(hashlib.sha256(array.tobytes()).hexdigest()[:12] for array in arrays))


for rows in (1, 5):
    x, out, scales, weight = some(rows, 576), some(rows, 576), some(rows), some(576)
    kernels.norm_rows(x, weight, epsilon, out, scales)
    tell("norm_rows", out, scales)
    kernels.add_norm_rows(x, some(2 * rows, 576), some(rows), weight, epsilon, out, scales)
    tell("add_norm_rows", x, out, scales)
    wide = some(2 * rows, 1536)
    kernels.gate_rows(some(rows, 3072), some(rows), wide, scales)
    tell("gate_rows", wide, scales)
    tables, qkv, in_scales = (some(512, 32), some(512, 32)), some(rows, 15 * 64), np.abs(some(rows))
    keys, values, scores, heads = some(3, 256, 64), some(3, 256, 64), some(9, 256), some(rows, 576)
    kernels.attend_rows(qkv, in_scales, 100, *tables, keys, values, scores, heads, scales)
    tell("attend_rows", keys, values, heads, scales)
    kernels.keep_rows(qkv, in_scales, 120, *tables, keys, values)
    tell("keep_rows", keys, values)
    keys, values = some(rows, 3, 256, 64), some(rows, 3, 256, 64)
    kernels.attend_apart(qkv, in_scales, np.arange(90, 90 + rows), *tables, keys, values, scores, heads, scales)
    tell("attend_apart", keys, values, heads, scales)
    fused = some(rows, 3 * 576)
    head_kernels.fuse_rows(some(rows, 3, 576), some(3, 576), epsilon, fused, scales)
    tell("fuse_rows", fused, scales)
    joined = some(rows, 2 * 576)
    head_kernels.join_rows(some(rows, 576), some(rows), some(rows, 576), weight, weight, epsilon, joined, scales)
    tell("join_rows", joined, scales)
"""


def test_a_kernel_that_was_kept_gives_the_bits_of_one_compiled_now(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    told = [
        subprocess.run(
            [sys.executable, "-c", RUN_EVERY_KERNEL], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert list(tmp_path.rglob("*.nbc")), "nothing was kept, so nothing was compared"
    assert len(told[0].splitlines()) == 16
    assert told[0] == told[1]
