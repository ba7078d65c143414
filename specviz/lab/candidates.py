"""The models of a bench before their weights are loaded: what cannot work is refused here, once for all engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specviz.engine.draft_facts import find_draft_folder
from specviz.errors import BadRequest
from specviz.lab.engines import Setup

if TYPE_CHECKING:
    from specviz.engine.pairing import Candidate


def inspect_target(setup: Setup) -> Candidate:
    """The target, if it can be one, with its vocabulary and its context; the draft, if there is one, fits it.

    Raises:
        BadRequest: a device, precision or model that there is not, or two models that do not fit together.
    """
    from specviz.engine.draft_files import read_draft, read_embedding
    from specviz.engine.draft_pairing import judge_draft
    from specviz.engine.loader import (
        DEVICES,
        DRAFT_PRECISIONS,
        DTYPES,
        TARGET_PRECISIONS,
        choose_device,
        choose_dtype,
        locate,
    )
    from specviz.engine.pairing import inspect_candidate, judge_pair

    _check_choice("device", setup.device, DEVICES)
    _check_choice("dtype", setup.dtype, TARGET_PRECISIONS)
    _check_choice("hf-dtype", setup.hf_dtype, DTYPES)
    _check_choice("draft-precision", setup.draft_precision, DRAFT_PRECISIONS)
    dtype = choose_dtype(setup.dtype, choose_device(setup.device))
    target = inspect_candidate(*locate(setup.target), dtype, setup.revision)
    if target.refusal is not None:
        raise BadRequest(target.refusal)
    if setup.draft is not None:
        if (folder := find_draft_folder(setup.draft)) is not None:
            verdict = judge_draft(target, read_draft(folder), read_embedding(locate(setup.target)[0]))
        else:
            verdict = judge_pair(target, inspect_candidate(*locate(setup.draft), dtype, setup.draft_revision))
        refused = [reason.text for reason in verdict.reasons if reason.level == "refused"]
        if refused:
            raise BadRequest(f"{' '.join(refused)} Choose another draft.")
    return target


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequest(f"{name} is {value!r}: choose one of {', '.join(choices)}.")
