"""The model hub, when there is one: which revision a repository has, and its files into the hub's own cache.

Only models of the allow-list `presets/pairs.toml` come this far, and of them only safetensors weights.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import BadRequest, SpecVizError
from specviz.presets import PRESETS_DIR, Pair

WANTED_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "merges.txt", "vocab.txt", "*.model")
UNWANTED_FILES = ("*/*",)  # copies in other formats lie in subfolders


class HubUnreachable(SpecVizError):
    """No hub answers from here."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub at a revision; None = its newest."""

    repo_id: str
    revision: str | None


def models_of(pair: Pair) -> tuple[HubModel, ...]:
    """The repositories that a pair needs; none for the embedded one."""
    if pair.is_embedded:
        return ()
    target = HubModel(pair.target, pair.target_revision)
    return (target, HubModel(pair.draft, pair.draft_revision)) if pair.draft else (target,)


def download_model(model: HubModel) -> Path:
    """The local folder of a repository's files, downloaded when they are missing; bars go to stderr.

    Raises:
        HubUnreachable, BadRequest: no hub, a gated or unknown repository, an unknown revision.
    """
    from huggingface_hub import snapshot_download

    with _explained_hub_errors(model.repo_id):
        folder = snapshot_download(
            model.repo_id,
            revision=model.revision,
            allow_patterns=list(WANTED_FILES),
            ignore_patterns=list(UNWANTED_FILES),
        )
    return Path(folder)


def read_revision(repo_id: str) -> str:
    """The commit that the repository's main branch is at now, read from the hub.

    Raises:
        HubUnreachable, BadRequest: as `download_model`, or the repository has no safetensors weights.
    """
    from huggingface_hub import HfApi

    with _explained_hub_errors(repo_id):
        info = HfApi().model_info(repo_id)
    if not any(file.rfilename.endswith(".safetensors") for file in info.siblings or ()):
        raise BadRequest(f"{repo_id} has no safetensors weights, and SpecViz loads no others: choose another model.")
    return info.sha


def pin_pair(pair: Pair, path: Path = PRESETS_DIR / "pairs.toml") -> tuple[HubModel, ...]:
    """Read the revisions of a pair from the hub and write them, with `verified = true`, into the pairs file."""
    if pair.is_embedded:
        raise BadRequest("The embedded pair is pinned by its sha256 and has no revision: name a hub pair.")
    pinned = tuple(HubModel(model.repo_id, read_revision(model.repo_id)) for model in models_of(pair))
    keys = ("target_revision", "draft_revision")
    lines = [f'{key} = "{model.revision}"' for key, model in zip(keys, pinned, strict=False)]
    try:
        text = with_pin(path.read_text(encoding="utf-8"), pair.name, ["verified = true", *lines])
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        raise SpecVizError(
            f"{path} cannot be written ({error.strerror}): add these lines to {pair.name!r} by hand: {'; '.join(lines)}."
        ) from error
    return pinned


def with_pin(text: str, name: str, lines: list[str]) -> str:
    """The text of a pairs file with the pair's `verified` and revision lines replaced, all else untouched."""
    blocks = re.split(r"(?m)^(?=\[\[pair\]\]$)", text)
    for index, block in enumerate(blocks):
        if re.search(rf'(?m)^name = "{re.escape(name)}"$', block):
            kept = re.sub(r"(?m)^(verified|target_revision|draft_revision) = .*\n", "", block).rstrip("\n")
            gap = "\n" if index < len(blocks) - 1 else ""
            blocks[index] = "\n".join([kept, *lines]) + "\n" + gap
            return "".join(blocks)
    raise BadRequest(f"The pairs file has no pair {name!r} to pin.")


@contextmanager
def _explained_hub_errors(repo_id: str) -> Iterator[None]:
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise BadRequest(
            f"{repo_id} is gated: accept its licence on the hub, log in with `hf auth login`, and try again."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise BadRequest(f"{repo_id} has no such revision any more: pin the pair again with `fetch --pin`.") from error
    except errors.RepositoryNotFoundError as error:
        raise BadRequest(f"The hub has no model {repo_id} that you may see: check the name and your login.") from error
    except Exception as error:  # the client's network errors share no base class across its versions
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise HubUnreachable(
            f"The model hub cannot be reached for {repo_id} ({reason}): connect to it, or use the embedded pair, "
            "which needs none."
        ) from error
