"""From a draft folder and its target to a draft that runs: on the lean path where this machine can, else in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specviz.engine.context_tokens import TiedRows
from specviz.engine.cut_vocabulary import CutVocabulary, CutVocabularyModel
from specviz.engine.draft_facts import DraftKind
from specviz.engine.draft_files import DraftFile, read_draft, shipped_for
from specviz.engine.draft_head import DraftHeadModel
from specviz.engine.language_model import EmbeddingModel, LanguageModel
from specviz.errors import BadRequest

if TYPE_CHECKING:
    from specviz.engine.draft_head_net import DraftHeadNet, HeadShape
    from specviz.engine.row_linear import Float32Linear, Int8Linear

LEAN_PRECISIONS = ("auto", "int8")


def open_draft(
    file: DraftFile, target: LanguageModel, precision: str = "auto", stored_embedding: Tensor | None = None
) -> LanguageModel | DraftHeadModel:
    """A draft that runs beside its target, and shares its embedding.

    Args:
        target: one with an `embedding`.
        precision: "auto" is as in the file on the lean path, else the dtype that is fast on the device; a dtype is
            always the general path; "int8" and "int4" as far as there is a way.
        stored_embedding: the target's before it was rounded to float16, if it was: the fingerprint is of that one.

    Raises:
        BadRequest: another target than the draft was trained for, or a precision that it cannot have.
    """
    from specviz.engine.lean_loading import why_general
    from specviz.engine.loader import choose_dtype

    if not isinstance(target, EmbeddingModel):
        raise BadRequest(f"{target.name} shares no embedding with a draft: choose another target or another draft.")
    embedding = target.embedding if stored_embedding is None else stored_embedding
    file.refuse_other_target(embedding, target.num_layers, target.name)
    is_head, reason = file.facts.kind == "draft_head", why_general(target.device)
    if precision == "int4" and is_head:
        raise BadRequest("draft_precision is 'int4', which draft heads do not have: choose auto, int8 or a dtype.")
    if precision == "int8" and is_head and reason is not None:
        raise BadRequest(
            f"draft_precision is 'int8', but a draft head has no int8 here, since {reason}: choose auto or a dtype."
        )
    if precision in LEAN_PRECISIONS and reason is None:
        lean = _int8(file) if precision == "int8" else file
        return _lean_head(lean, target) if is_head else _lean_model(lean, target)
    dtype = choose_dtype("auto" if precision in ("int8", "int4") else precision, target.device)
    if is_head:
        return _torch_head(file, target, dtype)
    return _transformers_model(file, target, dtype, precision if precision in ("int8", "int4") else None)


def open_shipped(
    kind: DraftKind, target: LanguageModel, precision: str = "auto", stored_embedding: Tensor | None = None
) -> LanguageModel | DraftHeadModel | None:
    """The first shipped draft of that kind that was trained for the target; None if there is none.

    Raises:
        BadRequest: a shipped draft is damaged, or cannot have the precision.
    """
    folder = shipped_for(kind, target.embedding if stored_embedding is None else stored_embedding)
    return None if folder is None else open_draft(read_draft(folder), target, precision, stored_embedding)


def head_shape(file: DraftFile) -> HeadShape:
    """The sizes of a draft head's network."""
    from specviz.engine.draft_head_net import HeadShape

    facts = file.facts
    names = ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "feature_layers", "rotary_base", "epsilon")
    return HeadShape(**{name: getattr(facts, name) for name in names})


def head_network(file: DraftFile) -> DraftHeadNet:
    """A draft head's network in float32, with the weights of the file."""
    from specviz.engine.draft_head_net import DraftHeadNet

    net = DraftHeadNet(head_shape(file))
    net.load_state_dict({name: tensor for name, tensor in file.floats().items() if name != "head"})
    return net


def _lean_head(file: DraftFile, target: LanguageModel) -> DraftHeadModel:
    from specviz.engine.lean_head import LeanHead, LeanHeadWeights
    from specviz.engine.lean_weights import MATRICES, rotary_tables

    facts = file.facts
    final_norm, head = _lean_output(file, target)
    norms = ("feature_norms", "state_norm", "token_norm", "attention_norm", "mlp_norm")
    cosines, sines = rotary_tables(_frequencies(file), torch.tensor(1.0), facts.max_positions)
    weights = LeanHeadWeights(
        **{name: file.tensors[name].numpy() for name in norms},
        **{name: _linear(file, name) for name in ("fuse", "join", *MATRICES)},
        final_norm=final_norm.numpy(),
        head=head,
        embedding=target.embedding,
        cosines=cosines,
        sines=sines,
        down_digits=facts.down_digits if file.is_int8 else 1,
    )
    cut = _cut_vocabulary(file, target, torch.float32, _smoothing(file, target))
    return LeanHead(
        weights, head_shape(file), cut, name=facts.name, num_params=file.num_params, cut_facts=_cut_facts(file, target)
    )


def _torch_head(file: DraftFile, target: LanguageModel, dtype: torch.dtype) -> DraftHeadModel:
    from specviz.engine.torch_head import TorchHead

    facts, device = file.facts, target.device
    cut = _cut_vocabulary(file, target, dtype)
    head = target.embedding[cut.ids] if file.is_tied else file.floats()["head"]
    return TorchHead(
        head_network(file).to(device, dtype),
        head.to(device, dtype),
        target.embedding,
        cut,
        name=facts.name,
        max_positions=facts.max_positions,
        num_params=file.num_params,
        cut_facts=_cut_facts(file, target),
    )


def _lean_model(file: DraftFile, target: LanguageModel) -> LanguageModel:
    from specviz.engine.lean_model import LeanLayer, LeanModel, LeanWeights
    from specviz.engine.lean_weights import MATRICES, rotary_tables

    facts = file.facts

    def layer(prefix: str) -> LeanLayer:
        return LeanLayer(
            attention_norm=file.tensors[f"{prefix}attention_norm"].numpy(),
            mlp_norm=file.tensors[f"{prefix}mlp_norm"].numpy(),
            **{name: _linear(file, f"{prefix}{name}") for name in MATRICES},
        )

    final_norm, head = _lean_output(file, target)
    cosines, sines = rotary_tables(_frequencies(file), torch.tensor(1.0), facts.max_positions)
    weights = LeanWeights(
        embedding=target.embedding,
        layers=tuple(layer(f"layers.{index}.") for index in range(facts.num_layers)),
        final_norm=final_norm.numpy(),
        feature_norm=file.tensors["final_norm"].numpy(),
        head=head,
        cosines=cosines,
        sines=sines,
        epsilon=facts.epsilon,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        down_digits=facts.down_digits if file.is_int8 else 1,
    )
    dtype = torch.int8 if file.is_int8 else torch.float32
    model = LeanModel(weights, facts.name, None, dtype, file.num_params)
    return _cut_model(model, file, target, torch.float32, model.precision)


def _transformers_model(
    file: DraftFile, target: LanguageModel, dtype: torch.dtype, quantized: str | None
) -> LanguageModel:
    from specviz.engine.draft_modules import cut_llama
    from specviz.engine.hf_model import TransformersModel
    from specviz.engine.quanto_weights import quantize_weights
    from specviz.engine.static_loading import open_module

    module = cut_llama(file, target.embedding, dtype)
    try:
        if quantized is not None:
            quantize_weights(module, quantized)
            model = TransformersModel(module, file.facts.name)
        else:
            model = open_module(module, file.facts.name, None)
    except (RuntimeError, ValueError, NotImplementedError, ImportError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise BadRequest(
            f"draft_precision is {quantized or str(dtype)!r}, which {file.facts.name} cannot have here ({first_line}): "
            "choose auto or float32."
        ) from error
    return _cut_model(model, file, target, dtype, quantized or model.precision)


def _cut_model(
    model: LanguageModel, file: DraftFile, target: LanguageModel, state_dtype: torch.dtype, precision: str
) -> CutVocabularyModel:
    cut = _cut_vocabulary(file, target, state_dtype)
    shares = model.embedding.data_ptr() == target.embedding.data_ptr()  # in another dtype it has a copy
    cut_facts = _cut_facts(file, target) | ({} if shares else {"shared_weight_bytes": 0})
    return CutVocabularyModel(
        model,
        cut,
        num_params=file.num_params,
        weight_bytes=model.weight_bytes - cut_facts["shared_weight_bytes"],
        cut_facts=cut_facts,
        precision=precision,
    )


def _cut_vocabulary(
    file: DraftFile, target: LanguageModel, dtype: torch.dtype, factors: Tensor | None = None
) -> CutVocabulary:
    """What the draft can say.

    Args:
        dtype: of what its output head is given.
        factors: see `TiedRows`.
    """
    tied = TiedRows(target.embedding, dtype, target.device, factors) if file.is_tied else None
    return CutVocabulary(file.vocab_ids.to(target.device), file.facts.vocab_size, tied)


def _cut_facts(file: DraftFile, target: LanguageModel) -> dict[str, int | bool]:
    return {
        "cut_vocab_size": len(file.vocab_ids),
        "vocab_size": file.facts.vocab_size,
        "says_context": file.is_tied,
        "shared_weight_bytes": _num_bytes(target.embedding),
    }


def _lean_output(file: DraftFile, target: LanguageModel) -> tuple[Tensor, Float32Linear | Int8Linear]:
    """The final norm, and the output head: in 8 bits where both the draft and its target are."""
    from specviz.engine.int8_weights import round_nearest
    from specviz.engine.row_linear import Float32Linear, Int8Linear

    final_norm = file.tensors["final_norm"]
    if not file.is_tied:
        return final_norm, _linear(file, "head")
    rows = target.embedding[file.vocab_ids].float()
    factors = _smoothing(file, target)
    if factors is None:
        return final_norm, Float32Linear(rows)
    return final_norm / factors, Int8Linear(*round_nearest(rows * factors))


def _smoothing(file: DraftFile, target: LanguageModel) -> Tensor | None:
    """What a tied output head's input is divided by and its rows are multiplied by, where it is in 8 bits.

    The target's own head is smoothed so, whose input is of the same kind.
    """
    if not (file.is_tied and file.is_int8 and target.dtype == torch.int8):
        return None
    factors = torch.from_numpy(target.weights.feature_norm / target.weights.final_norm)
    return torch.where(factors.isfinite() & (factors != 0), factors, torch.ones_like(factors))


def _linear(file: DraftFile, name: str) -> Float32Linear | Int8Linear:
    from specviz.engine.row_linear import Float32Linear, Int8Linear

    scales = file.tensors.get(f"{name}.scales")
    return Float32Linear(file.tensors[name].float()) if scales is None else Int8Linear(file.tensors[name], scales)


def _int8(file: DraftFile) -> DraftFile:
    """The draft with all its matrices in 8 bits."""
    from specviz.engine.int8_weights import round_nearest

    tensors = dict(file.tensors)
    for name, tensor in file.tensors.items():
        if tensor.dim() == 2 and tensor.dtype != torch.int8 and name != "feature_norms":
            tensors[name], tensors[f"{name}.scales"] = round_nearest(tensor.float())
    return DraftFile(file.facts, file.vocab_ids, tensors)


def _frequencies(file: DraftFile) -> Tensor:
    half = file.facts.head_dim // 2
    return file.facts.rotary_base ** (-torch.arange(half, dtype=torch.float32) / half)


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
