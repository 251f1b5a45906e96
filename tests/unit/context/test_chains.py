"""The memory of chains: whatever comes next, its chain is the one that is made from all messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from ledger_chats import ANSWER, ASK, THANKS, call, chain_of, system
from random_histories import Json, always_the_same, histories

from elbowroom.context.chains import BACK, MOST_BYTES, Chains
from elbowroom.context.ledger import Chain

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "Nothing."}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CHANGES: dict[str, Callable[[list[Json], int], list[Json]]] = {
    "the same again": lambda history, at: history,
    "the last question changed": lambda history, at: [*history[:-1], {**ASK, "content": f"Really? {at}"}],
    "the next turn": lambda history, at: [*history, ANSWER, {**THANKS, "content": f"Thanks {at}."}],
    "a step with a tool": lambda history, at: [*history, {"role": "assistant", "tool_calls": [call()]}, RESULT],
    "a picture": lambda history, at: [*history, {"role": "user", "content": [PICTURE]}],
    "gone back": lambda history, at: history[: at % (len(history) + 1)],
    "edited inside": lambda history, at: edited(history, at),
    "a message of the system inside": lambda history, at: [*history[:at], system(), *history[at:]],
    "other numbers": lambda history, at: [*history, {"role": "user", "content": [{"n": (1, 1.0, True, -0.0)[at % 4]}]}],
    "the same but for a number": lambda history, at: renumbered(history, at),
}


def edited(history: list[Json], at: int) -> list[Json]:
    """Return a history with another text in one place."""
    place = at % max(1, len(history))
    return [*history[:place], {**ASK, "content": f"edited {at}"}, *history[place + 1 :]]


def renumbered(history: list[Json], at: int) -> list[Json]:
    """Return a history in which a number in the last message is an equal one of another type, where it has one."""
    if history and isinstance(parts := history[-1].get("content"), list) and parts and "n" in parts[0]:
        return [*history[:-1], {"role": "user", "content": [{"n": (True, 1, 1.0)[at % 3]}]}]
    return history


@given(
    histories(),
    st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 40), st.sampled_from(["ada", "bob"]))),
)
@always_the_same
def test_chain_is_that_of_the_whole_history(history: list[Json], steps: list[tuple[str, int, str]]) -> None:
    """Turns, edits, regenerations, branches, pictures, tools and other owners: keys and open calls are the same."""
    chains = Chains(most_bytes=12_000)
    for change, at, owner in [("the same again", 0, "ada"), *steps]:
        history = json.loads(json.dumps(CHANGES[change](history, at)))
        remembered, whole = chains.of(owner, "coder", history), Chain.of(owner, "coder", history)
        assert remembered == whole
        for more in (RESULT, {**RESULT, "tool_call_id": ""}, ANSWER):
            assert remembered.followed_by(more) == whole.followed_by(more)
            assert remembered.continued_by(history, more) == whole.continued_by(history, more)
        assert chains.size <= 12_000


def count_hashed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note every message that is hashed from now on."""
    hashed: list[Any] = []
    form_of = Chain.of.__globals__["form_of"]

    def noted(message: Any, answered: Any = None) -> bytes:
        hashed.append(message)
        return bytes(form_of(message, answered))

    monkeypatch.setitem(Chain.of.__globals__, "form_of", noted)
    return hashed


def test_only_new_messages_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A next turn hashes its answer and its question, a last question that was changed only itself."""
    chains, history = Chains(), [ASK, ANSWER] * 100 + [ASK]
    chains.of("ada", "coder", history)
    hashed = count_hashed(monkeypatch)
    following = json.loads(json.dumps([*history, ANSWER, THANKS]))
    assert chains.of("ada", "coder", following) == chains.of("ada", "coder", [*history, ANSWER, THANKS])
    assert hashed == [ANSWER, THANKS]
    chains.of("ada", "coder", [*following[:-1], {**ASK, "content": "Really?"}])
    assert len(hashed) == 3


def test_no_more_bytes_are_kept_than_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories used last are kept, within the limit; one that is larger than all of it is not kept."""
    chains = Chains(most_bytes=100_000)
    for number in range(50):
        chains.of("ada", "coder", [{**ASK, "content": f"{number} {'x' * 10_000}"}])
    assert 2 <= len(chains) <= 4
    assert 0 < chains.size <= 100_000
    chains.of("ada", "coder", [{**ASK, "content": "y" * 100_000}])
    assert 2 <= len(chains) <= 4
    hashed = count_hashed(monkeypatch)
    chains.of("ada", "coder", [{**ASK, "content": f"49 {'x' * 10_000}"}])
    assert hashed == []


def test_a_history_that_grew_by_more_than_is_looked_back_is_made_anew() -> None:
    """The keys are the same all the same."""
    chains = Chains(most_bytes=MOST_BYTES)
    chains.of("ada", "coder", [ASK])
    longer = [ASK, *[ANSWER, THANKS] * BACK]
    assert chains.of("ada", "coder", longer) == chain_of(longer)
    assert len(chains) == 2
