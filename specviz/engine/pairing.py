"""May these two work together? The tokenizers decide, then widths, contexts, caches and sizes."""

from __future__ import annotations

from specviz.engine.language_model import LanguageModel
from specviz.engine.tokens import Vocabulary
from specviz.errors import BadRequest


def tokenizer_differences(target: Vocabulary, draft: Vocabulary) -> list[str]:
    """Where two tokenizers differ, a sentence each; empty = a token id means the same to both."""
    target_ids, draft_ids = target.tokenizer.get_vocab(), draft.tokenizer.get_vocab()
    differences = []
    moved = [token for token in target_ids.keys() & draft_ids.keys() if target_ids[token] != draft_ids[token]]
    if moved:
        token = min(moved, key=target_ids.__getitem__)
        differences.append(
            f"{len(moved)} tokens have other ids, the first is {token!r}: {target_ids[token]} in the target, "
            f"{draft_ids[token]} in the draft"
        )
    for one, other, who in ((target_ids, draft_ids, "target"), (draft_ids, target_ids, "draft")):
        alone = sorted(one.keys() - other.keys(), key=one.__getitem__)
        if alone:
            differences.append(f"{len(alone)} tokens are only in the {who}'s vocabulary, the first is {alone[0]!r} (id {one[alone[0]]})")
    return differences


def refuse_unfit_draft(target_vocabulary: Vocabulary, draft_vocabulary: Vocabulary, draft: LanguageModel) -> None:
    """Raise BadRequest where a draft token id would not mean to the target what it means to the draft."""
    differences = tokenizer_differences(target_vocabulary, draft_vocabulary)
    if differences:
        raise BadRequest(
            f"{draft.name} has another tokenizer than the target ({'; '.join(differences)}): choose a draft of the same "
            "family, or drafter prompt_lookup or early_exit, which need none."
        )
