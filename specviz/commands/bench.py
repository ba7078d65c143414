"""`specviz bench`: our engine beside others on the same prompts, in one run, as ratios."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from specviz.commands.arguments import add_model_arguments, draft_length, model_sources, whole
from specviz.commands.without_effect import idle_in_bench, note_without_effect
from specviz.config import RunSettings
from specviz.errors import BadRequest
from specviz.lab.engines import ENGINES, Setup, why_unavailable
from specviz.lab.prompts import prepare, untemplated
from specviz.lab.suite import DEFAULT_SUITE, read_suite
from specviz.lab.vllm_engine import server_address
from specviz.presets import find_preset

NAME = "bench"
HELP = "measure our engine beside transformers, llama.cpp and vLLM on the same prompts"

MOST_THREADS = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite", metavar="FILE", default=DEFAULT_SUITE, help="JSON Lines with prompt and category (default: our own)"
    )
    parser.add_argument(
        "--limit",
        type=whole("--limit", "from 1 on"),
        metavar="N",
        help="only N prompts, taken from each category in turn",
    )
    parser.add_argument(
        "--max-new-tokens", type=whole("--max-new-tokens", "from 1 on"), metavar="N", default=128, help="(default 128)"
    )
    parser.add_argument(
        "--max-prompt-tokens",
        type=whole("--max-prompt-tokens", "from 1 on"),
        metavar="N",
        default=512,
        help="template included; the beginning of a longer prompt is cut off (default 512)",
    )
    parser.add_argument(
        "--repeat",
        type=whole("--repeat", "from 1 on"),
        metavar="R",
        default=1,
        help="give every prompt R times (default 1)",
    )
    parser.add_argument("--engines", metavar="A,B,...", help=f"some of {', '.join(ENGINES)} (default: all)")
    parser.add_argument(
        "--k",
        type=draft_length,
        metavar="N",
        help="draft tokens a round, for every engine that takes it, or auto (default: each engine's own)",
    )
    parser.add_argument("--preset", metavar="NAME", help="the models of a lesson or a pair")
    add_model_arguments(parser)
    parser.add_argument("--hf-dtype", help=f"of transformers' generate (default {Setup().hf_dtype})")
    parser.add_argument(
        "--threads",
        type=whole("--threads", "from 1 on"),
        metavar="N",
        help="CPU threads an engine (default: each engine's own)",
    )
    parser.add_argument("--gguf", metavar="FILE", help="the target's weights for llama.cpp")
    parser.add_argument("--vllm", metavar="URL", help="a running vLLM server that serves the target")
    parser.add_argument(
        "--perplexity",
        action="store_true",
        help="also compare the perplexity of our weights, transformers' and float32",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object; an engine's `identical` is the share of prompts with the ids of its own plain decoding, "
        "and null, with `identical_why`, where that was not measured (plain decoding itself: without --repeat)",
    )


def run(args: argparse.Namespace) -> int:
    """Returns 0 when something was measured, 1 when no engine that was asked for went through.

    Raises:
        BadRequest: before any weights are loaded.
    """
    engines = _engines(args.engines)
    _check(args)
    suite = read_suite(args.suite, args.limit)
    note_without_effect(idle_in_bench(args, engines))
    setup = Setup(
        **model_sources(args, find_preset(args.preset) if args.preset else None),
        device=args.device,
        dtype=args.dtype,
        hf_dtype=args.hf_dtype or Setup().hf_dtype,
        num_draft_tokens=args.k,
        threads=args.threads,
        vllm_url=args.vllm,
    )

    from specviz.lab.bench import Plan, run_bench, run_perplexities
    from specviz.lab.candidates import inspect_target
    from specviz.lab.llama_cpp_engine import embedded_gguf_file

    target, progress = inspect_target(setup), _Progress()
    prompts = prepare(
        suite,
        target.vocabulary,
        max_prompt_tokens=args.max_prompt_tokens,
        max_new_tokens=args.max_new_tokens,
        context=target.model.max_positions,
    )
    with embedded_gguf_file() if setup.is_embedded and args.gguf is None else nullcontext(args.gguf) as gguf_file:
        longest = max(len(prompt.token_ids) for prompt in prompts)
        setup = replace(setup, gguf_file=gguf_file, max_length=longest + args.max_new_tokens)
        _refuse_if_none_can_run(args.engines, engines, setup)
        result = run_bench(Plan(setup, prompts, engines, args.max_new_tokens, args.repeat), notify=progress)
        if args.perplexity:
            texts = [untemplated(prompt, target.vocabulary) for prompt in prompts]
            result["perplexity"], reasons = run_perplexities(texts, setup, notify=progress)
            result["reasons"] |= reasons
    progress.end()
    result["setting"]["suite"] = Path(args.suite).name
    if args.json:
        print(json.dumps(result, allow_nan=False))
    else:
        from specviz.lab.report import print_report

        print_report(result)
    return 0 if any(result["engines"].values()) else 1


def _engines(names: str | None) -> tuple[str, ...]:
    chosen = ENGINES if names is None else tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in chosen:
        if name not in ENGINES:
            raise BadRequest(f"engines has {name!r}: choose from {', '.join(ENGINES)}.")
    return chosen


def _refuse_if_none_can_run(named: str | None, engines: tuple[str, ...], setup: Setup) -> None:
    reasons = [why_unavailable(name, setup) for name in engines]
    if named is not None and all(reasons):
        raise BadRequest(" ".join(dict.fromkeys(reasons)))


def _check(args: argparse.Namespace) -> None:
    RunSettings(max_new_tokens=args.max_new_tokens, **({} if args.k is None else {"num_draft_tokens": args.k}))
    if args.k == 0:
        raise BadRequest("k is 0, which drafts nothing: give 1 or more; plain decoding is measured anyway.")
    if args.max_prompt_tokens < 1:
        raise BadRequest(f"--max-prompt-tokens is {args.max_prompt_tokens}: give 1 or more.")
    if args.repeat < 1:
        raise BadRequest(f"repeat is {args.repeat}: give 1 or more.")
    if args.threads is not None and not 1 <= args.threads <= MOST_THREADS:
        raise BadRequest(f"threads is {args.threads}: give a whole number from 1 to {MOST_THREADS}.")
    if args.vllm is not None:
        server_address(args.vllm)
    if args.gguf is not None and not Path(args.gguf).is_file():
        raise BadRequest(f"gguf is {args.gguf!r}, and there is no such file: name the target's GGUF file.")


class _Progress:
    """Says on stderr what goes on: on one line of a terminal, else a line for each tenth prompt."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._num_prompts = 0

    def __call__(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\033[K{text} ", end="", file=sys.stderr, flush=True)
            return
        is_prompt = text.startswith("Prompt")
        if not is_prompt or self._num_prompts % 10 == 0:
            print(text, file=sys.stderr, flush=True)
        self._num_prompts += is_prompt

    def end(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
