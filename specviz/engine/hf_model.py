"""`TransformersModel`: a causal language model of transformers behind the `LanguageModel` protocol.

Works for every decoder whose cache is made of plain or sliding attention layers (Llama-like, Qwen,
Gemma, Mistral, GPT-2, GPT-NeoX, Phi, ...). Models that keep a recurrent state cannot take tokens
back, and are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from specviz.engine.context_length import context_length
from specviz.engine.hf_layerwise import LayerSteps, open_steps
from specviz.engine.hf_read_out import cut_read_out
from specviz.engine.kv_cache import TransformersKVCache
from specviz.engine.language_model import ForwardOutput, ids_on
from specviz.engine.layerwise import AfterLayer, LayerStates, go_on
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
    def embedding(self) -> Tensor:
        """[vocab, hidden], of the input."""
        return self._module.get_input_embeddings().weight.detach()

    def new_cache(self) -> TransformersKVCache:
        return TransformersKVCache(self._num_cache_layers)

    @torch.no_grad()  # not inference_mode, under which int4 weights of optimum-quanto fail
    def forward(
        self,
        token_ids: Sequence[int] | Tensor,
        cache: TransformersKVCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        num_logits = len(token_ids) if num_logits is None else num_logits
        capture = {"output_hidden_states": list(feature_layers)} if feature_layers else {}
        output = self._module(
            input_ids=ids_on(token_ids, self.device)[None],
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

    @property
    def why_not_layerwise(self) -> str | None:
        """Why early exit cannot run it, in a few words; None where it can. Tried out when it is first asked for."""
        return self._steps if isinstance(self._steps, str) else None

    def forward_by_layer(
        self,
        token_ids: Sequence[int],
        cache: TransformersKVCache,
        after_layer: AfterLayer = go_on,
        *,
        look_after: Collection[int] = (),
        paused: LayerStates | None = None,
    ) -> LayerStates:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        return self._steps.forward_by_layer(token_ids, cache, after_layer, look_after, paused)

    def read_out(self, states: Tensor) -> Tensor:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        return self._steps.read_out(states)

    def cut_read_out(self, vocab_ids: Tensor) -> Callable[[Tensor], Tensor]:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        return cut_read_out(self._steps, vocab_ids)

    @cached_property
    def _steps(self) -> LayerSteps | str:
        return open_steps(self._module, self._num_cache_layers)

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


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _num_bytes(tensor: Tensor) -> int:
    """Bytes that a weight takes; optimum-quanto's hold packed numbers and their scales inside."""
    parts = [getattr(tensor, name, None) for name in ("_data", "_scale", "_shift")]
    if parts[0] is None:
        return tensor.numel() * tensor.element_size()
    return sum(_num_bytes(part) for part in parts if isinstance(part, Tensor))
