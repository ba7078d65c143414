"""`TransformersModel`: a causal language model of transformers behind the `LanguageModel` protocol.

Works for every decoder whose cache is made of plain or sliding attention layers (Llama-like, Qwen,
Gemma, Mistral, GPT-2, GPT-NeoX, Phi, ...). Models that keep a recurrent state cannot take tokens
back, and are refused by name.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from specviz.engine.context_length import context_length
from specviz.engine.kv_cache import TransformersKVCache
from specviz.engine.language_model import ForwardOutput
from specviz.errors import BadRequest

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TransformersModel:
    """See `specviz.engine.language_model.LanguageModel`; features of the last layer come normalised.

    Raises:
        BadRequest: the model is not a decoder whose cache can be cut; says which part is not.
    """

    def __init__(self, model: PreTrainedModel, name: str, revision: str | None = None) -> None:
        self._module = model.eval()
        self.name, self.revision = name, revision
        config = model.config.get_text_config(decoder=True)
        refuse_uncuttable(model, name)
        self._num_cache_layers = len(DynamicCache(config=config).layers)
        self.num_layers: int = config.num_hidden_layers
        self.max_positions = context_length(config)
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        self.num_params = sum(parameter.numel() for parameter in model.parameters())
        self.weight_bytes = sum(_num_bytes(tensor) for tensor in _tensors(model))
        self.dtype = model.dtype
        self.precision = str(model.dtype).removeprefix("torch.")  # of the weights; "int8" or "int4" when quantized
        self.device = model.get_input_embeddings().weight.device
        self.kv_bytes_per_position = self._measure_cache()

    @property
    def embedding(self) -> torch.Tensor:
        """[vocab, hidden], of the input."""
        return self._module.get_input_embeddings().weight.detach()

    def new_cache(self) -> TransformersKVCache:
        return TransformersKVCache(self._num_cache_layers)

    @torch.no_grad()  # not inference_mode, under which int4 weights of optimum-quanto fail
    def forward(
        self,
        token_ids: Sequence[int],
        cache: TransformersKVCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        num_logits = len(token_ids) if num_logits is None else num_logits
        capture = {"output_hidden_states": list(feature_layers)} if feature_layers else {}
        output = self._module(
            input_ids=torch.tensor([list(token_ids)], device=self.device),
            cache=cache.native,
            use_cache=True,
            logits_to_keep=max(num_logits, 1),
            **capture,
        )
        logits = output.logits[0, output.logits.shape[1] - num_logits :]
        return ForwardOutput(logits, {layer: output.hidden_states[layer][0] for layer in feature_layers})

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def first_layers(self, num_layers: int) -> TransformersModel:
        """A model of the first layers with the final norm and the head: the same weights, a new shell.

        It runs in `TransformersKVCache.first_layers` of a cache of the whole model. The module tree is
        copied down to the list of layers, and nothing of the whole model is written to.

        Raises:
            BadRequest: no such number of layers, or an unknown module layout.
        """
        if not 1 <= num_layers <= self.num_layers:
            raise BadRequest(
                f"exit_layer is {num_layers}: {self.name} has {self.num_layers} layers, choose 1 to {self.num_layers}."
            )
        view = copy.copy(self)
        view._module = _module_with_layers(self._module, num_layers, self.name)
        view._num_cache_layers = min(num_layers, self._num_cache_layers)
        view.num_layers = num_layers
        view.name = f"{self.name}, first {num_layers} of {self.num_layers} layers"
        view.kv_bytes_per_position = self.kv_bytes_per_position * num_layers // self.num_layers
        return view

    def _measure_cache(self) -> int:
        """Bytes of one position over all layers, from a real pass; shows too that the cache is cut."""
        cache = self.new_cache()
        self.forward([0, 0], cache, num_logits=1)
        cache.truncate(1)
        if cache.length != 1:
            raise BadRequest(
                f"{self.name} does not keep its keys and values where they can be cut; choose another model."
            )
        return cache.num_bytes


def refuse_uncuttable(model: PreTrainedModel, name: str) -> None:
    """Raise BadRequest, with the reason, for models whose cache cannot be rolled back."""
    config, family = model.config, type(model).__name__
    if config.is_encoder_decoder:
        raise BadRequest(f"{name} ({family}) is an encoder-decoder: choose a decoder-only causal language model.")
    if model.get_output_embeddings() is None:
        raise BadRequest(f"{name} ({family}) has no language-modelling head: choose a causal language model.")
    layers = [] if model._is_stateful else DynamicCache(config=config.get_text_config(decoder=True)).layers
    unknown = sorted(
        {type(layer).__name__ for layer in layers} - {DynamicLayer.__name__, DynamicSlidingWindowLayer.__name__}
    )
    if model._is_stateful or unknown:
        why = f"its cache has layers of the kind {', '.join(unknown)}" if unknown else "it keeps a recurrent state"
        raise BadRequest(
            f"{name} ({family}) cannot take back rejected tokens ({why}): choose a model with attention layers only."
        )


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _num_bytes(tensor: torch.Tensor) -> int:
    """Bytes that a weight takes; optimum-quanto's hold packed numbers and their scales inside."""
    parts = [getattr(tensor, name, None) for name in ("_data", "_scale", "_shift")]
    if parts[0] is None:
        return tensor.numel() * tensor.element_size()
    return sum(_num_bytes(part) for part in parts if isinstance(part, torch.Tensor))


def _module_with_layers(model: PreTrainedModel, num_layers: int, name: str) -> PreTrainedModel:
    path = _path_to_layers(model)
    if path is None:
        raise BadRequest(
            f"{name} ({type(model).__name__}) has no list of layers that can be shortened; use another drafter."
        )
    shell = shorter = _shallow(model)
    for step in path[:-1]:
        shorter._modules[step] = _shallow(shorter._modules[step])
        shorter = shorter._modules[step]
    shorter._modules[path[-1]] = nn.ModuleList(list(shorter._modules[path[-1]])[:num_layers])
    config = copy.deepcopy(model.config)
    config.get_text_config(decoder=True).num_hidden_layers = num_layers
    for module in (shell, shorter):
        module.config = config if module is shell else config.get_text_config(decoder=True)
    return shell


def _path_to_layers(model: nn.Module) -> list[str] | None:
    """Names of the modules down to the decoder's list of layers: ["model", "layers"] for a Llama."""
    num_layers = model.config.get_text_config(decoder=True).num_hidden_layers
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == num_layers:
            return path.split(".")
    return None


def _shallow(module: nn.Module) -> nn.Module:
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    return shell
