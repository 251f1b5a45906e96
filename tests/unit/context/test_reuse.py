"""Why a prompt could not go on after the one before it: the reason, the place, the tokens."""

from typing import Any, Final

import pytest

from elbowroom.context.reuse import (
    PROMPTS_KEPT,
    Kept,
    SentPrompt,
    SentPrompts,
    Talk,
    alike_in_cache,
    change_between,
    loss_of,
    talk_of,
)

Body = dict[str, Any]
SYSTEM: Final = {"role": "system", "content": "Be kind."}
ASKED: Final = {"role": "user", "content": "Hello"}
ANSWERED: Final = {"role": "assistant", "content": "Good day."}
FIRST: Final[Body] = {"messages": [SYSTEM, ASKED]}
SEARCH = {"type": "function", "function": {"name": "search_conversation"}}
NEXT: Final[Body] = {"messages": [SYSTEM, ASKED, ANSWERED, ASKED]}
TALK: Final = Talk(["talk"], ["talk"])
OTHER: Final = Talk(["other"], ["other"])


def prompt(body: Body = FIRST, *, tokens: int = 1000, **fields: Any) -> SentPrompt:
    """Return the digests of a body."""
    given = {"model": "lmstudio/small", "window": 8192, "arguments": {}, **fields}
    return SentPrompt.of(body=body, tokens=tokens, **given)


def kept(now: SentPrompt, *, before: SentPrompt | None = None, others: int = 0) -> Kept:
    """Return what is known of a prompt that comes after so many of other conversations."""
    prompts = SentPrompts()
    prompts.keep(TALK, before or prompt())
    for _ in range(others):
        prompts.keep(OTHER, prompt({"messages": [{"role": "user", "content": "Something else"}]}))
    return prompts.keep(TALK, now)


@pytest.mark.parametrize(
    ("reason", "shared", "now"),
    [
        (None, 2, prompt(NEXT)),
        (None, 2, prompt({**NEXT, "temperature": 0.3, "max_tokens": 12})),
        ("system_changed", 0, prompt({"messages": [{**SYSTEM, "content": "Be short."}, *NEXT["messages"][1:]]})),
        ("system_changed", 0, prompt({"messages": NEXT["messages"][1:]})),
        ("tools_changed", 0, prompt({**NEXT, "tools": [SEARCH]})),
        ("messages_changed", 1, prompt({"messages": [SYSTEM, {**ASKED, "content": "Goodbye"}, ANSWERED]})),
        ("messages_changed", 1, prompt({"messages": [SYSTEM]})),
        ("compacted", 1, prompt({"messages": [SYSTEM, {**ASKED, "content": "A summary"}]}, compacted=("key", 0))),
        ("compacted", 0, prompt({**NEXT, "tools": [SEARCH]}, compacted=("key", 0))),  # elbowroom's, which comes with it
        ("compacted", 0, prompt({"messages": [{**SYSTEM, "content": "Memories"}, ASKED]}, compacted=("key", 0))),
        ("model_changed", 0, prompt(NEXT, model="lmstudio/large")),
        ("model_changed", 0, prompt(NEXT, model="qwen@q8_0")),
        ("machine_changed", 0, prompt(NEXT, model="lmstudio@10.0.0.2:1234/small")),
        ("arguments_changed", 2, prompt(NEXT, arguments={"enable_thinking": False})),
        ("engine_forgot", 0, prompt(NEXT, window=4096)),
    ],
)
def test_what_has_changed(reason: str | None, shared: int, now: SentPrompt) -> None:
    """Each change has its reason, and the number of messages before it."""
    change = change_between(prompt(), now)
    assert (change.reason, change.shared) == (reason, shared)


def test_what_a_template_never_shows_changes_nothing() -> None:
    """Clients leave thoughts out, send fields in another order, and null for a text that is empty."""
    call = {"id": "a", "type": "function", "function": {"name": "ring", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Hm."}
    echoed = {"tool_calls": [call], "content": None, "role": "assistant"}
    assert change_between(prompt({"messages": [ASKED, said]}), prompt({"messages": [ASKED, echoed]})).reason is None


def test_no_value_is_too_deep() -> None:
    """What is nested more deeply than can be compared counts as the same."""
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    body, arguments = {"messages": [{"role": "user", "content": deep}], "tools": deep}, {"deep": deep}
    assert change_between(prompt(body, arguments=arguments), prompt(body, arguments=arguments)).reason is None


@pytest.mark.parametrize(
    ("cached", "slots", "others", "may_lack"),
    [
        (1000, 1, 9, False),
        (980, 1, 0, False),
        (900, 1, 0, True),
        (None, 1, 0, False),
        (None, 1, 1, True),
        (None, 2, 1, False),
        (None, 2, 2, True),
    ],
)
def test_when_something_may_lack(cached: int | None, slots: int, others: int, may_lack: bool) -> None:
    """The engine's own word counts; where it says nothing, so many others as it has slots have taken its place."""
    assert kept(prompt(NEXT, tokens=1100), others=others).may_lack(cached, slots) is may_lack


def test_nothing_is_known_of_a_first_prompt() -> None:
    """There is nothing that it could have lost."""
    assert not SentPrompts().keep(TALK, prompt()).may_lack(0, 1)


@pytest.mark.parametrize(
    ("tokens", "cached", "lost", "seconds"),
    [(1100, 100, 900, 9.0), (1100, 990, None, None), (300, 100, 200, 10.0), (1100, 0, 1000, 10 * 1000 / 1100)],
)
def test_how_much_is_lost(tokens: int, cached: int, lost: int | None, seconds: float | None) -> None:
    """Of the prompt before as much as the new one could use, and the time of reading that this has taken."""
    found = kept(prompt(NEXT, tokens=tokens))
    assert found.before is not None
    change = change_between(found.before, found.now)
    loss = loss_of(found, change, cached, is_measured=True, seconds=10.0)
    assert (loss.tokens if loss else None) == lost
    assert (loss.seconds if loss else None) == (None if seconds is None else pytest.approx(seconds))
    assert loss is None or loss.reason == "engine_forgot"


def test_what_another_conversation_has_left() -> None:
    """After another conversation the engine has what both begin with, which is where others share a system prompt."""
    prompts = SentPrompts()
    prompts.keep(TALK, prompt())
    prompts.keep(OTHER, prompt({"messages": [SYSTEM, ANSWERED]}))
    found = prompts.keep(TALK, prompt(NEXT))
    assert found.before is not None
    change = change_between(found.before, found.now)
    assert alike_in_cache(found, change) == 1
    loss = loss_of(found, change, 0, is_measured=False, seconds=None)
    assert loss is not None
    assert (loss.reason, loss.told) == (
        "other_request",
        "about 1,000 tokens read again: another request was in between",
    )
    prompts.passed("lmstudio/small")
    again = prompts.keep(TALK, prompt(NEXT))
    assert alike_in_cache(again, change) == 0, "what a task has left is not known"


def test_a_new_chat_is_found_by_its_id_alone() -> None:
    """Many chats begin with the same words; an older one is known by them where its client gives it no lasting id."""
    prompts, chat = SentPrompts(), [SYSTEM, ASKED]
    prompts.keep(talk_of("ada", "", "conv_1", chat), prompt())
    assert prompts.keep(talk_of("ada", "", "conv_2", chat), prompt()).before is None
    longer = [{**SYSTEM, "content": "Be short."}, ASKED, ANSWERED, ASKED]
    assert prompts.keep(talk_of("ada", "", "conv_3", longer), prompt()).before is not None
    assert prompts.keep(talk_of("bob", "", "conv_4", longer), prompt()).before is None


def test_two_threads_of_one_session() -> None:
    """A program that asks for two tasks under one name is compared with the task of the same first question."""
    prompts = SentPrompts()
    other = {"role": "user", "content": "Search the house."}
    first = prompts.keep(talk_of("", "session", "conv_1", [ASKED, ANSWERED]), prompt()).now
    prompts.keep(talk_of("", "session", "conv_1", [other, ANSWERED]), prompt({"messages": [other]}))
    found = prompts.keep(talk_of("", "session", "conv_1", [ASKED, ANSWERED, ASKED]), prompt(NEXT))
    assert found.before is first
    assert found.others == 1


def test_memory_is_bounded() -> None:
    """Only the conversations used last are remembered."""
    prompts = SentPrompts()
    for number in range(PROMPTS_KEPT + 1):
        prompts.keep(Talk([number], [number]), prompt())
    assert prompts.keep(Talk([0], [0]), prompt()).before is None
    assert prompts.keep(Talk([PROMPTS_KEPT], [PROMPTS_KEPT]), prompt()).before is not None
