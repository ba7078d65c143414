"""What happened, in plain words: the one place that the terminal's sentences come from.

Pure functions of events. The page says the same in its own script, word for word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specviz.events import ExtraToken, Identity, Round, Token
from specviz.trace.visible_text import shortened, visible_text

LONGEST_QUOTE = 40

DRAFTERS = {
    "draft_model": "draft model",
    "prompt_lookup": "prompt lookup",
    "early_exit": "early exit",
    "draft_head": "draft head",
    "none": "plain decoding",
}
MOST_LAYERS = 12  # that a sentence names one by one

WHY_NOTHING_WAS_DRAFTED = {
    "confidence": "the drafter was not sure enough",
    "eos": "the drafter saw the end",
    "context": "the context had no room for a draft",
    "budget": "only one token was left to write",
    "no_match": "the text held no earlier match",
}
WHY_THE_DRAFT_ENDED_EARLY = {
    "confidence": "the drafter was no longer sure enough",
    "eos": "the drafter drafted the end token",
    "context": "the context had no more room",
    "budget": "no more tokens were allowed",
    "no_match": "the earlier match had no more to offer",
}
WHY_IT_ENDED = {
    "eos": "the target said its end token",
    "stop": "a stop string was written",
    "length": "the allowed number of new tokens was reached",
    "context": "the target's context is full",
    "cancelled": "the run was stopped",
    "deadline": "the deadline had passed",
}


def round_sentence(event: Round) -> str:
    """One round in one sentence, such as

    3 of 5 accepted; the target would not say ' fox'; it said ' dog'; rolled back 2; kept 4 tokens for one
    target pass.
    """
    parts = [*_draft_parts(event), *_extra_parts(event)]
    withdrawn = num_rolled_back(event)
    if withdrawn:
        parts.append(f"rolled back {withdrawn}")
    parts.append(f"kept {counted(len(event['committed']), 'token')} for one target pass")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def exit_sentence(event: Round, num_layers: int) -> str:
    """One round of an early-exit run, such as

    Said ' dog' after 21 of 30 layers: 0.731 sure, and 0.600 was enough.
    """
    left, said = event["exit"], quoted(event["extra"])
    confidences, threshold = left["confidences"], left["threshold"]
    if left["layer"] < num_layers:
        why = (
            f": {confidences[-1]:.3f} sure, and {threshold:.3f} was enough"
            if confidences and threshold is not None
            else ""
        )
        return f"Said {said} after {left['layer']} of {num_layers} layers{why}."
    if not confidences or threshold is None:
        return f"Said {said} after all {num_layers} layers."
    if max(confidences) >= threshold:
        return f"Said {said} after all {num_layers} layers, as a map run does; it would have left early."
    return f"Said {said} after all {num_layers} layers: at most {max(confidences):.3f} sure before, where {threshold:.3f} was asked."


def exit_facts(metrics: dict[str, Any]) -> str | None:
    """How many layers an early-exit run took; None for other runs."""
    mean, saved = metrics.get("mean_layers_per_token"), metrics.get("layers_saved")
    if mean is None:
        return None
    of_all = f", {saved:.0%} of the layers not run" if saved is not None else ""
    return f"{mean:.1f} layers a token{of_all}"


def early_exit_facts(info: dict[str, Any]) -> list[str]:
    """What a trace says of when tokens may leave, in short sentences without their full stops."""
    threshold = info["threshold"]
    when = "never" if threshold is None else f"{shortened(info['measure'], LONGEST_QUOTE)} of at least {threshold:g}"
    layers = info["exit_layers"]
    where = _layers(layers) if len(layers) <= MOST_LAYERS else f"{len(layers)} of its layers"
    looked = f"looked at after {where}" if layers else "never looked at"
    kind = {"timed": "exits are real", "map": "a map: every layer is run and read out"}.get(info["run"], info["run"])
    heads = info["heads"]
    named = (
        f"{shortened(heads['kind'], LONGEST_QUOTE)} exit heads, {heads['cut_vocab_size']:,} tokens in their confidences"
    )
    return [f"{when}, {looked}", kind, named]


def num_rolled_back(event: Round) -> int:
    """Drafted tokens that were withdrawn: rejected, discarded and cut ones."""
    return sum(token["status"] != "accepted" for token in event["draft"])


def draft_stop_note(event: Round) -> str | None:
    """Why fewer tokens than asked for were drafted, or None when that needs no saying here."""
    if not event["draft"]:
        return None  # the sentence of the round says it
    return WHY_THE_DRAFT_ENDED_EARLY.get(event["draft_stop"])


def identity_sentence(identity: Identity | None) -> str:
    """What this run may claim about plain decoding: only what its identity event says."""
    if identity is None:
        return "Identical to plain decoding: not checked in this run."
    if identity["identical"] is None:
        return f"Identical to plain decoding: not comparable ({visible_text(identity['why'])})."
    if identity["identical"]:
        return "Identical to plain decoding: yes, checked in this run."
    difference = identity["first_difference"]
    plain, this_run = (_text_or_end(text) for text in difference["texts"])
    gap = difference["top2_gap"]
    closeness = (
        f"; the target's top two logits there were {gap:.3g} apart in {difference['dtype']}" if gap is not None else ""
    )
    return (
        f"Identical to plain decoding: no; the first difference is at new token {difference['position'] + 1}, "
        f"where plain decoding says {plain} and this run said {this_run}{closeness}."
    )


def drafter_words(kind: str) -> str:
    """A drafter's kind as a person says it; an unknown one as it is."""
    return DRAFTERS.get(kind, kind)


def drafter_facts(drafter: dict[str, Any]) -> list[str]:
    """What a trace says of a draft head or a draft model, in short sentences without their full stops."""
    facts, weights = [], drafter.get("weight_bytes")
    layers = drafter.get("feature_layers")
    if drafter["kind"] == "draft_head" and isinstance(layers, list) and layers and all(map(_is_count, layers)):
        facts.append(f"reads the target's {_layers(layers)}")
    elif drafter["kind"] == "draft_model":
        facts += _model_facts(drafter)
    cut, size = drafter.get("cut_vocab_size"), drafter.get("vocab_size")
    if _is_count(cut) and _is_count(size):
        facts.append("trained for this target")
        context = " and those of the text so far" if drafter.get("says_context") is True else ""
        facts.append(f"can say {cut:,} of {size:,} tokens{context}")
    if _is_count(weights):
        precision = drafter.get("precision") or drafter.get("dtype")
        named = f"{shortened(precision, LONGEST_QUOTE)} weights" if isinstance(precision, str) else "weights"
        facts.append(f"{named}, {weights / 1e6:.1f} MB (measured)")
        if _is_count(shared := drafter.get("shared_weight_bytes")):
            is_shared = ", beside the target's embedding, which it shares"
            facts[-1] += is_shared if shared > 0 else ", with a copy of the target's embedding"
    return facts


def _model_facts(drafter: dict[str, Any]) -> list[str]:
    layers, params = drafter.get("num_layers"), drafter.get("num_params")
    parts = [counted(layers, "layer")] if _is_count(layers) else []
    parts += [f"{params / 1e6:.1f} million parameters"] if _is_count(params) else []
    is_of_the_family = _is_count(drafter.get("cut_vocab_size"))
    named = "a smaller model of the same family" if is_of_the_family else "a model of its own"
    return [f"{named}: {', '.join(parts)}"] if parts else [named]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _layers(numbers: Sequence[int]) -> str:
    if len(numbers) > MOST_LAYERS:
        return f"states after {len(numbers)} of its layers"
    *first, last = map(str, numbers)
    return f"layers {', '.join(first)} and {last}" if first else f"layer {last}"


def quoted(token: Token) -> str:
    """A token as a sentence names it: its text in quotes, or its bytes, or its id."""
    if token["text"]:
        return f"'{shortened(visible_text(token['text']), LONGEST_QUOTE)}'"
    if token.get("bytes"):
        return f"the bytes {token['bytes'][:LONGEST_QUOTE]}"
    return f"token {token['id']}" if token["id"] is not None else "a token"


def counted(number: int, noun: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _draft_parts(event: Round) -> list[str]:
    num_drafted = len(event["draft"])
    num_accepted = sum(token["status"] == "accepted" for token in event["draft"])
    if num_drafted == 0:
        why = WHY_NOTHING_WAS_DRAFTED.get(event["draft_stop"])
        return [f"nothing was drafted, as {why}" if why else "nothing was drafted"]
    looked_up = ", looked up in the text" if event["draft"][0].get("looked_up") else ""
    parts = [f"{num_accepted} of {num_drafted} accepted{looked_up}"]
    num_cut = sum(token["status"] == "cut" for token in event["draft"])
    if event["extra"] is None:
        last = [token for token in event["draft"] if token["status"] == "accepted"][-1]
        parts.append(f"generation stopped at {quoted(last)}")
    if num_cut:
        parts.append(f"{num_cut} drafted after it {'was' if num_cut == 1 else 'were'} never judged")
    return parts


def _extra_parts(event: Round) -> list[str]:
    extra = event["extra"]
    if extra is None:
        return []
    if extra["kind"] == "bonus":
        return [f"the target added {quoted(extra)} as a bonus"]
    if extra["kind"] == "plain":
        return [f"the target said {quoted(extra)}"]
    return _correction_parts(event, extra)


def _correction_parts(event: Round, extra: ExtraToken) -> list[str]:
    rejected = next(token for token in event["draft"] if token["status"] == "rejected")
    die, chance = rejected.get("u"), rejected.get("accept_prob")
    if die is None or chance is None:
        return [f"the target would not say {quoted(rejected)}", f"it said {quoted(extra)}"]
    return [
        f"{quoted(rejected)} lost its throw ({die:.3f}, and it needed less than {chance:.3f})",
        f"the target drew {quoted(extra)} instead",
    ]


def _text_or_end(text: str | None) -> str:
    return "nothing more" if text is None else f"'{shortened(visible_text(text), LONGEST_QUOTE)}'"
