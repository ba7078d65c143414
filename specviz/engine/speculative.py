"""The speculative loop: draft, verify, commit, roll back. Plain decoding is the same loop without a drafter.

Leviathan et al. 2023 (arXiv 2211.17192), Algorithm 1, kept between rounds in this state: the newest
committed token is pending, that is, every cache holds at most committed length - 1 positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, Drafter, DraftSession, DraftStop, RunContext, draft_model_of
from specviz.drafters.chain import DraftChain, to_host
from specviz.engine.clock import Laps, RunClock
from specviz.engine.describe import RoundDescriber, TokenChances
from specviz.engine.dice import Dice
from specviz.engine.kv_memory import KVMemory
from specviz.engine.language_model import ForwardOutput, KVCache, LanguageModel
from specviz.engine.logits import LogitsPipeline, argmax_rows
from specviz.engine.prefill import feed_in_chunks
from specviz.engine.stopping import GeneratedText, StopRules
from specviz.engine.tokens import TAIL_TOKENS, TokenTexts
from specviz.engine.verify import Verdict, verify_greedy, verify_rejection
from specviz.engine.vocabulary import Vocabulary
from specviz.errors import BadRequest
from specviz.events import CacheUse, Event, FinishReason, Token
from specviz.metrics import MetricsFold


def decode(
    target: LanguageModel,
    drafter: Drafter | None,
    prompt_ids: Sequence[int],
    vocabulary: Vocabulary,
    settings: RunSettings,
    *,
    eos_token_ids: frozenset[int] = frozenset(),
    is_cancelled: Callable[[], bool] = lambda: False,
    live_drafts: bool = False,
    memory: KVMemory | None = None,
    clock: RunClock | None = None,
) -> Iterator[Event]:
    """Generate after `prompt_ids`: yields `prefill`, the `round`s, and `run_finished`.

    Args:
        drafter: what proposes; None decodes plainly, one token a round.
        live_drafts: also yield a `draft_token` event for each drafted token, as it is drawn.
        memory: caches of earlier turns, used again as far as they agree, and kept when the run has finished.

    Raises:
        BadRequest: the prompt does not fit, or the settings do not fit the vocabulary.
        RunFailed: a model's logits are not numbers.
    """
    memory = memory or KVMemory()
    run = DecodingRun(
        target,
        drafter,
        list(prompt_ids),
        vocabulary,
        settings,
        eos_token_ids,
        is_cancelled,
        memory,
        clock or RunClock(),
    )
    yield from events_of(run, memory, live_drafts=live_drafts)


def events_of(run: DecodingRun, memory: KVMemory, *, live_drafts: bool = False) -> Iterator[Event]:
    """`prefill`, the `round`s, and `run_finished`."""
    yield from run.clock.hand_over(run.prefill())
    while (reason := run.finish_reason or run.interruption()) is None:
        for event in run.round(live_drafts):
            yield from run.clock.hand_over(event)
    run.keep_caches(memory)
    yield from run.clock.hand_over(run.finished(reason))


def check_request(
    target: LanguageModel,
    prompt_ids: Sequence[int],
    vocabulary: Vocabulary,
    settings: RunSettings,
    eos_token_ids: frozenset[int],
) -> LogitsPipeline:
    """The run's logits pipeline, if the run can be made at all.

    Raises:
        BadRequest: the prompt does not fit the target, or the settings do not fit the vocabulary.
    """
    vocab_size = min(target.vocab_size, vocabulary.size)
    if not prompt_ids:
        raise BadRequest("The prompt has no tokens: type something.")
    if target.max_positions is not None and len(prompt_ids) >= target.max_positions:
        raise BadRequest(
            f"The prompt has {len(prompt_ids)} tokens, and {target.name} holds {target.max_positions} with the answer: "
            "shorten it."
        )
    if (largest := max(prompt_ids)) >= vocab_size:
        raise BadRequest(
            f"The prompt has token id {largest}, but {target.name} knows ids below {vocab_size}: "
            "use the model's own tokenizer."
        )
    return LogitsPipeline(settings, vocab_size, len(prompt_ids), eos_token_ids)


class DecodingRun:
    """The private state of one run; one that finds its tokens in another way has a `round` of its own."""

    def __init__(
        self,
        target: LanguageModel,
        drafter: Drafter | None,
        prompt_ids: list[int],
        vocabulary: Vocabulary,
        settings: RunSettings,
        eos_token_ids: frozenset[int],
        is_cancelled: Callable[[], bool],
        memory: KVMemory,
        clock: RunClock,
    ) -> None:
        self.clock, self.settings, self.target, self.vocabulary = clock, settings, target, vocabulary
        self.committed = prompt_ids
        self.num_prompt = len(prompt_ids)
        self.rules = StopRules(eos_token_ids, settings.max_new_tokens, target.max_positions)
        self.finish_reason: FinishReason | None = None
        self.metrics = MetricsFold()
        self.prefill_seconds = 0.0
        self._is_cancelled = is_cancelled

        self.pipeline = check_request(target, prompt_ids, vocabulary, settings, eos_token_ids)
        self.dice = Dice(settings.seed)
        self.texts = TokenTexts(vocabulary, prompt_ids[-TAIL_TOKENS:])
        self.generated = GeneratedText(settings.stop)
        self.describer = RoundDescriber(vocabulary, settings.trace_detail)

        self.cache = memory.take(target, prompt_ids)
        self.feature_layers = drafter.feature_layers if drafter else ()
        self.session: DraftSession | None = None
        self._draft_model = draft_model_of(drafter) if drafter else None
        if drafter:
            self._context = RunContext(
                target_cache=self.cache,
                cache_for=lambda model: memory.take(model, prompt_ids),
                pipeline=self.pipeline,
                dice=self.dice,
                eos_token_ids=eos_token_ids,
                confidence=settings.draft_threshold if settings.is_adaptive else None,
                wants_model_probs=settings.trace_detail != "none",
                should_stop=self._should_stop,
            )
            self.session = drafter.open(self._context)
            self._feed_again_what_lacks_features()

    # -- The algorithm -------------------------------------------------------------------------

    def prefill(self) -> Event:
        """Feed every prompt token but the last, to the target and to the drafter; nothing is committed."""
        laps = Laps(self.clock, "target", "draft")
        lacking = self.committed[self.cache.length : -1]
        features = feed_in_chunks(self.target, lacking, self.cache, self._should_stop, self.feature_layers)
        self.target.synchronize()
        laps.end("target")
        if self.session:
            self.session.prefill(self.committed, features)
        self._synchronize_draft(laps)
        self.prefill_seconds = self.clock.busy
        return {
            "type": "prefill",
            "t": self.clock.elapsed,
            "seconds": laps.seconds,
            "cache": {"target": self.cache.length, "draft": self._draft_cache_length()},
            "committed": [],
        }

    def round(self, live_drafts: bool) -> Iterator[Event]:
        """One round: exactly one target forward. Yields its event (after `draft_token`s, if live)."""
        laps = Laps(self.clock, "draft", "verify", "other")
        index = self.metrics.counts["rounds"] + 1
        length_before, draft_length_before = self.cache.length, self._draft_cache_length()
        assert length_before == len(self.committed) - 1, "the newest token is pending, and only that one"

        # Draft: on the device as a whole, where that can be, else token by token.
        draft: list[DraftedToken] = []
        chain = None if live_drafts else self._chain(index)
        draft_stop = None
        if chain is None:
            draft_stop = yield from self._draft(draft, index, live_drafts, laps)
        self._synchronize_draft(laps)
        if (draft or chain) and self._should_stop():
            self._roll_back(0, {})
            return
        assert self.cache.length == length_before, "a drafter leaves the target's cache as long as it found it"

        # Verify: the pending token and the draft, in one pass.
        pending = self.committed[-1]
        output = self._target_pass(chain.after(pending) if chain else [pending, *(token.token_id for token in draft)])
        self.target.synchronize()
        laps.end("verify")
        logits = output.logits
        if chain:
            rows = to_host(chain.with_logits(logits))
            logits, draft, stopped_by = chain.from_host(rows, self._context)
            draft_stop = self._why_short(len(draft), stopped_by)
        adjusted = self.pipeline.adjust(logits, self.committed, [token.token_id for token in draft])
        said, kept = self._settle(index, draft, adjusted)

        # Roll back.
        peak, draft_peak = self.cache.length, self._draft_cache_length()
        self._roll_back(len(kept), output.features)

        event: Event = {
            "type": "round",
            "round": index,
            "t": 0.0,
            **said,
            "draft_stop": draft_stop,
            "cache": {
                "target": self._cache_use(self.cache, length_before, peak),
                "draft": self._draft_cache_use(draft_length_before, draft_peak),
            },
        }
        if self.session and self.session.shared_layers:
            event["cache"]["shared_layers"] = self.session.shared_layers
        laps.end("other")
        event["t"], event["seconds"] = self.clock.elapsed, laps.seconds
        self.metrics.add(event)
        yield event

    def _draft(self, draft: list[DraftedToken], index: int, live_drafts: bool, laps: Laps) -> Iterator[Event]:
        """Fill `draft`; returns why it is shorter than k (or None)."""
        if self.session is None:
            return None
        longest, _ = self._longest_draft()
        proposals = self.session.propose(self.committed, longest, index)
        while True:
            try:
                token = next(proposals)
            except StopIteration as end:
                stopped_by = end.value
                break
            draft.append(token)
            if self._should_stop():
                proposals.close()
                stopped_by = None
                break
            if live_drafts:
                laps.end("draft")
                yield self.describer.drawn(self.texts, draft, index, self.clock.elapsed)
                laps.end("other")
        assert len(draft) <= longest, "a drafter never proposes more than it was asked for"
        return self._why_short(len(draft), stopped_by)

    def _chain(self, index: int) -> DraftChain | None:
        """A draft that is still on the device; None where the session makes none, or no token may be drafted."""
        make = getattr(self.session, "chain", None)
        if make is None or self._draft_model is None or self._draft_model.device != self.target.device:
            return None
        longest, _ = self._longest_draft()
        return make(self.committed, longest, index) if longest > 0 else None

    def _longest_draft(self) -> tuple[int, DraftStop | None]:
        """How many tokens may be drafted now, and what makes them fewer than k."""
        return self.rules.longest_draft(self.settings.most_draft_tokens, self._num_new, len(self.committed))

    def _why_short(self, num_drafted: int, stopped_by: DraftStop | None) -> DraftStop | None:
        """Why a draft is shorter than k."""
        longest, cut_by = self._longest_draft()
        if num_drafted == self.settings.most_draft_tokens:
            return None
        return cut_by if num_drafted == longest else stopped_by

    def _synchronize_draft(self, laps: Laps) -> None:
        """The draft's time ends when its device is done."""
        if self.session is None:
            return
        getattr(self._draft_model, "synchronize", self.target.synchronize)()
        laps.end("draft")

    def _target_pass(self, fed: Sequence[int] | Tensor) -> ForwardOutput:
        """The target over the pending token and the draft, all of it or what the drafter has not run yet."""
        if self.session and self.session.shared_layers:
            return self.session.verify(fed)
        return self.target.forward(fed, self.cache, feature_layers=self.feature_layers)

    def _settle(self, index: int, draft: list[DraftedToken], adjusted: Tensor) -> tuple[dict[str, Any], list[Token]]:
        """Verdict and commit: what the round's event says of it, and the tokens that were committed.

        Args:
            adjusted: [k + 1, vocab] from the pipeline.
        """
        verdict, uniforms, extra_uniform = self._verify(draft, adjusted, index)
        texts_before = self.texts.fork()
        # Token by token, up to the one that ends the run.
        kept = self._commit([*(token.token_id for token in draft[: verdict.num_accepted]), verdict.extra_id])
        chances = TokenChances(uniforms, extra_uniform)
        said = self.describer.describe(texts_before, draft, adjusted, verdict, chances, kept)
        return {**said, "committed": [token["id"] for token in kept]}, kept

    def _verify(
        self, draft: list[DraftedToken], adjusted: Tensor, index: int
    ) -> tuple[Verdict, list[float], float | None]:
        """The verdict, the dice of the acceptance tests, and the die of the extra token (none when greedy)."""
        draft_ids = [token.token_id for token in draft]
        if self.pipeline.is_greedy:
            return verify_greedy(draft_ids, argmax_rows(adjusted)), [], None
        first = len(self.committed)
        uniforms = [self.dice.uniform(index, first + i, "accept") for i in range(len(draft))]
        extra_uniform = self.dice.uniform(index, first, "extra")
        draft_probs = None
        if draft and draft[0].probs is not None:
            draft_probs = torch.stack([token.probs for token in draft]).to(adjusted.device)
        target_probs = self.pipeline.distribution(adjusted)
        verdict = verify_rejection(draft_ids, draft_probs, target_probs, uniforms, extra_uniform)
        return verdict, uniforms, extra_uniform

    def _commit(self, block: list[int]) -> list[Token]:
        """Commit the block up to the token that ends the run; returns what was committed."""
        kept: list[Token] = []
        for token_id in block:
            token = self.texts.append(token_id)
            self.committed.append(token_id)
            kept.append(token)
            self.finish_reason = self.rules.reason_after(
                token_id, self.generated.append(token), self._num_new, len(self.committed)
            )
            if self.finish_reason:
                break
        return kept

    def _roll_back(self, num_kept: int, features: dict[int, Tensor]) -> None:
        """Cut both caches to the committed text, less its pending token."""
        self.cache.truncate(len(self.committed) - 1)
        if self.session:
            # The features of the fed tokens that stay: the pending one and all kept but the newest.
            self.session.commit(self.committed, {layer: states[:num_kept] for layer, states in features.items()})
            assert self._draft_cache_length() is None or self._draft_cache_length() < len(self.committed)

    def _feed_again_what_lacks_features(self) -> None:
        """A drafter of features gets those of every position that its own cache lacks, so kept ones are fed again."""
        if self.feature_layers and self.session.cache is not None:
            start = min(self.cache.length, self.session.cache.length)
            self.cache.truncate(start)
            self.session.cache.truncate(start)

    # -- Around it -----------------------------------------------------------------------------

    @property
    def _num_new(self) -> int:
        return len(self.committed) - self.num_prompt

    def interruption(self) -> FinishReason | None:
        """Whether somebody outside ends the run."""
        if self._is_cancelled():
            return "cancelled"
        deadline = self.settings.deadline
        return "deadline" if deadline is not None and self.clock.elapsed >= deadline else None

    def _should_stop(self) -> bool:
        return self.interruption() is not None

    def keep_caches(self, memory: KVMemory) -> None:
        """Leave both caches for the next turn."""
        memory.keep(self.target, self.committed, self.cache)
        if self._draft_model is not None:
            memory.keep(self._draft_model, self.committed, self.session.cache)

    def finished(self, reason: FinishReason) -> Event:
        seconds = self.metrics.seconds
        return {
            "type": "run_finished",
            "t": self.clock.elapsed,
            "reason": reason,
            "token_ids": self.committed[self.num_prompt :],
            "text": self.generated.text,
            "output_text": self.generated.output_text,
            "counts": self.metrics.counts,
            "metrics": self.metrics.metrics(),
            "seconds": {
                "prefill": self.prefill_seconds,
                "rounds": sum(seconds.values()),
                "waiting": self.clock.waiting,
                "total": self.clock.elapsed,
            },
        }

    def _draft_cache_length(self) -> int | None:
        return self.session.cache.length if self.session and self.session.cache else None

    def _cache_use(self, cache: KVCache, before: int, peak: int) -> CacheUse:
        return {"before": before, "peak": peak, "after": cache.length, "bytes": cache.num_bytes}

    def _draft_cache_use(self, before: int | None, peak: int | None) -> CacheUse | None:
        return None if before is None else self._cache_use(self.session.cache, before, peak)
