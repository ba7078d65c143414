"""Drawing a trace in a terminal, round by round, one token a line.

What models and traces say is never handed to the terminal as it is: it goes through `visible_text`, and to
rich as `Text`, which knows no markup. Every colour has a sign and a word beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from specviz.events import CacheUse, Event, Prefill, Round, RunStarted, Token
from specviz.metrics import RATIOS, count_ratio, is_about_equal, speedup_over_plain
from specviz.trace.sentences import (
    WHY_IT_ENDED,
    counted,
    draft_stop_note,
    drafter_facts,
    drafter_words,
    early_exit_facts,
    exit_facts,
    exit_sentence,
    identity_sentence,
    num_rolled_back,
    round_sentence,
)
from specviz.trace.shapes import ROUND_SECONDS
from specviz.trace.summary import summarize
from specviz.trace.visible_text import encodable_text, shortened, visible_text

LONGEST_TOKEN_TEXT = 80
WIDEST_TEXT_COLUMN = 16

STYLES = {
    "accepted": "green",
    "rejected": "red",
    "discarded": "bright_black",
    "cut": "yellow",
    "correction": "magenta",
    "bonus": "cyan",
    "plain": "blue",
}
SIGNS = dict(zip(STYLES, "✓✗~✂→+→", strict=True))
ASCII_SIGNS = dict(zip(STYLES, "vx~%>+>", strict=True))
ASCII_STAND_INS = {"→": "->", "…": "...", "·": ".", "×": "x", "≥": ">="}

RATIO_LABELS = {
    "alpha": ("alpha", "accepted", "judged"),
    "draft_acceptance_rate": ("draft acceptance rate", "accepted", "drafted"),
    "mean_tokens_per_round": ("mean tokens per round", "committed", "rounds"),
    "mean_accepted_draft_tokens": ("mean accepted draft tokens", "accepted", "rounds"),
}


class TraceTerminal:
    """Prints events as a person wants to read them.

    Works in colour and without, in a pipe, in 40 columns, and where only ASCII can be written.

    Args:
        file: where to print; its `encoding` decides which signs are used.
        width: columns; None lets rich find out.
    """

    def __init__(self, file: TextIO, width: int | None = None):
        self.console = PipeFriendlyConsole(file=file, width=width, highlight=False, markup=False, emoji=False)
        self.encoding = getattr(file, "encoding", None) or "utf-8"
        self._num_layers = 0
        self.has_signs = _can_write("✓✗✂→…·×≥␊", self.encoding)

    def show(self, event: Event) -> None:
        """Print one event; draft_token and the closing events print nothing (see `show_summary`)."""
        match event["type"]:
            case "run_started":
                self.show_start(event)
            case "prefill":
                self.show_prefill(event)
            case "round":
                self.show_round(event)

    def know(self, event: RunStarted) -> None:
        """Take in what its rounds are told with, without printing it."""
        self._num_layers = event["target"]["num_layers"] if "early_exit" in event else 0

    def show_start(self, event: RunStarted) -> None:
        """What runs on what, and the prompt."""
        self.know(event)
        target, drafter = event["target"], event["drafter"]
        dtype, device = target["dtype"] or "unknown precision", target["device"] or "unknown device"
        self._line(f"Target   {target['name']}, {dtype}, {device}", "bold")
        if "early_exit" in event:
            first, *facts = early_exit_facts(event["early_exit"])
            self._line(f"Exits    {first}")
        else:
            kind, name = drafter_words(drafter["kind"]), drafter["name"]
            named = f" ({name})" if name and name not in (kind, drafter["kind"]) else ""
            self._line(f"Drafter  {kind}{named}{_draft_length(event)}")
            facts = drafter_facts(drafter)
        for fact in facts:
            self._line(fact, "dim", indent=9)
        self._line(f"Prompt   {shortened(visible_text(event['prompt']['text']), 400)}", "dim")

    def show_prefill(self, event: Prefill) -> None:
        """How many positions the prompt took, and how long."""
        cached = event["cache"]["target"]
        positions = counted(cached, "position") if cached is not None else "positions unknown"
        seconds = _seconds(_total(event["seconds"], ("target", "draft")))
        self._line(f"Prefill  {positions} in the target's cache, {seconds}", "dim")

    def show_round(self, event: Round) -> None:
        """One round: tokens with verdicts, the target's own token, the roll back, caches, the sentence."""
        self.console.print()
        self._line(f"Round {event['round']}", "bold")
        extra, is_exit = event["extra"], "exit" in event
        width = _text_column(event["draft"] if extra is None else [*event["draft"], extra])
        for token in event["draft"]:
            self._token(token["status"], token, width)
        withdrawn = num_rolled_back(event)
        if withdrawn:
            self._line(f"rolled back {withdrawn}", STYLES["rejected"], indent=2)
        if extra is not None:
            self._token(extra["kind"], extra, width, said_by="read out" if is_exit else "target", is_exit=is_exit)
        note = draft_stop_note(event)
        if note:
            self._line(f"the draft ended early: {note}", "dim", indent=2)
        for line in _cache_lines(event):
            self._line(line, "dim", indent=2)
        self._line(f"time {_time_parts(event['seconds'], is_exit)}", "dim", indent=2)
        sentence = exit_sentence(event, self._num_layers) if is_exit else round_sentence(event)
        self._line(sentence, indent=2)

    def show_summary(self, events: Sequence[Event], is_incomplete: bool = False) -> None:
        """The text, why it ended, every ratio with what it divides, speed, and the identity line."""
        summary = summarize(events)
        self.console.print()
        self._line("Text", "bold")
        self._line(summary["text"] or "(nothing)")
        self.console.print()
        self._line(_ending(summary, is_incomplete), "bold")
        mode = events[0].get("mode", "") if events else ""
        is_exit_run = any("early_exit" in event for event in events[:1])
        speculation = () if is_exit_run else (*_count_lines(summary["counts"]), *_ratio_lines(summary))
        told = (*_exit_lines(summary["metrics"]), *speculation)
        for line in (*told, *_speed_lines(summary, mode)):
            self._line(line, indent=2)
        self._line(identity_sentence(summary["identity"]))

    def _token(self, kind: str, token: Token, text_width: int, said_by: str = "target", is_exit: bool = False) -> None:
        sign = (SIGNS if self.has_signs else ASCII_SIGNS)[kind]
        text = _token_text(token)
        word = "said" if is_exit else kind
        line = Text(f"{sign} {word:<10} ", style=STYLES[kind])
        line.append(self._written(text), style="bold")
        probabilities = _probabilities(token, said_by)
        if probabilities:
            line.append(self._written(" " * max(0, text_width - cell_len(text)) + f"  {probabilities}"), style="dim")
        self._print(line, indent=2)

    def _line(self, text: str, style: str = "", indent: int = 0) -> None:
        self._print(Text(self._written(text), style=style), indent)

    def _print(self, text: Text, indent: int) -> None:
        """Print wrapped to the width, without spaces at line ends; what was wrapped hangs two further in."""
        hanging = 2 if indent else 0
        width = max(8, self.console.width - indent - hanging)
        for number, line in enumerate(text.wrap(self.console, width, overflow="fold")):
            line.rstrip()
            line.pad_left(indent + (hanging if number else 0))
            self.console.print(line, no_wrap=True, overflow="ignore", crop=False)

    def _written(self, text: str) -> str:
        text = visible_text(text, newlines=False)
        if not self.has_signs:
            text = "".join(ASCII_STAND_INS.get(character, character) for character in text)
        return encodable_text(text, self.encoding)


class PipeFriendlyConsole(Console):
    """A console that tells its caller when the reader has gone (`replay t.jsonl | head`)."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def pauses(events: Sequence[Event], speed: float, longest: float = 5.0) -> Iterator[tuple[Event, float]]:
    """Each event with the seconds to wait before it, at `speed` times the recorded pace.

    Args:
        longest: a longer wait is cut to this; a trace may claim any time.
    """
    before = 0.0
    for event in events:
        now = event.get("t", before)
        yield event, min(longest, max(0.0, now - before) / speed)
        before = now


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _draft_length(event: RunStarted) -> str:
    """`, k 4` or `, k auto up to 8`, as far as the settings say; nothing for a run that does not draft."""
    k, most = event["settings"].get("num_draft_tokens"), event["settings"].get("max_draft_tokens")
    if k is None or event["drafter"]["kind"] == "none":
        return ""
    return f", k auto up to {shortened(str(most), 20)}" if k == "auto" else f", k {shortened(str(k), 20)}"


def _token_text(token: Token) -> str:
    """A token's text with its spaces drawn, or what it is instead of text."""
    text = shortened(visible_text(token["text"] or "", spaces=True), LONGEST_TOKEN_TEXT)
    marks = []
    if token.get("bytes"):
        marks.append(f"bytes {token['bytes'][:LONGEST_TOKEN_TEXT]}")
    if token.get("special"):
        marks.append("special")
    if not text and not marks:
        marks.append(f"id {token['id']}" if token["id"] is not None else "unknown")
    return " ".join([*([text] if text else []), *(f"[{mark}]" for mark in marks)])


def _text_column(tokens: Sequence[Token]) -> int:
    """Columns that the texts of a round are padded to, so that their numbers stand under each other."""
    return min(WIDEST_TEXT_COLUMN, max((cell_len(_token_text(token)) for token in tokens), default=0))


def _probabilities(token: dict[str, Any], said_by: str) -> str:
    """`draft 0.91  target 0.95  throw 0.310 < 0.842`: what was recorded of it."""
    parts = [
        f"{name} {_probability(token[field])}"
        for name, field in (("draft", "draft_prob"), (said_by, "target_prob"))
        if token.get(field) is not None
    ]
    die, chance = token.get("u"), token.get("accept_prob")
    if die is not None and chance is not None:
        parts.append(f"throw {die:.3f} {'<' if die < chance else '≥'} {chance:.3f}")
    return "  ".join(parts)


def _probability(value: float) -> str:
    """Two digits that never round a small chance to none, nor a large one to certainty."""
    if value != 0 and value < 0.005:
        return "<0.01"
    return ">0.99" if 0.995 <= value < 1 else f"{value:.2f}"


def _cache_lines(event: Round) -> Iterator[str]:
    for name, cache in (("target", event["cache"]["target"]), ("draft", event["cache"]["draft"])):
        if cache is not None:
            yield f"KV {name} {_cache(cache)}"
    shared = event["cache"].get("shared_layers")
    if shared:
        yield f"KV shared: the drafter works in the target's first {counted(shared, 'layer')}"


def _cache(cache: CacheUse) -> str:
    size = f"{cache['bytes'] / 1e6:.2f} MB"
    return f"{cache['before']} → {cache['peak']} → {cache['after']} positions, {size}"


def _time_parts(seconds: dict[str, float | None], is_exit: bool = False) -> str:
    """An early-exit round drafts and verifies nothing: its pass through the layers stands under `verify`."""
    if is_exit:
        return f"{_seconds(_total(seconds, ROUND_SECONDS))} (layers and exit heads {_seconds(seconds['verify'])}, other {_seconds(seconds['other'])})"
    parts = ", ".join(f"{name} {_seconds(seconds[name])}" for name in ROUND_SECONDS)
    return f"{_seconds(_total(seconds, ROUND_SECONDS))} ({parts})"


def _total(seconds: dict[str, float | None], names: Sequence[str]) -> float | None:
    known = [seconds[name] for name in names if seconds[name] is not None]
    return math.fsum(known) if known else None


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def _ending(summary: dict[str, Any], is_incomplete: bool) -> str:
    if summary["error"] is not None:
        return f"The run failed: {visible_text(summary['error'])}"
    if is_incomplete or summary["reason"] is None:
        return "The trace is incomplete: it ends before the run did."
    return f"Ended because {WHY_IT_ENDED[summary['reason']]}."


def _count_lines(counts: dict[str, int]) -> Iterator[str]:
    yield f"{counted(counts['committed'], 'token')} in {counted(counts['rounds'], 'round')}"
    statuses = ", ".join(f"{counts[name]} {name}" for name in ("accepted", "rejected", "discarded", "cut"))
    yield f"{counts['drafted']} drafted = {statuses}"
    yield (
        f"the target's own: {counted(counts['corrections'], 'correction')}, "
        f"{counts['bonuses']} bonus, {counts['plains']} plain"
    )


def _exit_lines(metrics: dict[str, Any]) -> list[str]:
    """Of an early-exit run: layers a token, and how many tokens left where; nothing for other runs."""
    if (facts := exit_facts(metrics)) is None:
        return []
    counts = ", ".join(f"{layer}: {tokens}" for layer, tokens in metrics["exit_counts"].items())
    return [
        facts,
        f"tokens by the layer they left at: {counts}",
        f"exit heads {_seconds(metrics['mean_head_seconds'])} a token",
    ]


def _ratio_lines(summary: dict[str, Any]) -> Iterator[str]:
    counts, interval = summary["counts"], summary["metrics"]["alpha_interval"]
    for name, (label, numerator, denominator) in RATIO_LABELS.items():
        value = count_ratio(name, counts)
        below = sum(counts[part] for part in RATIOS[name][1])
        note = f" (95% {interval[0]:.3f} to {interval[1]:.3f})" if name == "alpha" and interval else ""
        shown = "no value" if value is None else f"{value:.3f}"
        yield f"{label} {shown} = {counts[RATIOS[name][0]]} {numerator} / {below} {denominator}{note}"


def _speed_lines(summary: dict[str, Any], mode: str) -> Iterator[str]:
    metrics, seconds, identity = summary["metrics"], summary["seconds"], summary["identity"]
    speed = metrics["tokens_per_second"]
    if speed is not None:
        in_rounds = summary["counts"]["committed"] / speed
        yield f"{speed:.1f} tokens/s = {summary['counts']['committed']} committed / {_seconds(in_rounds)} of rounds (measured)"
    if metrics["time_shares"]:
        shares = ", ".join(f"{part} {share:.0%}" for part, share in metrics["time_shares"].items())
        yield f"time of the rounds: {shares}"
    yield f"prefill {_seconds(seconds['prefill'])}, waiting for the reader {_seconds(seconds['waiting'])} (both apart)"
    if (measured := speedup_over_plain(mode, speed, identity)) is not None:
        speedup, plain_speed = measured
        word = "as fast" if is_about_equal(speedup) else "faster" if speedup > 1 else "SLOWER"
        yield f"{speedup:.2f}× plain decoding's {plain_speed:.1f} tokens/s: {word} (measured once, decode only)"
