"""May a draft folder work with a target: its facts, its weights, and the tie to the target's embedding."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from specviz.engine.draft_files import DraftFile
from specviz.engine.pairing import Candidate, Level, PairVerdict, Reason, memory_of, speed_reason
from specviz.errors import BadRequest


def judge_draft(target: Candidate, draft: DraftFile, embedding: Tensor | None) -> PairVerdict:
    """All findings about a draft folder for a target, and what the two need of memory.

    Args:
        embedding: the target's; None where its weights are not here, and the tie is not checked.
    """
    reasons = [_kind_reason(draft), _vocabulary_reason(draft)]
    memory: dict[str, Any] = {}
    if target.model is None:
        reasons.append(Reason("cache", "refused", target.refusal))
    else:
        reasons += [_tie_reason(target, draft, embedding), _context_reason(target, draft)]
        num_tied = len(draft.vocab_ids) * draft.facts.hidden if draft.is_tied else 0
        # In numbers, not bytes: the two run in the same precision where it matters, which is on the lean path.
        ratio = (draft.num_params + num_tied) / target.model.num_params
        reasons.append(speed_reason(ratio, draft.num_params, target.model))
        memory = {"target": memory_of(target.model), "draft": _memory(draft)}
    levels = [reason.level for reason in reasons]
    worst: Level = next((level for level in ("refused", "slow") if level in levels), "ok")
    return PairVerdict(worst, tuple(reasons), memory)


def _kind_reason(draft: DraftFile) -> Reason:
    facts = draft.facts
    if facts.kind == "draft_head":
        layers = ", ".join(map(str, facts.feature_layers))
        text = f"{facts.name} is a draft head: one layer over what the target knows after its layers {layers}."
    else:
        text = f"{facts.name} is a draft model of {facts.num_layers} layers."
    return Reason("kind", "ok", text)


def _vocabulary_reason(draft: DraftFile) -> Reason:
    context = " and those that stand in its text" if draft.is_tied else ""
    text = (
        f"It can say {len(draft.vocab_ids)} of the target's {draft.facts.vocab_size} tokens{context}; the others it never "
        "drafts, and the target says them all the same."
    )
    return Reason("vocabulary_width", "ok", text)


def _tie_reason(target: Candidate, draft: DraftFile, embedding: Tensor | None) -> Reason:
    if embedding is None:
        text = (
            f"It shares the embedding of {draft.facts.target_name}; whether that is this target's is checked when it is "
            "loaded, since the target's weights are not in a folder here."
        )
        return Reason("tie", "ok", text)
    try:
        draft.refuse_other_target(embedding, target.model.num_layers, target.name)
    except BadRequest as error:
        return Reason("tie", "refused", str(error))
    head = "embedding and output head" if draft.is_tied else "embedding"
    return Reason("tie", "ok", f"It shares the target's {head}: the fingerprint is the one that it was trained for.")


def _context_reason(target: Candidate, draft: DraftFile) -> Reason:
    limit = target.model.max_positions
    text = f"Context in tokens: target {limit or 'no limit known'}, draft {draft.facts.max_positions}."
    if limit is None or draft.facts.max_positions < limit:
        text += " Beyond the draft's own, the run goes on without drafts."
    return Reason("context", "ok", text)


def _weight_bytes(draft: DraftFile) -> int:
    """Of what the draft adds: its tensors, and its copy of the rows of the target's embedding."""
    held = sum(tensor.numel() * tensor.element_size() for tensor in draft.tensors.values())
    row_bytes = draft.facts.hidden + 4 if draft.is_int8 else 4 * draft.facts.hidden
    return held + (len(draft.vocab_ids) * row_bytes if draft.is_tied else 0)


def _memory(draft: DraftFile) -> dict[str, Any]:
    facts = draft.facts
    return {
        "weight_bytes": _weight_bytes(draft),
        "kv_bytes_per_1000_tokens": 1000 * 2 * 4 * facts.num_layers * facts.kv_heads * facts.head_dim,
        "num_params": draft.num_params,
        "dtype": "int8" if draft.is_int8 else "float32",
    }
