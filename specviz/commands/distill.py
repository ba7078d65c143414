"""`specviz distill`: train a small draft or exit heads for a target, from text that the target writes itself."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.cache import cache_dir
from specviz.commands.arguments import real, whole
from specviz.commands.without_effect import idle_in_distill, note_without_effect
from specviz.early_exit.exit_head_files import is_exit_heads_folder
from specviz.engine.draft_facts import DRAFT_KINDS, is_draft_folder
from specviz.engine.embedded import EMBEDDED_NAME
from specviz.errors import BadRequest
from specviz.lab.suite import read_suite
from specviz.progress import Progress, terminal_progress

if TYPE_CHECKING:
    from specviz.engine.draft_files import DraftFile
    from specviz.training.distillation import Options
    from specviz.training.exit_heads import ExitHeadTraining
    from specviz.training.teacher import Teacher

NAME = "distill"
HELP = "train a small draft or exit heads for a target, from text that the target writes itself"

EXIT_HEADS = "exit_heads"
KINDS = (*DRAFT_KINDS, EXIT_HEADS)
NOT_FOR = {
    "draft_head": ("layers",),
    "draft_model": ("feature_layers",),
    EXIT_HEADS: ("layers", "feature_layers", "start_from", "after", "suite", "bench"),
}
STEPS = ("generate", "train", "evaluate", "export")
COPIED_SHARE = 0.5  # of the learning rate, for weights that are taken from the target
LARGEST_SEED = 2**32 - 1
SHIPPED_TEXT = Path(__file__).resolve().parents[2] / "assets" / "training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "steps", nargs="*", metavar="STEP", help=f"some of {', '.join(STEPS)} (default: all of them, in this order)"
    )
    parser.add_argument("--target", metavar="ID_OR_DIR", help="a Llama-like model (default: the embedded one)")
    parser.add_argument("--dtype", default="auto", help="of the target, as it will run: auto, float32, int8 ...")
    parser.add_argument("--kind", default="draft_head", help=f"{', '.join(KINDS)} (default draft_head)")
    parser.add_argument("--name", help="of the draft (default: the target's name and the kind)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="the draft folder (default: NAME, here)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="states and checkpoints (default: the user's cache)")
    parser.add_argument(
        "--corpus", type=Path, metavar="DIR", help="token ids (default: those that are shipped, else in --work)"
    )
    parser.add_argument(
        "--tokens",
        type=whole("--tokens", "from 1 on"),
        default=1_000_000,
        metavar="N",
        help="to be written (default 1,000,000)",
    )
    parser.add_argument(
        "--after",
        type=whole("--after", "from 1 on"),
        metavar="N",
        help="leave out the first shards that hold so many tokens: with --start-from, to go on with new text only",
    )
    parser.add_argument("--feature-layers", metavar="A,B,...", help="of the target, that a draft head reads")
    parser.add_argument("--layers", metavar="A,B,...", help="of the target, that a draft model starts from")
    parser.add_argument(
        "--start-from", type=Path, metavar="DIR", help="go on with a draft that is trained already, on more text"
    )
    parser.add_argument(
        "--cut",
        type=whole("--cut", "from 1 on"),
        default=4096,
        metavar="N",
        help="tokens that the draft can always say, or that an exit's confidence is computed over (default 4096)",
    )
    parser.add_argument(
        "--epochs",
        type=real("--epochs", "above 0, up to 1000"),
        metavar="N",
        help="passes over the text (default 3; of exit heads 2)",
    )
    parser.add_argument(
        "--learning-rate",
        type=real("--learning-rate", "above 0, up to 1"),
        metavar="X",
        help=f"peak, of new weights; those taken from the target learn at {COPIED_SHARE:g} of it (default 0.0015; of exit "
        "heads 0.001)",
    )
    parser.add_argument(
        "--seed", type=whole("--seed", "from 0 on"), default=1, metavar="N", help="of text and training (default 1)"
    )
    parser.add_argument(
        "--suite", type=Path, metavar="FILE", help="JSON Lines with prompt and category, to measure agreement on too"
    )
    parser.add_argument("--bench", type=Path, metavar="FILE", help="a `bench --json` for the card's table by category")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Returns 0 once the steps are done; interrupted, the same command goes on where it was.

    Raises:
        BadRequest: a target, step or option that cannot be.
        RunFailed: the weights are not numbers any more, or too many for a file.
    """
    steps = _steps(args.steps)
    _check(args)
    bench = _read_bench(args.bench)
    suite = () if args.suite is None else tuple(read_suite(args.suite))
    start = None if args.start_from is None else _read_start(args.start_from)
    for option in ("work", "corpus"):
        _refuse_unwritable(f"--{option}", getattr(args, option))
    if args.output is not None:
        _refuse_foreign(args.output, args.kind)
    note_without_effect(idle_in_distill(args, steps))
    from specviz.training.distillation import Distillation
    from specviz.training.teacher import load_teacher

    teacher = load_teacher(args.target, args.dtype)
    options = replace(_options(args, teacher, start), suite=suite)
    _refuse_foreign(options.output, options.kind)
    _refuse_nothing_trained(steps, options.work / args.kind)
    done: dict = {"name": options.name, "kind": options.kind, "target": teacher.model.name}
    with terminal_progress() as report:
        distillation = Distillation(teacher, options, report)
        learning = _exit_heads(args, options, teacher, report) if args.kind == EXIT_HEADS else distillation
        for step in steps:
            if step == "generate":
                distillation.generate()
                done["corpus"] = str(options.corpus)
            elif step == "train":
                learning.train()
                done["steps"] = learning.trainer.step
            elif step == "evaluate":
                done["metrics"] = learning.evaluate()
            else:
                done["output"] = str(learning.export() if args.kind == EXIT_HEADS else distillation.export(bench))
    if args.json:
        print(json.dumps(done, allow_nan=False))
    else:
        _print(done)
    return 0


def _steps(named: list[str]) -> tuple[str, ...]:
    if wrong := [step for step in named if step not in STEPS]:
        raise BadRequest(f"step is {wrong[0]!r}: choose some of {', '.join(STEPS)}.")
    return tuple(step for step in STEPS if step in named) or STEPS


def _refuse_nothing_trained(steps: tuple[str, ...], folder: Path) -> None:
    """Raise BadRequest at once, rather than after the hour that the states of the text may take."""
    from specviz.training.checkpoints import CHECKPOINT_FILE

    if "export" in steps and "train" not in steps and not (folder / CHECKPOINT_FILE).exists():
        what = "exit heads" if folder.name == EXIT_HEADS else "draft"
        raise BadRequest(
            f"{folder} holds no trained {what} yet: run the step train first, or name its folder with --work."
        )


def _check(args: argparse.Namespace) -> None:
    if args.kind not in KINDS:
        raise BadRequest(f"kind is {args.kind!r}: choose one of {', '.join(KINDS)}.")
    for name in ("tokens", "cut", "after"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise BadRequest(f"{name} is {getattr(args, name)}: give a whole number from 1 on.")
    if not 0 <= args.seed <= LARGEST_SEED:
        raise BadRequest(f"seed is {args.seed}: give a whole number from 0 to {LARGEST_SEED}.")
    if args.after is not None and args.after >= args.tokens:
        raise BadRequest(f"after is {args.after}, of {args.tokens} tokens in all: give fewer, or more as --tokens.")
    wearer = "exit_heads do" if args.kind == EXIT_HEADS else f"a {args.kind} does"
    for other in NOT_FOR[args.kind]:
        if getattr(args, other) is not None:
            raise BadRequest(f"{other} is {str(getattr(args, other))!r}, which {wearer} not have: leave it out.")
    if args.epochs is not None and not 0 < args.epochs <= 1000:
        raise BadRequest(f"epochs is {args.epochs:g}: give a number above 0, up to 1000.")
    if args.learning_rate is not None and not 0 < args.learning_rate <= 1:
        raise BadRequest(f"learning_rate is {args.learning_rate:g}: give a number above 0, up to 1.")


def _refuse_unwritable(option: str, folder: Path | None) -> None:
    """Raise BadRequest where no folder can be made, or nothing be written in it; makes none."""
    if folder is None:
        return
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        found = "which is" if there == folder else f"and {there} is"
        raise BadRequest(f"{option} is {folder}, {found} a file: name a folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        found = "which" if there == folder else f"and {there}"
        raise BadRequest(f"{option} is {folder}, {found} cannot be written: name another folder.")


def _refuse_foreign(output: Path, kind: str) -> None:
    """Raise BadRequest where a draft or exit heads would be written over something else, or beside each other."""
    ours, others = (is_draft_folder, "a draft"), (is_exit_heads_folder, "exit heads")
    if kind == EXIT_HEADS:
        ours, others = others, ours
    (is_ours, what), (is_other, other) = ours, others
    if is_other(output):
        found = f"which holds {other}"
    elif is_ours(output) or not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    else:
        found = "where something else lies"
    raise BadRequest(f"output is {output}, {found}: name a new folder, or that of {what}.")


def _options(args: argparse.Namespace, teacher: Teacher, start: DraftFile | None) -> Options:
    from specviz.training.distillation import Options
    from specviz.training.trainer import Plan

    model, is_head = teacher.model, args.kind == "draft_head"
    last = model.num_layers - 1
    name = args.name or f"{Path(model.name).name}-{args.kind.replace('_', '-')}"
    work = args.work or cache_dir() / "distill" / Path(model.name).name
    shipped = SHIPPED_TEXT / model.name if model.name == EMBEDDED_NAME else None
    rate = 1.5e-3 if args.learning_rate is None else args.learning_rate
    epochs = 3.0 if args.epochs is None else args.epochs
    plan = Plan(epochs=epochs, learning_rate=rate, copied_rate=COPIED_SHARE * rate, seed=args.seed)
    if args.kind == "draft_model":
        plan = replace(plan, unroll_steps=1)
    read, taken = _spread(model.num_layers), tuple(sorted({0, last // 2, last}))
    if start is not None:
        read, taken = start.facts.feature_layers, tuple(range(start.facts.num_layers))
    return Options(
        kind=args.kind,
        name=name,
        work=work,
        corpus=args.corpus or (shipped if args.target is None and shipped else work / "text"),
        output=args.output or Path(name),
        feature_layers=_layers("feature_layers", args.feature_layers, read) if is_head else (),
        layers=_layers("layers", args.layers, taken) if args.kind == "draft_model" else (),
        num_tokens=args.tokens,
        after=args.after or 0,
        cut=min(args.cut, model.vocab_size),
        seed=args.seed,
        dtype=args.dtype,
        plan=plan,
        start_from=start,
    )


def _exit_heads(args: argparse.Namespace, options: Options, teacher: Teacher, report: Progress) -> ExitHeadTraining:
    from specviz.training.exit_heads import ExitHeadTraining, ExitOptions
    from specviz.training.translator_trainer import TranslatorPlan

    given = {"epochs": args.epochs, "learning_rate": args.learning_rate}
    plan = TranslatorPlan(seed=args.seed, **{name: value for name, value in given.items() if value is not None})
    plan = replace(plan, rank=min(plan.rank, teacher.embedding.shape[1]))
    shared = {name: getattr(options, name) for name in ("name", "work", "corpus", "output", "num_tokens", "cut")}
    return ExitHeadTraining(teacher, ExitOptions(**shared, plan=plan), report)


def _read_start(folder: Path) -> DraftFile:
    from specviz.engine.draft_files import read_draft

    if not is_draft_folder(folder):
        raise BadRequest(f"start_from is {folder}, which is no draft folder: name one that `distill` has written.")
    return read_draft(folder)


def _spread(num_layers: int) -> tuple[int, ...]:
    """A low, a middle and the last layer: what EAGLE-3 fuses, but that our last one is after the final norm."""
    return tuple(sorted({round(0.27 * num_layers), round(0.6 * num_layers), num_layers}))


def _layers(name: str, text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    if text is None:
        return default
    try:
        layers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadRequest(f"{name} is {text!r}: give layers as numbers with commas between, such as 0,14,29.") from None
    if list(layers) != sorted(set(layers)):
        raise BadRequest(f"{name} is {text!r}: give each layer once, the lowest first.")
    return layers


def _read_bench(path: Path | None) -> dict | None:
    if path is None:
        return None
    try:
        bench = json.loads(path.read_text(encoding="utf-8"))
        bench["engines"], bench["setting"]["prompts"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRequest(
            f"{path} is not the output of `bench --json` ({error}): name one, or leave --bench out."
        ) from None
    return bench


def _print(done: dict) -> None:
    if "corpus" in done:
        print(f"The text lies in {done['corpus']}.")
    if "steps" in done:
        print(f"Trained: {done['steps']:,} steps.")
    if (metrics := done.get("metrics")) and done["kind"] == EXIT_HEADS:
        found = metrics["frontier"]["translators"]["top1"]["for"]["0.9"]
        print(
            f"Exits after layers {', '.join(map(str, metrics['exit_layers']))}: {found['layers_saved']:.1%} of the layers saved "
            f"on held-out text at {found['agreement']:.1%} agreement with the full model."
        )
    elif metrics:
        first, engine = metrics["on_text"]["by_position"][0], metrics["in_engine"]
        print(f"On held-out text: greedy agreement {first['agreement']:.3f}, overlap {first['overlap']:.3f}.")
        if on_suite := metrics.get("on_suite"):
            first = on_suite["by_position"][0]
            print(
                f"Along the target's greedy answers to the {on_suite['sequences']} prompts of the suite: greedy agreement "
                f"{first['agreement']:.3f} over {first['tokens']:,} tokens."
            )
        print(
            f"In the engine, {engine['prompts']} held-out prompts: {engine['mean_tokens_per_round']:.2f} tokens a round, "
            f"{engine['speedup_over_plain']:.2f}x of plain decoding's speed, {engine['identical']:.0%} of the answers identical."
        )
    if "output" in done:
        is_draft = done["kind"] != EXIT_HEADS
        print(
            f"The draft is in {done['output']}: give it as --draft."
            if is_draft
            else f"The exit heads are in {done['output']}."
        )
