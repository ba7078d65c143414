"""Options that were given and change nothing: told in a sentence each, since somebody expects something of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

from specviz.commands.arguments import option_of
from specviz.config import RunSettings
from specviz.early_exit.exit_settings import NEVER, ExitSettings
from specviz.engine.draft_facts import DRAFT_KINDS
from specviz.lab.engines import OWN_ENGINES, PLAIN_OF, TRANSFORMERS_ENGINES

OF_LOOKUP = ("max_ngram", "min_ngram")
OF_ADAPTIVE_K = ("k_max", "draft_threshold")
OF_DRAFTING = ("k", *OF_ADAPTIVE_K, "lookup_first", "exit_layer", "exit_heads", *OF_LOOKUP, "draft", "draft_precision")
OFF = {"top_k": 0, "top_p": 1.0}  # asking for what is so anyway is no mistake


def note_without_effect(found: Iterable[tuple[str, str]]) -> None:
    """One line on stderr for each option and what makes it idle."""
    for option, why in found:
        print(f"{option} has no effect with {why}.", file=sys.stderr)


def idle_in_a_run(args: argparse.Namespace, settings: RunSettings) -> Iterator[tuple[str, str]]:
    """(option, what makes it idle) of `generate`'s options, for a run that drafts or decodes plainly."""
    yield from _idle_anywhere(args, settings)
    if settings.drafter == "none":
        yield from _given(args, OF_DRAFTING, "--drafter none, which drafts nothing")
        return
    if settings.most_draft_tokens == 0:
        yield from _given(args, OF_DRAFTING[1:], "--k 0, which drafts nothing")
        return
    drafter = f"--drafter {settings.drafter}"
    looks_up = settings.drafter == "prompt_lookup" or settings.lookup_first
    if not settings.is_adaptive:
        yield from _given(args, OF_ADAPTIVE_K, f"--k {settings.num_draft_tokens}: it is for --k auto")
    elif settings.drafter == "prompt_lookup":
        yield from _given(args, ["draft_threshold"], f"{drafter}, which has no probabilities")
    if settings.drafter == "prompt_lookup":
        yield from _given(args, ["lookup_first"], f"{drafter}, which does nothing else")
    if settings.drafter != "early_exit":
        yield from _given(args, ["exit_layer", "exit_heads"], drafter)
    if not looks_up:
        yield from _given(args, OF_LOOKUP, f"{drafter}, which looks nothing up")
    if settings.drafter not in DRAFT_KINDS:
        yield from _given(args, ["draft", "draft_precision"], drafter)


def idle_in_early_exit(
    args: argparse.Namespace, settings: RunSettings, exits: ExitSettings
) -> Iterator[tuple[str, str]]:
    """The same for `--mode early_exit`."""
    yield from _idle_anywhere(args, settings)
    if exits.threshold == NEVER:
        yield from _given(args, ["exit_threshold_decay"], f"--exit-threshold {NEVER}")
        if args.exit_run != "map":  # a map shows all the same what the rule would look at
            yield from _given(args, ["exit_measure"], f"--exit-threshold {NEVER}")


def idle_in_bench(args: argparse.Namespace, engines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The same for `bench`, of those engines."""
    among = f"--engines {args.engines}"
    if not any(name in engines for name in PLAIN_OF if PLAIN_OF[name] != name):
        yield from _given(args, ["k"], f"{among}, none of which drafts")
    if not any(OWN_ENGINES.get(name) in DRAFT_KINDS for name in engines):
        yield from _given(args, ["draft_precision"], f"{among}, none of which is ours and runs a draft")
        if "hf_assisted" not in engines:
            yield from _given(args, ["draft"], f"{among}, none of which runs a draft")
    for name, engine in (("gguf", "llama_cpp_plain"), ("vllm", "vllm")):
        if engine not in engines:
            yield from _given(args, [name], f"{among}: it is for {engine}")
    if not args.perplexity and not any(name in TRANSFORMERS_ENGINES for name in engines):
        yield from _given(args, ["hf_dtype"], f"{among}: it is for those of transformers")


def idle_in_replay(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The same for `replay` in the terminal."""
    if args.json:
        yield from _given(args, ["speed", "round"], "--json, which sums the whole run up")
    elif args.round is not None:
        yield from _given(args, ["speed"], "--round: one round is shown at once")


def idle_in_fetch(args: argparse.Namespace, is_embedded: bool) -> Iterator[tuple[str, str]]:
    """The same for `fetch`."""
    if args.pin is not None:
        yield from _given(args, ["verify"], "--pin, which fetches nothing")
    elif not is_embedded:
        yield from _given(args, ["verify"], f"{args.model}: it is for the embedded model")


def idle_in_distill(args: argparse.Namespace, steps: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The same for `distill`, of those steps. What decides a training is part of every step, since a checkpoint knows it."""
    if "evaluate" not in steps:
        yield from _given(args, ["suite"], f"the steps {', '.join(steps)}: it is for evaluate")
    if "export" not in steps:
        yield from _given(args, ["output", "bench"], f"the steps {', '.join(steps)}: it is for export")


def _idle_anywhere(args: argparse.Namespace, settings: RunSettings) -> Iterator[tuple[str, str]]:
    if settings.is_greedy:
        names = [name for name in ("top_k", "top_p", "seed") if getattr(args, name) != OFF.get(name)]
        yield from _given(args, names, "--temperature 0, which draws nothing")
    if args.trace is None:
        yield from _given(args, ["trace_detail"], "no --trace")


def _given(args: argparse.Namespace, names: Iterable[str], why: str) -> Iterator[tuple[str, str]]:
    """Those of the options, none of which has a default of its own, that stand on the command line."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value is not False:
            yield option_of(name), why
