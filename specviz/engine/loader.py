"""Loading a target and, if there is one, its draft model. Nothing loads before it is asked for.

Safetensors only, and never code that came with a model (`trust_remote_code` stays False).
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specviz.config import DRAFT_PRECISIONS, DTYPES
from specviz.engine.draft_facts import DRAFT_KINDS, DraftKind, find_draft_folder, read_draft_facts, shipped_sentence
from specviz.engine.embedded import EMBEDDED_NAME, embedded_model_dir, is_embedded_source
from specviz.engine.kv_memory import reads_ahead
from specviz.engine.language_model import LanguageModel
from specviz.engine.lazy_drafts import Draft, LazyDrafts, LazyExitHeads
from specviz.engine.quanto_weights import quantize_weights
from specviz.errors import BadRequest, RunFailed

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

    from specviz.engine.lean_model import LeanModel
    from specviz.engine.vocabulary import Vocabulary

SECONDS_TO_ASK_THE_HUB = 3
SECONDS_ITS_ANSWER_HOLDS = 60
DEVICES = ("auto", "cpu", "cuda", "mps")
TARGET_PRECISIONS = (*DTYPES, "int8")


OpenDrafts = Callable[[str], tuple[LanguageModel | None, LazyDrafts]]


def no_drafts(precision: str) -> tuple[None, LazyDrafts]:
    """The drafts of a pair that has none, in any precision."""
    return None, LazyDrafts()


@dataclass(frozen=True, slots=True)
class ModelPair:
    """What a run needs of models; shared by runs, changed by none.

    Attributes:
        draft: the draft model that was loaded with the target; None if none was asked for.
        eos_token_ids: the target's own end tokens.
        drafts: those that are loaded when a run first drafts with them.
        open_drafts: precision -> the pair's `draft` and `drafts`.
        exit_heads: those of the target, opened when a run first leaves early or drafts so.
    """

    target: LanguageModel
    vocabulary: Vocabulary
    draft: LanguageModel | None
    eos_token_ids: frozenset[int]
    drafts: LazyDrafts = field(default_factory=LazyDrafts)
    open_drafts: OpenDrafts = no_drafts
    exit_heads: LazyExitHeads = field(default_factory=LazyExitHeads)

    def draft_for(self, kind: str) -> Draft | None:
        """What drafters of a kind run beside the target, the same at every call; None for a kind that runs nothing,
        or where there is none.

        Raises:
            BadRequest: there is one, and it cannot be loaded.
        """
        if kind == "draft_model" and self.draft is not None:
            return self.draft
        return self.drafts.get(kind)

    def with_draft_precision(self, precision: str) -> ModelPair:
        """The same target, with its drafts in another precision.

        Raises:
            BadRequest: no such precision, or a draft that cannot have it.
        """
        _check_choice("draft_precision", precision, DRAFT_PRECISIONS)
        draft, drafts = self.open_drafts(precision)
        return replace(self, draft=draft, drafts=drafts)


def load_pair(
    target: str | None = None,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    draft_precision: str = "auto",
    revision: str | None = None,
    draft_revision: str | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> ModelPair:
    """Load models by folder or hub id; None = the embedded target, and no draft but those that are shipped for it
    (which are loaded when a run first asks for them).

    Args:
        draft: a draft model, a draft folder that was trained for the target, or the name of a shipped one.
        dtype: of the target; "int8" takes the lean path (`lean_model.py`), and so does "auto" for the embedded
            target where this machine can.
        draft_precision: a dtype, or "int8"/"int4" weights (see `quanto_weights.py`, and `draft_loading.py` for
            draft folders).
        notify: told what is going on, in short sentences.

    Raises:
        BadRequest: no such model, not one that can be used, or the two do not belong together.
        RunFailed: it does not fit into memory.
    """
    _check_choice("device", device, DEVICES)
    _check_choice("dtype", dtype, TARGET_PRECISIONS)
    _check_choice("draft_precision", draft_precision, DRAFT_PRECISIONS)
    from specviz.engine.draft_files import read_draft, stored_embedding
    from specviz.engine.draft_loading import open_draft, open_shipped
    from specviz.engine.pairing import refuse_other_tokenizer
    from specviz.engine.vocabulary import Vocabulary

    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    is_embedded = is_embedded_source(target)
    target_source, name = locate(target)
    folder = None if draft is None else find_draft_folder(draft)
    if folder is not None:
        read_draft_facts(folder)
    elif draft is not None:
        with _shipped_drafts_named():
            draft_source, draft_name = locate(draft)
    notify(f"Loading {name}")
    vocabulary = Vocabulary(load_tokenizer(target_source, revision))
    whole_draft = None
    if draft is not None and folder is None:
        with _shipped_drafts_named():
            whole_draft = _WholeDraft(draft_source, draft_name, draft_revision)
            draft_vocabulary = Vocabulary(load_tokenizer(draft_source, draft_revision))
        refuse_other_tokenizer(vocabulary, draft_vocabulary, draft_name)
    if takes_lean_path(dtype, chosen_device, is_embedded=is_embedded):
        target_model = _load_lean(target_source, name, revision, vocabulary, is_embedded=is_embedded)
        eos_token_ids = _eos_token_ids(_load_generation_config(target_source, revision))
    else:
        from specviz.engine.static_loading import open_module

        module = load_module(target_source, chosen_device, chosen_dtype, revision)
        target_model = open_module(module, name, revision or _found_revision(module.config))
        eos_token_ids = _eos_token_ids(module.generation_config)
    if not eos_token_ids and vocabulary.tokenizer.eos_token_id is not None:
        eos_token_ids = frozenset([vocabulary.tokenizer.eos_token_id])

    def open_drafts(precision: str) -> tuple[LanguageModel | None, LazyDrafts]:
        if whole_draft is not None:
            notify(f"Loading {whole_draft.name}")
            return whole_draft.load(vocabulary, chosen_device, chosen_dtype, precision), LazyDrafts()
        if folder is None:
            return None, LazyDrafts(shipped_drafts(precision) if is_embedded else {})
        notify(f"Loading {folder.name}")
        stored = stored_embedding(target_model.embedding, target_source)
        opened = open_draft(read_draft(folder), target_model, precision, stored)
        return (None, LazyDrafts({"draft_head": lambda: opened})) if reads_ahead(opened) else (opened, LazyDrafts())

    def shipped_drafts(precision: str) -> dict[str, Callable[[], Draft | None]]:
        def open_kind(kind: DraftKind) -> Draft | None:
            stored = stored_embedding(target_model.embedding, target_source)
            return open_shipped(kind, target_model, precision, stored)

        return {kind: partial(open_kind, kind) for kind in DRAFT_KINDS}

    draft_model, drafts = open_drafts(draft_precision)
    return ModelPair(target_model, vocabulary, draft_model, eos_token_ids, drafts, open_drafts)


def locate(source: str | None) -> tuple[str, str]:
    """(what transformers loads, the name to show) of a folder, a hub id, or the embedded model (None).

    Raises:
        BadRequest: it cannot be one of them, or the folder holds no model.
    """
    if is_embedded_source(source):
        return str(embedded_model_dir()), EMBEDDED_NAME
    if find_draft_folder(source) is not None:
        raise BadRequest(
            f"{source!r} is a draft, not a model: give it as the draft, and as the target embedded, a model folder or a hub id."
        )
    if source and Path(source).is_dir():
        if not (Path(source) / "config.json").is_file():
            raise BadRequest(
                f"The folder {source!r} has no config.json, so no model is in it: name a folder with config.json, tokenizer and "
                "safetensors weights, a hub id such as owner/model, or embedded."
            )
        return source, Path(source).resolve().name
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) or source.startswith("."):
        raise BadRequest(
            f"{source!r} is no folder here and no hub id: name a model folder, a hub id such as owner/model, or embedded."
        )
    return source, source


def layers_of(target: str | None, revision: str | None = None) -> tuple[int | None, str]:
    """How many layers a target has, if its configuration says so, and the name to show; loads no weights."""
    source, name = locate(target)
    text_config = _load_config(source, revision).get_text_config(decoder=True)
    return getattr(text_config, "num_hidden_layers", None), name


def choose_device(device: str) -> torch.device:
    """The device that "auto" means here, or the named one if this machine has it."""
    import torch

    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(name for name, is_there in available.items() if is_there))
    if not available[device]:
        here = ", ".join(name for name, is_there in available.items() if is_there)
        raise BadRequest(f"device is {device!r}, which this machine does not have: choose auto or one of {here}.")
    return torch.device(device)


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype that "auto" means for a model of transformers on the device: bfloat16 where it is fast, else float32.
    "int8" means the same: it is made of such a model."""
    import torch

    if dtype not in ("auto", "int8"):
        return getattr(torch, dtype)
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    if device.type == "mps":
        return torch.float16
    return torch.bfloat16 if cpu_has_fast_bf16() else torch.float32


def cpu_has_fast_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (AVX-512 BF16 or AMX)."""
    import torch

    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, check, lambda: False)() for check in checks)


def takes_lean_path(dtype: str, device: torch.device, *, is_embedded: bool) -> bool:
    """Whether a target of this dtype takes the lean path.

    Raises:
        BadRequest: int8 was asked for, and this machine cannot.
    """
    if dtype not in ("auto", "int8") or (dtype == "auto" and not is_embedded):
        return False
    from specviz.engine.lean_loading import why_general

    reason = why_general(device)
    if reason and dtype == "int8":
        raise BadRequest(f"dtype is 'int8', but {reason}: choose one of {', '.join(DTYPES)}.")
    return reason is None


def load_tokenizer(source: str, revision: str | None = None):
    """The tokenizer of a folder or hub id."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    with clear_errors(source):
        return AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False, **_hub_options(source))


def load_module(source: str, device: torch.device, dtype: torch.dtype, revision: str | None) -> PreTrainedModel:
    """The transformers model of a folder or hub id, all of its weights there; raises BadRequest or RunFailed."""
    from transformers import AutoModelForCausalLM

    spread = {"device_map": "auto"} if device.type == "cuda" else {}
    with clear_errors(source):
        module, found = AutoModelForCausalLM.from_pretrained(
            source,
            revision=revision,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **_hub_options(source),
            **spread,
        )
        _refuse_missing_weights(source, found)
        return module if spread else module.to(device)


@contextmanager
def _shipped_drafts_named() -> Iterator[None]:
    """What is refused as a draft is refused with those that can be had by name."""
    try:
        yield
    except BadRequest as error:
        raise BadRequest(f"{error} {shipped_sentence()}") from error


@dataclass(frozen=True, slots=True)
class _WholeDraft:
    """A draft model of transformers, with the target's tokenizer."""

    source: str
    name: str
    revision: str | None

    def load(
        self, target_vocabulary: Vocabulary, device: torch.device, target_dtype: torch.dtype, precision: str
    ) -> LanguageModel:
        from specviz.engine.hf_model import TransformersModel
        from specviz.engine.pairing import refuse_narrow_draft
        from specviz.engine.static_loading import open_module

        is_quantized = precision in ("int8", "int4")
        dtype = target_dtype if is_quantized or precision == "auto" else choose_dtype(precision, device)
        module = load_module(self.source, device, dtype, self.revision)
        revision = self.revision or _found_revision(module.config)
        if is_quantized:
            quantize_weights(module, precision)
            model = TransformersModel(module, self.name, revision)
            model.precision = precision
        else:
            model = open_module(module, self.name, revision)
        refuse_narrow_draft(target_vocabulary, self.name, module.get_input_embeddings().weight.shape[0])
        return model


def _load_lean(source: str, name: str, revision: str | None, vocabulary: Vocabulary, *, is_embedded: bool) -> LeanModel:
    import torch

    from specviz.engine import lean_loading
    from specviz.engine.lean_weights import why_not_lean

    config = _load_config(source, revision)
    if reason := why_not_lean(config):
        raise BadRequest(f"dtype is 'int8', but {name} cannot be run so, since {reason}: choose another dtype.")
    if is_embedded:
        from specviz.engine.embedded import embedded_int8_folder

        folder = embedded_int8_folder()
        with clear_errors(source):
            tensors, num_params = lean_loading.read_int8(folder)
    else:
        module = load_module(source, torch.device("cpu"), torch.float32, revision)
        num_params = sum(parameter.numel() for parameter in module.parameters())
        with clear_errors(source):
            tensors = lean_loading.quantized(module, vocabulary.tokenizer)
    return lean_loading.lean_int8(tensors, config, name, revision or _found_revision(config), num_params)


def _load_config(source: str, revision: str | None) -> PretrainedConfig:
    from transformers import AutoConfig

    with clear_errors(source):
        return AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False, **_hub_options(source))


def _load_generation_config(source: str, revision: str | None) -> GenerationConfig:
    """As transformers finds it for a model that it loads: of a file of its own, else in the model's configuration."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(source, revision=revision, **_hub_options(source))
    except OSError:
        return GenerationConfig.from_model_config(_load_config(source, revision))


def _refuse_missing_weights(source: str, found: dict) -> None:
    """Without this transformers fills the gaps with random numbers, and only warns."""
    lacking = sorted(str(name) for name in (*found["missing_keys"], *found["mismatched_keys"]))
    if lacking:
        raise BadRequest(
            f"{source!r} lacks {len(lacking)} of its weights, or has them in another shape (the first is {lacking[0]}): "
            "fetch the model again, or choose another."
        )


def _hub_options(source: str) -> dict[str, bool]:
    """Without a hub only what was downloaded before is looked at, instead of a minute of retries."""
    return {} if Path(source).is_dir() or _hub_answers() else {"local_files_only": True}


def _hub_answers() -> bool:
    """As it was a minute ago at most: a network may come while a page is open."""
    return _hub_answered(int(time.monotonic() // SECONDS_ITS_ANSWER_HOLDS))


@lru_cache(maxsize=1)
def _hub_answered(minute: int) -> bool:
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # only the proxy knows
    from huggingface_hub.constants import ENDPOINT

    address = urlsplit(ENDPOINT)
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=SECONDS_TO_ASK_THE_HUB).close()
    except OSError:
        return False
    return True


def _eos_token_ids(config: GenerationConfig) -> frozenset[int]:
    eos = config.eos_token_id
    return frozenset([] if eos is None else [eos] if isinstance(eos, int) else eos)


def _found_revision(config: PretrainedConfig) -> str | None:
    return getattr(config, "_commit_hash", None)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequest(f"{name} is {value!r}: choose one of {', '.join(choices)}.")


class clear_errors:
    """Turns what transformers raises about a model's files into one sentence."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, traceback) -> None:
        if error is None or isinstance(error, (BadRequest, KeyboardInterrupt)):
            return
        import torch
        from huggingface_hub.errors import LocalEntryNotFoundError

        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            raise RunFailed(
                f"{self._source} does not fit into memory: choose a smaller model or a smaller dtype."
            ) from error
        if any(isinstance(cause, LocalEntryNotFoundError) for cause in _with_causes(error)):
            raise BadRequest(_unreachable_sentence(self._source)) from error
        if (
            isinstance(error, (OSError, ValueError, KeyError, ImportError, RuntimeError))
            or "safetensors" in type(error).__module__
        ):
            first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if "backend tokenizer" in first_line:  # what follows there is an empty list
                first_line = "no tokenizer is in it that can be read"
            where = "in that folder" if Path(self._source).is_dir() else "as a folder here or on the hub"
            raise BadRequest(
                f"{self._source!r} could not be loaded {where} as a causal language model with safetensors weights "
                f"({first_line[:300]}): name a folder or a hub id that holds one."
            ) from error


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _unreachable_sentence(source: str) -> str:
    """No network: what can be done without one, and how the model comes here once there is one."""
    from specviz.presets import load_pairs

    pair = next((pair.name for pair in load_pairs() if source in (pair.target, pair.draft)), None)
    fetching = "" if pair is None else f", or run `python -m specviz fetch {pair}` once there is one"
    return (
        f"{source!r} is no folder here, was not downloaded before, and there is no network to the model hub: "
        f"choose the embedded model or a folder that holds a model, which need none{fetching}."
    )
