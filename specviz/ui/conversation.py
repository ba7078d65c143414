"""The conversations that go on: what was said in each session, and the KV caches kept for its next turn."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specviz.engine.kv_memory import KVMemory
    from specviz.events import Message

MAX_CONVERSATIONS = 100
# Caches are large (about 46 kB a position for the embedded target in float32): only the latest talkers keep theirs.
MAX_KEPT_CACHES = 8


@dataclass(slots=True)
class Conversation:
    """One session's turns so far. `memory` belongs to the pair called `pair`."""

    history: list[Message] = field(default_factory=list)
    pair: str = ""
    memory: KVMemory | None = None

    def memory_for(self, pair: str) -> KVMemory:
        """The caches to use with `pair`; new ones when the models have changed."""
        from specviz.engine.kv_memory import KVMemory

        if self.memory is None or self.pair != pair:
            self.pair, self.memory = pair, KVMemory()
        return self.memory

    def note_turn(self, prompt: str, events: Iterable[dict[str, Any]]) -> None:
        """Keep a turn that was answered, also one that was stopped in the middle; a failed one leaves no trace."""
        finished = [event for event in events if event["type"] == "run_finished"]
        if finished:
            answer = finished[-1]["output_text"]
            self.history += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


class ConversationBook:
    """The conversation of each session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_session: OrderedDict[str, Conversation] = OrderedDict()

    def begin(self, session: str) -> Conversation:
        """A new conversation; the session's earlier one is forgotten."""
        with self._lock:
            self._by_session.pop(session, None)
        return self.of(session)

    def of(self, session: str) -> Conversation:
        """The session's conversation, new if there is none."""
        with self._lock:
            conversation = self._by_session.setdefault(session, Conversation())
            self._by_session.move_to_end(session)
            while len(self._by_session) > MAX_CONVERSATIONS:
                self._by_session.popitem(last=False)
            for silent in list(self._by_session.values())[:-MAX_KEPT_CACHES]:
                silent.memory = None
            return conversation

    def forget(self, session: str) -> None:
        """The session is gone."""
        with self._lock:
            self._by_session.pop(session, None)
