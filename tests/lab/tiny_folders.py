"""Tiny models written to folders, as commands and worker processes want them."""

from __future__ import annotations

from pathlib import Path

from tests.tiny_models import tiny_draft_of, tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer


def save_tiny_pair(folder: Path) -> dict[str, str]:
    """{"target": folder, "draft": folder} of a tiny Llama and its noisy, shorter copy."""
    for role, model in (("target", tiny_model()), ("draft", tiny_draft_of())):
        model.save_pretrained(folder / role)
        byte_level_tokenizer().save_pretrained(folder / role)
    return {role: str(folder / role) for role in ("target", "draft")}
