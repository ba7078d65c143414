"""`specviz fetch`: bring the embedded model, or a pair of the allow-list, before it is needed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from specviz.commands.without_effect import idle_in_fetch, note_without_effect
from specviz.engine.embedded import (
    EMBEDDED_NAME,
    INT8_FILE,
    damage_of,
    describe_cache,
    embedded_int8_folder,
    embedded_model_dir,
    embedded_model_path,
    is_embedded_source,
)
from specviz.hub import HubModel, download_model, models_of, pin_pair
from specviz.presets import EMBEDDED_TARGET, find_pair, load_pairs

NAME = "fetch"
HELP = "bring the embedded model, or the models of a pair in presets/pairs.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default=EMBEDDED_TARGET,
        metavar="PAIR_OR_ID",
        help="a pair's name or a hub id, both from presets/pairs.toml (default: the embedded model)",
    )
    parser.add_argument("--verify", action="store_true", help="hash the embedded model's weights, and repair them")
    parser.add_argument("--pin", metavar="PAIR", help="read the pair's revisions from the hub into presets/pairs.toml")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Returns 0 once everything is here.

    Raises:
        SpecVizError: one sentence for whatever is in the way (see `engine.embedded` and `hub`).
    """
    is_embedded = is_embedded_source(args.model)
    note_without_effect(idle_in_fetch(args, is_embedded))
    if args.pin is not None:
        models = [_hub_facts(model) for model in pin_pair(find_pair(args.pin))]
    elif is_embedded:
        models = [_fetch_embedded(args.verify)]
    else:
        models = [_hub_facts(model, download_model(model)) for model in _allowed_models(args.model)]
    if args.json:
        print(json.dumps({"models": models}, allow_nan=False))
    else:
        for model in models:
            print(_sentence(model))
    return 0


def _fetch_embedded(verify: bool) -> dict[str, Any]:
    folder = embedded_model_path()
    damage = damage_of(folder, verify=verify)
    if damage is not None:
        if folder.exists():
            print(f"The embedded model in the cache is damaged ({damage}): it is made anew.", file=sys.stderr)
        embedded_model_dir(verify=verify)
    if not (folder / INT8_FILE).exists() and _wants_int8():
        embedded_int8_folder()
    return {
        "name": EMBEDDED_NAME,
        "revision": None,
        "path": str(folder),
        "bytes": describe_cache()["bytes"],
        "fetched": damage is not None,
        "verified": verify or damage is not None,
    }


def _wants_int8() -> bool:
    from specviz.engine.lean_loading import why_general
    from specviz.engine.loader import choose_device

    return why_general(choose_device("auto")) is None


def _allowed_models(name: str) -> tuple[HubModel, ...]:
    """The models of a pair's name, or the one with that hub id; raises BadRequest with the choices."""
    by_id = {model.repo_id: model for pair in load_pairs() for model in models_of(pair)}
    return (by_id[name],) if name in by_id else models_of(find_pair(name))


def _hub_facts(model: HubModel, path: Path | None = None) -> dict[str, Any]:
    return {"name": model.repo_id, "revision": model.revision, "path": None if path is None else str(path)}


def _sentence(model: dict[str, Any]) -> str:
    if model["path"] is None:
        return f"{model['name']} is pinned to revision {model['revision']}."
    size = f" ({model['bytes'] / 1e6:.0f} MB)" if "bytes" in model else ""
    state = ", fetched just now" if model.get("fetched") else ""
    checked = ", every byte checked" if model.get("verified") else ""
    return f"{model['name']} is in {model['path']}{size}{state}{checked}."
