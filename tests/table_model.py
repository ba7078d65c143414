"""A language model made of a table, and drafters made of a script: fakes whose every answer is known.

`TableModel` gives logits that depend on the last one or two tokens only, so that the exact
distribution of a few tokens can be enumerated. It reads those tokens from its *cache*: what the engine
forgot to cut, or fed twice, changes the answer. The cache also refuses what the protocol forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from specviz.drafters.base import DraftedToken, RunContext
from specviz.engine.language_model import ForwardOutput
from specviz.engine.layerwise import AfterLayer, LayerStates, Onward, go_on
from specviz.engine.vocabulary import Vocabulary

BYTES_PER_POSITION = 16


class DisciplineError(AssertionError):
    """The engine did something that the cache protocol forbids."""


class TableCache:
    """Holds, per layer, the ids it was fed; cut only by `truncate`, and never grown by it."""

    def __init__(self, layers: list[list[int]]) -> None:
        self.layers = layers
        self.lengths_after_truncate: list[int] = []

    @property
    def length(self) -> int:
        return len(self.layers[-1])

    @property
    def ids(self) -> list[int]:
        """What the model believes to have read; all layers agree on it between forwards."""
        if any(layer != self.layers[0] for layer in self.layers):
            raise DisciplineError(f"layers hold different texts: {self.layers}")
        return list(self.layers[0])

    @property
    def num_bytes(self) -> int:
        return BYTES_PER_POSITION * sum(len(layer) for layer in self.layers) // len(self.layers)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise DisciplineError(f"a cache of {self.length} positions was to be cut to {length}")
        for layer in self.layers:
            del layer[length:]  # of the first ones also what ran ahead
        self.lengths_after_truncate.append(length)


@dataclass(frozen=True, slots=True)
class Call:
    """One forward, as it was asked for."""

    token_ids: tuple[int, ...]
    start: int
    num_logits: int


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One pass layer by layer: from which layer on."""

    token_ids: tuple[int, ...]
    start: int
    first_layer: int


class TableModel:
    """`LayerwiseModel` with logits = table[token before last][last] (or table[last], for a flat table).

    Attributes:
        table: [vocab, vocab] or [vocab, vocab, vocab] logits; before the first token stands id 0.
        exit_table: what its first layers say, for early exit; the same shape.
        calls: every forward so far.
        passes: every forward layer by layer.
    """

    revision = None
    num_params = 0
    weight_bytes = 0
    kv_bytes_per_position = BYTES_PER_POSITION
    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(
        self,
        table: Tensor,
        *,
        exit_table: Tensor | None = None,
        num_layers: int = 2,
        max_positions: int | None = None,
        name: str = "table",
    ) -> None:
        self.table, self.exit_table = table.float(), exit_table
        self.name, self.num_layers, self.max_positions = name, num_layers, max_positions
        self.vocab_size = table.shape[-1]
        self.calls: list[Call] = []
        self.passes: list[LayerCall] = []
        self.caches: list[TableCache] = []

    def new_cache(self) -> TableCache:
        cache = TableCache([[] for _ in range(self.num_layers)])
        self.caches.append(cache)
        return cache

    def forward(
        self,
        token_ids: Sequence[int],
        cache: TableCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        token_ids = list(token_ids)
        num_logits = len(token_ids) if num_logits is None else num_logits
        if not token_ids:
            raise DisciplineError("an empty forward")
        if len(cache.layers) != self.num_layers:
            raise DisciplineError(f"a model of {self.num_layers} layers was given a cache of {len(cache.layers)}")
        start = len(cache.ids)  # raises if a view ran ahead and was not cut back
        if self.max_positions is not None and start + len(token_ids) > self.max_positions:
            raise DisciplineError(f"fed up to position {start + len(token_ids)} of {self.max_positions}")
        if not all(0 <= token_id < self.vocab_size for token_id in token_ids):
            raise DisciplineError(f"fed ids {token_ids} to a vocabulary of {self.vocab_size}")
        self.calls.append(Call(tuple(token_ids), start, num_logits))
        for layer in cache.layers:
            layer.extend(token_ids)
        ids = cache.ids
        first = len(ids) - num_logits
        rows = [self.logits_after(ids[: end + 1]) for end in range(first, len(ids))]
        logits = torch.stack(rows) if rows else torch.empty(0, self.vocab_size)
        # A feature that can be recognised: the fed id, and the layer it is said to come from.
        features = {
            layer: torch.tensor([[float(token_id), float(layer)] for token_id in token_ids]) for layer in feature_layers
        }
        return ForwardOutput(logits, features)

    def synchronize(self) -> None:
        pass

    @property
    def embedding(self) -> Tensor:
        return torch.zeros(self.vocab_size, 1)

    def forward_by_layer(
        self,
        token_ids: Sequence[int],
        cache: TableCache,
        after_layer: AfterLayer = go_on,
        *,
        look_after: Collection[int] = (),
        paused: LayerStates | None = None,
    ) -> LayerStates:
        """States are [rows, 3]: the token before, the token, and the layers that were run."""
        first = 0 if paused is None else paused.layer
        token_ids, start = list(token_ids), len(cache.layers[first])
        for layer in cache.layers[:first]:
            if layer[start:] != token_ids:
                raise DisciplineError(f"a pass over {token_ids} was to go on where one over {layer[start:]} had paused")
        self.passes.append(LayerCall(tuple(token_ids), start, first))
        before = [cache.layers[first][-1] if start else 0, *token_ids[:-1]]
        states = torch.tensor([[float(a), float(b), float(first)] for a, b in zip(before, token_ids, strict=True)])
        if paused is not None and not torch.equal(paused.states, states):
            raise DisciplineError(f"a pass went on from the states {paused.states.tolist()}, not {states.tolist()}")
        onward = Onward.NEXT
        for index in range(first, self.num_layers):
            if onward is not Onward.PAUSE:
                cache.layers[index].extend(token_ids)
            if onward is Onward.NEXT:
                states[:, 2] = index + 1
                onward = after_layer(index + 1, states) if index + 1 in look_after else onward
        return LayerStates(int(states[0, 2]), states)

    def read_out(self, states: Tensor) -> Tensor:
        tables = [self.table if layer == self.num_layers else self.exit_table for layer in states[:, 2].int()]
        ids = states[:, :2].long().tolist()
        rows = [
            table[last] if table.dim() == 2 else table[before, last]
            for table, (before, last) in zip(tables, ids, strict=True)
        ]
        return torch.stack(rows)

    def cut_read_out(self, vocab_ids: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda states: self.read_out(states)[:, vocab_ids]

    def logits_after(self, ids: Sequence[int]) -> Tensor:
        if self.table.dim() == 2:
            return self.table[ids[-1]]
        return self.table[ids[-2] if len(ids) > 1 else 0, ids[-1]]

    def greedy_ids(self, prompt_ids: Sequence[int], num_new: int, eos_token_ids: Sequence[int] = ()) -> list[int]:
        """Plain greedy decoding, the five-line oracle."""
        ids = list(prompt_ids)
        while len(ids) < len(prompt_ids) + num_new and not (len(ids) > len(prompt_ids) and ids[-1] in eos_token_ids):
            ids.append(int(self.logits_after(ids).argmax()))
        return ids[len(prompt_ids) :]


def random_table(vocab_size: int, *, order: int = 2, seed: int = 0, scale: float = 1.5) -> Tensor:
    """Logits with a clear winner in each row and no ties."""
    shape = (vocab_size,) * (order + 1)
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(slots=True)
class ScriptedDrafter:
    """Proposes what `script(committed_ids, k, round)` returns: ids, or (id, probs) pairs.

    Its session feeds a cache of its own like a draft model would (`keeps_cache`), and keeps a record of
    what it was told: `proposals` (committed length, k, round) and `commits` (ids, features).
    """

    script: Callable[[list[int], int, int], Sequence[int | tuple[int, Tensor]]]
    keeps_cache: bool = True
    feature_layers: tuple[int, ...] = ()
    stop_reason: str | None = "no_match"
    kind: str = "draft_model"
    name: str = "script"
    sessions: list[ScriptedSession] = field(default_factory=list)

    def open(self, run: RunContext) -> ScriptedSession:
        self.sessions.append(ScriptedSession(self, run))
        return self.sessions[-1]

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name}


class ScriptedSession:
    """See `ScriptedDrafter`."""

    shared_layers = 0

    def __init__(self, drafter: ScriptedDrafter, run: RunContext) -> None:
        self._drafter, self.run = drafter, run
        self.cache = TableCache([[]]) if drafter.keeps_cache else None
        self.prefills: list[tuple[list[int], dict[int, Tensor]]] = []
        self.proposals: list[tuple[int, int, int]] = []
        self.commits: list[tuple[list[int], dict[int, Tensor]]] = []

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self.prefills.append((list(prompt_ids), features))
        self._read(prompt_ids[:-1])

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, str | None]:
        self.proposals.append((len(committed_ids), num_draft_tokens, round_index))
        self._read(committed_ids)
        proposed = list(self._drafter.script(list(committed_ids), num_draft_tokens, round_index))[:num_draft_tokens]
        for entry in proposed:
            token_id, probs = entry if isinstance(entry, tuple) else (entry, None)
            yield DraftedToken(token_id, probs, probs)
            if self.cache is not None:
                self.cache.layers[0].append(token_id)
        return None if len(proposed) == num_draft_tokens else self._drafter.stop_reason

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self.commits.append((list(committed_ids), features))
        if self.cache is not None:
            self.cache.truncate(min(self.cache.length, len(committed_ids) - 1))
            if self.cache.ids != list(committed_ids)[: self.cache.length]:
                raise DisciplineError(f"the draft has read {self.cache.ids}, committed is {list(committed_ids)}")

    def _read(self, ids: Sequence[int]) -> None:
        if self.cache is not None:
            self.cache.layers[0].extend(ids[self.cache.length :])


def letters_vocabulary(pieces: Sequence[str], special: Sequence[str] = ("</s>",)) -> Vocabulary:
    """A tokenizer whose text is its pieces, joined: piece i has id i."""
    tokenizer = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token=pieces[0]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([piece for piece in special if piece in pieces])
    return Vocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False))
