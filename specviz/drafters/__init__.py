"""The drafters, by kind. Adding one: write its file, add its line here, and its name to `config.DRAFTER_KINDS`."""

from __future__ import annotations

from collections.abc import Callable

from specviz.config import RunSettings
from specviz.drafters.base import Drafter
from specviz.drafters.draft_head import DraftHead
from specviz.drafters.draft_model import DraftModel
from specviz.drafters.early_exit import EarlyExit
from specviz.drafters.lookup_first import LookupFirst
from specviz.drafters.prompt_lookup import PromptLookup
from specviz.early_exit.exit_heads import ExitHeads
from specviz.engine.draft_head import DraftHeadModel
from specviz.engine.language_model import LanguageModel

Beside = LanguageModel | DraftHeadModel | ExitHeads  # what a drafter runs beside the target

# (target, what runs beside it or None, settings) -> Drafter
DRAFTERS: dict[str, Callable[[LanguageModel, Beside | None, RunSettings], Drafter]] = {
    "draft_model": DraftModel.for_run,
    "prompt_lookup": PromptLookup.for_run,
    "early_exit": EarlyExit.for_run,
    "draft_head": DraftHead.for_run,
}


def make_drafter(target: LanguageModel, draft: Beside | None, settings: RunSettings) -> Drafter | None:
    """The drafter that the settings name; None for plain decoding."""
    if settings.drafter == "none" or settings.most_draft_tokens == 0:
        return None
    drafter = DRAFTERS[settings.drafter](target, draft, settings)
    if settings.lookup_first and settings.drafter != "prompt_lookup":
        return LookupFirst.before(drafter, PromptLookup.for_run(target, draft, settings))
    return drafter
