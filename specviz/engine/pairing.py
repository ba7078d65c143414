"""May these two work together? The tokenizers decide, then widths, contexts, caches and sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from specviz.engine.language_model import LanguageModel
from specviz.engine.vocabulary import Vocabulary
from specviz.errors import BadRequest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from specviz.engine.hf_model import TransformersModel

Level = Literal["ok", "slow", "refused"]

# At a draft cost ratio of one half even 80% acceptance gives 1.2x at best (Leviathan et al. 2023,
# Theorem 3.8): from here on a draft is called slow.
SLOW_FROM_COST_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding about a pair: the topic, how bad it is, and a sentence."""

    topic: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """`verdict` is the worst level of the reasons; `memory` is in bytes, derived from the configurations."""

    verdict: Level
    reasons: tuple[Reason, ...]
    memory: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "reasons": [asdict(reason) for reason in self.reasons], "memory": self.memory}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model of a pair, known without its weights; `refusal` says why it can be neither target nor draft."""

    name: str
    vocabulary: Vocabulary
    num_embeddings: int
    model: LanguageModel | None
    refusal: str | None = None


def inspect_candidate(
    source: str,
    name: str,
    dtype: torch.dtype,
    revision: str | None = None,
    *,
    lean_embedding: torch.dtype | None = None,
) -> Candidate:
    """Everything about a model but its weights: it is built on the meta device, where tensors have only shapes.

    Args:
        lean_embedding: the embedding's dtype where it will be run on the lean path, in int8, whatever `dtype` is.

    Raises:
        BadRequest: no such model.
    """
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    from specviz.engine.hf_model import TransformersModel
    from specviz.engine.lean_weights import why_not_lean
    from specviz.engine.loader import clear_errors, load_tokenizer

    vocabulary = Vocabulary(load_tokenizer(source, revision))
    with clear_errors(source):
        config = AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    text_config = config.get_text_config(decoder=True)
    if Path(source).is_dir() and not list(Path(source).glob("*.safetensors")):
        refusal = f"{name} has no safetensors weights in its folder: convert them, other formats are never loaded."
        return Candidate(name, vocabulary, text_config.vocab_size, None, refusal)
    if lean_embedding is not None and (reason := why_not_lean(config)):
        return Candidate(
            name, vocabulary, text_config.vocab_size, None, f"{name} cannot be run in int8, since {reason}."
        )
    try:
        with init_empty_weights(include_buffers=True), torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
            module.tie_weights()
            model = TransformersModel(module, name, revision)
            if lean_embedding is not None:
                _tell_as_lean(model, module, lean_embedding)
    except BadRequest as error:
        return Candidate(name, vocabulary, text_config.vocab_size, None, str(error))
    except ValueError:
        refusal = f"{name} ({config.model_type}) is not a causal language model: choose a decoder-only one."
        return Candidate(name, vocabulary, text_config.vocab_size, None, refusal)
    return Candidate(name, vocabulary, module.get_input_embeddings().weight.shape[0], model)


def _tell_as_lean(model: TransformersModel, module: PreTrainedModel, embedding_dtype: torch.dtype) -> None:
    """What is said of the model is what `LeanModel` would say in int8; its KV is float32."""
    import torch

    from specviz.engine.lean_weights import int8_bytes

    values_per_position = model.kv_bytes_per_position // model.dtype.itemsize
    model.weight_bytes = int8_bytes(module, embedding_dtype)
    model.kv_bytes_per_position = values_per_position * torch.float32.itemsize
    model.dtype, model.precision = torch.int8, "int8"


def judge_pair(target: Candidate, draft: Candidate) -> PairVerdict:
    """All findings about a draft for a target, good ones too, and what the two need of memory."""
    reasons = [*_tokenizer_reasons(target, draft)]
    for role, candidate in (("target", target), ("draft", draft)):
        if candidate.refusal:
            reasons.append(Reason("cache", "refused", candidate.refusal))
        else:
            reasons.append(
                Reason(
                    "cache",
                    "ok",
                    f"The {role}'s KV cache can be cut to any length ({candidate.model.num_layers} layers).",
                )
            )
    memory: dict[str, Any] = {}
    if target.model and draft.model:
        reasons += [_width_reason(target, draft), _context_reason(target.model, draft.model)]
        reasons += _size_reasons(target.model, draft.model)
    for role, candidate in (("target", target), ("draft", draft)):
        if candidate.model:
            memory[role] = memory_of(candidate.model)
    levels = [reason.level for reason in reasons]
    worst: Level = "refused" if "refused" in levels else "slow" if "slow" in levels else "ok"
    return PairVerdict(worst, tuple(reasons), memory)


def memory_of(model: LanguageModel) -> dict[str, Any]:
    """What a model needs of memory, for `PairVerdict.memory`."""
    return {
        "weight_bytes": model.weight_bytes,
        "kv_bytes_per_1000_tokens": 1000 * model.kv_bytes_per_position,
        "num_params": model.num_params,
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def tokenizer_differences(target: Vocabulary, draft: Vocabulary) -> list[str]:
    """Where two tokenizers differ, a sentence each; empty = a token id means the same to both."""
    target_ids, draft_ids = target.tokenizer.get_vocab(), draft.tokenizer.get_vocab()
    differences = []
    moved = [token for token in target_ids.keys() & draft_ids.keys() if target_ids[token] != draft_ids[token]]
    if moved:
        token = min(moved, key=target_ids.__getitem__)
        differences.append(
            f"{len(moved)} tokens have other ids, the first is {token!r}: {target_ids[token]} in the target, "
            f"{draft_ids[token]} in the draft"
        )
    for one, other, who in ((target_ids, draft_ids, "target"), (draft_ids, target_ids, "draft")):
        alone = sorted(one.keys() - other.keys(), key=one.__getitem__)
        if alone:
            differences.append(
                f"{len(alone)} tokens are only in the {who}'s vocabulary, the first is {alone[0]!r} (id {one[alone[0]]})"
            )
    return differences


def refuse_other_tokenizer(target_vocabulary: Vocabulary, draft_vocabulary: Vocabulary, draft_name: str) -> None:
    """Raise BadRequest where a token id of one would not mean the same to the other."""
    differences = tokenizer_differences(target_vocabulary, draft_vocabulary)
    if differences:
        raise BadRequest(
            f"{draft_name} has another tokenizer than the target ({'; '.join(differences)}): choose a draft of the same "
            "family, or drafter prompt_lookup or early_exit, which need none."
        )


def refuse_narrow_draft(target_vocabulary: Vocabulary, draft_name: str, num_draft_embeddings: int) -> None:
    """Raise BadRequest where the draft cannot read every token of the target's."""
    if num_draft_embeddings < target_vocabulary.size:
        raise BadRequest(
            f"{draft_name} has embeddings for {num_draft_embeddings} ids, but the tokenizer has {target_vocabulary.size}: "
            "choose a draft that reads them all."
        )


def _tokenizer_reasons(target: Candidate, draft: Candidate) -> list[Reason]:
    differences = tokenizer_differences(target.vocabulary, draft.vocabulary)
    reasons = [Reason("tokenizer", "refused", f"The tokenizers differ: {text}.") for text in differences]
    if not differences:
        reasons.append(Reason("tokenizer", "ok", f"The same tokenizer, {target.vocabulary.size} ids."))
    specials = [
        f"{name} is {getattr(target.vocabulary.tokenizer, name)!r} in the target and "
        f"{getattr(draft.vocabulary.tokenizer, name)!r} in the draft"
        for name in ("bos_token", "eos_token", "pad_token")
        if getattr(target.vocabulary.tokenizer, name) != getattr(draft.vocabulary.tokenizer, name)
    ]
    if target.vocabulary.special_ids != draft.vocabulary.special_ids:
        only = sorted(target.vocabulary.special_ids ^ draft.vocabulary.special_ids)
        specials.append(f"ids {only[:5]} are special to only one of them")
    text = (
        f"Special tokens differ ({'; '.join(specials)}); the target's are used."
        if specials
        else "The same special tokens."
    )
    reasons.append(Reason("special_tokens", "ok", text))
    return reasons


def _width_reason(target: Candidate, draft: Candidate) -> Reason:
    widths, size = (target.model.vocab_size, draft.model.vocab_size), target.vocabulary.size
    if draft.num_embeddings < size:
        text = f"The draft has embeddings for {draft.num_embeddings} ids, but the tokenizer has {size}: it cannot read them all."
        return Reason("vocabulary_width", "refused", text)
    if widths[0] == widths[1]:
        padding = f"; ids from {size} on are padding and cut off" if widths[0] > size else ""
        return Reason("vocabulary_width", "ok", f"Both heads are {widths[0]} wide{padding}.")
    text = f"The target's head is {widths[0]} wide, the draft's {widths[1]}: compared over the {size} ids of the tokenizer."
    return Reason("vocabulary_width", "ok", text)


def _context_reason(target: LanguageModel, draft: LanguageModel) -> Reason:
    contexts = [f"{model.max_positions}" if model.max_positions else "no limit known" for model in (target, draft)]
    text = f"Context in tokens: target {contexts[0]}, draft {contexts[1]}."
    if target.max_positions and draft.max_positions and draft.max_positions < target.max_positions:
        text += " Beyond the draft's own, the run goes on without drafts."
    return Reason("context", "ok", text)


def _size_reasons(target: LanguageModel, draft: LanguageModel) -> list[Reason]:
    layers_ratio = draft.num_layers / target.num_layers
    reasons = [speed_reason(draft.weight_bytes / target.weight_bytes, draft.num_params, target)]
    if layers_ratio >= SLOW_FROM_COST_RATIO:
        reasons.append(
            Reason(
                "layers",
                "ok",
                f"The draft has {draft.num_layers} layers to the target's {target.num_layers}: on a GPU without CUDA graphs, where "
                f"launching decides, c comes near {layers_ratio:.2f} whatever the sizes (derived).",
            )
        )
    return reasons


def speed_reason(bytes_ratio: float, draft_params: int, target: LanguageModel) -> Reason:
    """Whether a draft step costs so much of a target step that drafting hardly pays.

    Args:
        bytes_ratio: what a draft step reads of weights / what a target step does.
    """
    level: Level = "slow" if bytes_ratio >= SLOW_FROM_COST_RATIO else "ok"
    text = (
        f"The draft reads {bytes_ratio:.0%} of the target's bytes a token ({draft_params:,} of {target.num_params:,} parameters): "
        f"expect a draft cost ratio c of about {bytes_ratio:.2f} where memory bandwidth decides (derived, not measured)"
    )
    text += "; from one half on, drafting hardly pays." if level == "slow" else "."
    return Reason("size", level, text)
