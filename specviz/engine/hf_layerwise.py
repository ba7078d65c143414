"""Any decoder of transformers, layer by layer, in its own forward. See `layerwise.py`.

The module tree is copied down to its list of layers (as a shell: weights are shared, nothing is written to), and in the
copy each layer is wrapped by a step, which asks before it runs. So masks, positions and what else a family does
around its layers are its own code. A skipped layer is run until it hands its keys and values to the cache, and
no further.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from specviz.engine.kv_cache import TransformersKVCache
from specviz.engine.layerwise import AfterLayer, LayerStates, Onward, go_on

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BeforeLayer = Callable[["LayerCall"], Tensor]


class LayerCall:
    """A layer about to be run by its model, with what the model gives it.

    Attributes:
        index: of the layer, from 0.
        hidden: [1, rows, hidden], what it was given.
    """

    def __init__(self, layer: nn.Module, index: int, hidden: Tensor, args: tuple, kwargs: dict[str, Any]) -> None:
        self.index, self.hidden = index, hidden
        self._layer, self._args, self._kwargs = layer, args, kwargs

    def run(self, hidden: Tensor) -> Tensor:
        """The layer's output, [1, rows, hidden]."""
        output = self._layer(hidden, *self._args, **self._kwargs)
        return output[0] if isinstance(output, tuple) else output

    def run_as_it_is(self) -> Tensor | tuple[Tensor, ...]:
        """What the model itself would get of the layer."""
        return self._layer(self.hidden, *self._args, **self._kwargs)

    def keep_only(self, hidden: Tensor, layers: list[DynamicLayer]) -> None:
        """The layer's keys and values of `hidden`, into the cache; the layer is not run further."""
        keeper = _Keeper()
        keeper.layers = layers

        def swapped(value: object) -> object:
            return keeper if isinstance(value, DynamicCache) else value

        try:
            self._layer(hidden, *map(swapped, self._args), **{key: swapped(v) for key, v in self._kwargs.items()})
        except _KeptError:
            return
        raise AssertionError("a layer that does not ask the cache")


class _Pass:
    """One pass, as its layers come.

    Attributes:
        first: the index of the first layer to be run.
        ended: where it was left, interrupted or over; None until then.
    """

    def __init__(
        self,
        cache: TransformersKVCache,
        after_layer: AfterLayer,
        look_after: Collection[int],
        paused: LayerStates | None,
        num_layers: int,
    ) -> None:
        self._layers, self._num_layers = cache.native.layers, num_layers
        self._after_layer, self._look_after, self._paused = after_layer, look_after, paused
        self.first = paused.layer if paused else 0
        self.ended: LayerStates | None = None
        self._has_left = False

    def before_layer(self, call: LayerCall) -> Tensor:
        if call.index < self.first:
            return call.hidden
        if self.ended is None:
            is_taken_up = self._paused is not None and call.index == self.first
            hidden = call.run(self._paused.states[None].to(call.hidden) if is_taken_up else call.hidden)
            self._look(call.index + 1, hidden[0].float())
            return hidden
        if self._has_left:
            call.keep_only(call.hidden, self._layers)
        return call.hidden

    def _look(self, layer: int, states: Tensor) -> None:
        onward = self._after_layer(layer, states) if layer in self._look_after else Onward.NEXT
        if onward is not Onward.NEXT or layer == self._num_layers:
            self.ended, self._has_left = LayerStates(layer, states), onward is Onward.LEAVE


class _KeptError(Exception):
    """The keys and values are in the cache."""


class _Keeper(DynamicCache):
    """A cache that breaks off the layer which has just given it its keys and values."""

    def update(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        super().update(*args, **kwargs)
        raise _KeptError


class _Step(nn.Module):
    """Stands in for a layer in a shell. What the model asks of the layer besides, the layer answers."""

    def __init__(self, layer: nn.Module, index: int, before_layer: BeforeLayer, gives_tuple: bool) -> None:
        super().__init__()
        self.layer, self._index, self._before_layer, self._gives_tuple = layer, index, before_layer, gives_tuple

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor]:
        output = self._before_layer(LayerCall(self.layer, self._index, hidden_states, args, kwargs))
        return (output,) if self._gives_tuple else output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)


class LayerSteps:
    """A decoder whose layers can be stepped through.

    Args:
        path: names of the modules from `model` down to its list of layers.
    """

    def __init__(self, model: PreTrainedModel, path: Sequence[str]) -> None:
        self.model, self._path = model, tuple(path)
        self._num_layers = len(self._decoder_of(model)._modules[path[-1]])
        self._gives_tuple = False
        self._gives_tuple = self._look_whether_tuples()

    @torch.no_grad()
    def forward_by_layer(
        self,
        token_ids: Sequence[int],
        cache: TransformersKVCache,
        after_layer: AfterLayer,
        look_after: Collection[int],
        paused: LayerStates | None,
    ) -> LayerStates:
        """`LayerwiseModel.forward_by_layer`."""
        run = _Pass(cache, after_layer, look_after, paused, self._num_layers)
        self._run(self._decoder_of, run.before_layer, token_ids, _from_layer(cache, run.first))
        return run.ended

    @torch.no_grad()
    def read_out(self, states: Tensor) -> Tensor:
        """`LayerwiseModel.read_out`: the model's own code from its last layer on."""
        return self._run(lambda shell: shell, self._put_in(states), [0] * len(states)).logits[0]

    @torch.no_grad()
    def normalised(self, states: Tensor) -> Tensor:
        """[rows, hidden] states after the last layer -> [rows, hidden], the input of the output head."""
        return self._run(self._decoder_of, self._put_in(states), [0] * len(states)).last_hidden_state[0]

    @property
    def beside_the_layers(self) -> list[nn.Module]:
        """The decoder's other modules, in their order."""
        return [module for name, module in self._decoder_of(self.model).named_children() if name != self._path[-1]]

    def _put_in(self, states: Tensor) -> BeforeLayer:
        """Runs no layer, and lets the last one give `states`."""

        def before_layer(call: LayerCall) -> Tensor:
            return states[None].to(call.hidden) if call.index == self._num_layers - 1 else call.hidden

        return before_layer

    def _look_whether_tuples(self) -> bool:
        found: list[bool] = []

        def before_layer(call: LayerCall) -> Tensor:
            output = call.run_as_it_is()
            found.append(isinstance(output, tuple))
            return output

        self._run(self._decoder_of, before_layer, [0])
        return bool(found) and found[0]

    def _run(
        self,
        part: Callable[[nn.Module], nn.Module],
        before_layer: BeforeLayer,
        token_ids: Sequence[int],
        cache: DynamicCache | None = None,
    ) -> Any:
        shell = self._shell(before_layer)
        ids = torch.tensor([list(token_ids)], device=self.model.get_input_embeddings().weight.device)
        return part(shell)(input_ids=ids, cache=cache, use_cache=cache is not None)

    def _decoder_of(self, model: nn.Module) -> nn.Module:
        for step in self._path[:-1]:
            model = model._modules[step]
        return model

    def _shell(self, before_layer: BeforeLayer) -> nn.Module:
        shell = decoder = shallow_copy(self.model)
        for step in self._path[:-1]:
            decoder._modules[step] = shallow_copy(decoder._modules[step])
            decoder = decoder._modules[step]
        layers = decoder._modules[self._path[-1]]
        steps = [_Step(layer, index, before_layer, self._gives_tuple) for index, layer in enumerate(layers)]
        decoder._modules[self._path[-1]] = nn.ModuleList(steps)
        return shell


def open_steps(model: PreTrainedModel, num_cache_layers: int) -> LayerSteps | str:
    """The model's steps, tried out; or why it cannot be run layer by layer, in a few words."""
    path = path_to_layers(model)
    if path is None:
        return "it has no list of layers"
    if num_cache_layers != model.config.get_text_config(decoder=True).num_hidden_layers:
        return "some of its layers have no keys and values of their own"
    try:
        steps = LayerSteps(model, path)
        whole, by_layer = (TransformersKVCache(num_cache_layers) for _ in range(2))
        with torch.no_grad():
            ids = torch.zeros(1, 2, dtype=torch.long, device=model.get_input_embeddings().weight.device)
            expected = model(input_ids=ids, cache=whole.native, use_cache=True).logits[0].float()
        found = steps.read_out(steps.forward_by_layer([0, 0], by_layer, go_on, (), None).states).float()
        is_same = torch.allclose(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))
        steps.forward_by_layer([0], by_layer, lambda layer, states: Onward.LEAVE, (1,), None)
        keeps = all(layer.get_seq_length() == 3 for layer in by_layer.native.layers)
    except Exception as error:  # whatever a family's own code does with a layer that stands in for another
        return f"its layers do not follow each other plainly ({type(error).__name__})"
    return steps if is_same and keeps else "its layers do not follow each other plainly"


def _from_layer(cache: TransformersKVCache, first: int) -> DynamicCache:
    """The cache as a pass sees it that begins at layer `first`: its length is that of this layer."""
    view = DynamicCache()
    layers = cache.native.layers
    view.layers = [layers[first]] * first + layers[first:]
    return view


def path_to_layers(model: PreTrainedModel) -> list[str] | None:
    """Names of the modules down to the decoder's list of layers: ["model", "layers"] for a Llama."""
    num_layers = model.config.get_text_config(decoder=True).num_hidden_layers
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == num_layers:
            return path.split(".")
    return None


def shallow_copy(module: nn.Module) -> nn.Module:
    """The same weights in a new shell, whose submodules can be replaced."""
    shell = copy.copy(module)
    shell._modules = dict(module._modules)
    shell.__dict__.pop("forward", None)  # accelerate's, on models over several devices, is bound to the original
    return shell
