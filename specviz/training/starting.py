"""Going on with a draft that is trained already: more text, another day, another machine."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from specviz.engine.draft_files import DraftFile
from specviz.errors import BadRequest
from specviz.training.students import HeadStudent, Student
from specviz.training.teacher import Teacher

KEPT = ("data", "plan", "steps", "started_from")  # of what a draft's facts say of its training


def refuse_other_start(
    start: DraftFile, teacher: Teacher, kind: str, feature_layers: tuple[int, ...], num_layers: int
) -> None:
    """
    Raises:
        BadRequest: a draft of another target, kind or shape.
    """
    facts = start.facts
    if facts.kind != kind:
        raise BadRequest(f"start_from is {facts.name}, a {facts.kind}, and kind is {kind!r}: name a {kind}.")
    start.refuse_other_target(teacher.embedding, teacher.model.num_layers, teacher.model.name)
    if kind == "draft_head" and tuple(facts.feature_layers) != feature_layers:
        own = ",".join(map(str, facts.feature_layers))
        raise BadRequest(f"start_from is {facts.name}, which reads the layers {own}: give --feature-layers {own}.")
    if kind == "draft_model" and facts.num_layers != num_layers:
        raise BadRequest(
            f"start_from is {facts.name}, which has {facts.num_layers} layers: give as many with --layers."
        )


@torch.no_grad()
def start_weights(student: Student, start: DraftFile) -> None:
    """Give a student the weights of a draft, as they are in its file."""
    if isinstance(student, HeadStudent):
        from specviz.engine.draft_loading import head_network

        student.module.load_state_dict(head_network(start).state_dict())
        return
    from specviz.engine.draft_modules import full_width_llama

    whole = full_width_llama(start, torch.zeros(1, start.facts.hidden), torch.float32, torch.zeros(1, 1))
    own = {name: tensor for name, tensor in whole.model.state_dict().items() if name != "embed_tokens.weight"}
    student.module.load_state_dict(own)


def history(start: DraftFile) -> dict[str, Any]:
    """What a draft was made of, for the facts of the one that goes on from it (JSON-plain)."""
    trained = start.facts.trained
    return {"name": start.facts.name, "weights_sha256": weights_sha256(start)} | {
        name: trained[name] for name in KEPT if name in trained
    }


def weights_sha256(start: DraftFile) -> str:
    digest = hashlib.sha256()
    for name in sorted(start.tensors):
        digest.update(name.encode() + start.tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
