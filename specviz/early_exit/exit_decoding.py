"""Early-exit decoding: one token a round, and each through as few layers as its confidence asks for.

Schuster et al. 2022 (CALM, arXiv 2207.07061). Nothing verifies what left early: the text may differ from the
target's own. The prompt is read through all layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from specviz.early_exit.exit_plan import ExitPlan
from specviz.early_exit.token_look import TokenLook
from specviz.engine.clock import Laps
from specviz.engine.cut_vocabulary import CutVocabulary
from specviz.engine.layerwise import LayerStates
from specviz.engine.speculative import DecodingRun
from specviz.events import Event


class ExitDecodingRun(DecodingRun):
    """The private state of one timed run: exits are real."""

    def __init__(self, plan: ExitPlan, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.plan = plan
        self.metrics.num_layers = plan.num_layers
        self._cut = CutVocabulary(plan.heads.vocab_ids, self.target.vocab_size)

    def round(self, live_drafts: bool) -> Iterator[Event]:
        """One token."""
        laps = Laps(self.clock, "draft", "verify", "other")
        index, length_before = self.metrics.counts["rounds"] + 1, self.cache.length
        assert length_before == len(self.committed) - 1, "the newest token is pending, and only that one"

        threshold = self.plan.threshold_at(self._num_new)
        look = TokenLook(self.plan, threshold, self.target.synchronize)
        ended = self.run_layers(look)
        adjusted = self._adjusted(ended, look)
        self.target.synchronize()
        laps.end("verify")

        said, _ = self._settle(index, [], adjusted)
        event: Event = {
            "type": "round",
            "round": index,
            "t": 0.0,
            **said,
            "draft_stop": None,
            "cache": {"target": self._cache_use(self.cache, length_before, self.cache.length), "draft": None},
            "exit": {
                "layer": ended.layer,
                "confidences": look.confidences,
                "threshold": threshold,
                "head_seconds": look.head_seconds,
            },
            **self.readings(ended),
        }
        laps.end("other")
        event["t"], event["seconds"] = self.clock.elapsed, _heads_apart(laps.seconds, look.head_seconds)
        self.metrics.add(event)
        yield event

    def run_layers(self, look: TokenLook) -> LayerStates:
        """The pending token, through as many layers as it takes."""
        return self.target.forward_by_layer(self.committed[-1:], self.cache, look.after_layer, look_after=look.layers)

    def readings(self, ended: LayerStates) -> dict[str, object]:
        """What else there is to tell of the round."""
        return {}

    def _adjusted(self, ended: LayerStates, look: TokenLook) -> Tensor:
        """[1, vocab]: what the token after the pending one is chosen from.

        One that left early is chosen from the cut vocabulary that its confidence was computed over: the whole head
        costs as much as three layers of the embedded target, and the tokens that it adds are not those that a state is
        sure of. Where the run forbids all tokens of the cut, the whole head is asked.
        """
        if ended.layer < self.plan.num_layers:
            logits = self._cut.widen(look.cut_logits_of(ended))
            if (adjusted := self.pipeline.adjust_draft(logits, self.committed)) is not None:
                return adjusted
        return self.pipeline.adjust(self.plan.heads.full_logits(ended.layer, ended.states), self.committed)


def _heads_apart(seconds: dict[str, float], head_seconds: float) -> dict[str, float]:
    """A look at the heads interrupts the layers, and belongs to `other`."""
    return {**seconds, "verify": seconds["verify"] - head_seconds, "other": seconds["other"] + head_seconds}
