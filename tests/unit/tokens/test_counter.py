"""TokenCounter: the best way that works, what it learns from usage, and the alarm."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from elbowroom.tokens.anchoring import Usage
from elbowroom.tokens.count import CannotCount, Counter, TokenCount
from elbowroom.tokens.counter import TokenCounter, Truncation, _loaded
from elbowroom.tokens.errors import ConversationNotContinuable

Messages = Sequence[Mapping[str, Any]]


class Letters:
    """A way to count by the letters of all contents; `problem` is raised instead where there is one."""

    def __init__(self, problem: Exception | None = None, added: int = 0) -> None:
        self.problem = problem
        self.added = added
        self.asked = 0

    async def count_text(self, text: str) -> TokenCount:
        self.asked += 1
        if self.problem:
            raise self.problem
        return TokenCount(len(text) + self.added, "exact")

    async def count_chat(self, messages: Messages, tools: Messages, arguments: Mapping[str, Any]) -> TokenCount:
        return await self.count_text("".join(str(message.get("content")) for message in messages))


def user(text: str) -> list[dict[str, Any]]:
    """Return a chat of one message."""
    return [{"role": "user", "content": text}]


def counter(*ways: Counter, model: str = "llama-3-8b") -> TokenCounter:
    """Return a counter with these ways."""
    return TokenCounter(model, "llama", ways)


async def seen(counting: TokenCounter, chat: Messages, reported: int) -> Truncation | None:
    """Count a chat and let the engine report this size for it."""
    count = await counting.count_chat(chat)
    return await counting.observe(chat, (), {}, count, Usage(reported))


async def test_the_first_way_that_works() -> None:
    """A way that cannot count gives way to the next; one that works keeps the rest unasked."""
    broken, working, spare = Letters(CannotCount("broken")), Letters(), Letters()
    counting = counter(broken, working, spare)
    assert await counting.count_chat(user("abc")) == TokenCount(3, "exact")
    assert await counting.count_text("ab") == TokenCount(2, "exact")
    assert (broken.asked, working.asked, spare.asked) == (2, 2, 0)


async def test_each_complaint_once(caplog: pytest.LogCaptureFixture) -> None:
    """A way that fails for every request is told of once, by the model's name; another reason is another warning."""
    way = Letters(CannotCount("the file is broken"))
    counting = counter(way, Letters())
    for _ in range(5):
        await counting.count_chat(user("abc"))
    way.problem = CannotCount("the file has gone")
    await counting.count_text("abc")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "Counting for llama-3-8b falls back to the next way: the file is broken",
        "Counting for llama-3-8b falls back to the next way: the file has gone",
    ]


async def test_what_the_engine_refuses_too_is_passed_on() -> None:
    """An error that the engine would give as well is no reason to count in another way."""
    with pytest.raises(ConversationNotContinuable):
        await counter(Letters(ConversationNotContinuable("no")), Letters()).count_chat(user("abc"))


async def test_a_family_always_counts() -> None:
    """Without any way that works there is a count, marked as what it is, with a bound; an empty text is nothing."""
    counting = counter(Letters(CannotCount("broken")))
    count = await counting.count_chat(user("Hello there, how are you today?" * 20))
    assert count.method in ("family", "estimate")
    assert 0 < count.error_bound < count.tokens
    assert (await counting.count_text("")).tokens == 0
    stream = await counting.stream()
    stream.feed("Hello")
    assert stream.value == 1


async def test_a_family_is_loaded_once() -> None:
    """Requests that come while its vocabulary is loaded, which takes 60 MB, wait for it."""
    _loaded.cache_clear()
    streams = await asyncio.gather(*(counter().stream() for _ in range(4)))
    assert len({id(stream.tokenizer) for stream in streams}) == 1


@pytest.mark.parametrize("model", ["", "???", "x" * 10_000, "publisher/unknown-9000", "日本語", "llama-3\x00"])
async def test_every_name_has_a_family(model: str) -> None:
    """A model of any name is counted."""
    assert (await counter(model=model).count_chat(user("Hello"))).tokens > 0


async def test_one_answer_makes_an_estimate_sure() -> None:
    """The same conversation takes what was reported; grown by a message, only that message is estimated."""
    counting = counter()
    chat = user("word " * 400)
    before = await counting.count_chat(chat)
    assert await seen(counting, chat, before.tokens + 50) is None
    again = await counting.count_chat(chat)
    assert (again.tokens, again.error_bound) == (before.tokens + 50, 0)
    grown = await counting.count_chat([*chat, {"role": "assistant", "content": "Yes."}, *user("And?")])
    assert again.tokens < grown.tokens < again.tokens + 40
    assert grown.error_bound < before.error_bound
    other = await counting.count_chat(user("word " * 399))
    assert other.learned == 0


async def test_estimates_raise_no_alarm() -> None:
    """Only an exact count can tell that a prompt was cut."""
    assert await seen(counter(), user("word " * 2000), 10) is None


@pytest.mark.parametrize(("counted", "tolerated"), [(100, 64), (1280, 64), (1281, 64), (2000, 100), (100_000, 5000)])
async def test_the_threshold_of_the_alarm(counted: int, tolerated: int) -> None:
    """Up to 5 % or 64 tokens less, whichever is more, is no alarm; one token beyond is."""
    for reported, cut in (
        (counted, None),
        (counted + 500, None),
        (counted - tolerated, None),
        (counted - tolerated - 1, Truncation(counted, counted - tolerated - 1)),
    ):
        assert await seen(counter(Letters()), user("x" * counted), reported) == cut


async def test_a_constant_difference_is_no_truncation() -> None:
    """What is learned in two answers is part of the count; a cut is measured against it."""
    counting = counter(Letters())
    for size in (1000, 1100):
        assert await seen(counting, user("x" * size), size + 40) is None
    assert await counting.count_chat(user("x" * 1200)) == TokenCount(1240, "exact", 0, 40)
    assert await seen(counting, user("x" * 1200), 1240 - 64) is None
    assert await seen(counting, user("x" * 1200), 1240 - 65) == Truncation(1240, 1175)
    assert (await counting.count_chat(user("x" * 1300))).tokens == 1340


async def test_truncation_is_not_learned() -> None:
    """An engine that cuts to the same size again and again changes no count."""
    counting = counter(Letters())
    for size in (1000, 1100, 1200):
        assert await seen(counting, user("x" * size), size - 500) == Truncation(size, size - 500)
    assert await counting.count_chat(user("x" * 1000)) == TokenCount(1000, "exact")


async def test_each_template_argument_has_its_own_difference() -> None:
    """What was learned with thinking switched off says nothing about thinking switched on."""
    counting = counter(Letters())
    chat = user("x" * 900)
    for size in (1000, 1100):
        chat = user("x" * size)
        count = await counting.count_chat(chat, (), {"enable_thinking": False})
        await counting.observe(chat, (), {"enable_thinking": False}, count, Usage(size + 4))
    assert (await counting.count_chat(chat, (), {"enable_thinking": False})).learned == 4
    assert (await counting.count_chat(chat)).learned == 0


async def test_counts_never_go_below_zero() -> None:
    """Whatever was learned from other prompts, no prompt takes less than nothing."""
    counting = counter(Letters())
    for size in (1000, 1100):
        await seen(counting, user("x" * size), size - 60)
    assert (await counting.count_chat(user("x"))).tokens == 0


async def test_many_at_once() -> None:
    """Counts by family for many clients at the same time are those of one after the other."""
    counting = counter()
    chats = [user(f"word {number} " * number) for number in range(1, 30)]
    alone = [await counting.count_chat(chat) for chat in chats]
    together = await asyncio.gather(*(counting.count_chat(chat) for chat in chats))
    assert together == alone


@pytest.mark.parametrize("model", ["phi-3.5-mini-instruct", "c4ai-command-r-08-2024", "gemma-2-9b-it"])
async def test_tools_that_templates_drop_are_not_counted(model: str) -> None:
    """Tools cost nothing where the family's templates leave them out, unless the engine describes them by itself."""
    tool = {"type": "function", "function": {"name": "read_note", "description": "Read a note. " * 50}}
    chat = user("What is in my notes?")
    plain = await TokenCounter(model, None).count_chat(chat)
    assert (await TokenCounter(model, None).count_chat(chat, [tool])).tokens == plain.tokens
    described = await TokenCounter(model, None, describes_tools=True).count_chat(chat, [tool])
    assert described.tokens > 3 * plain.tokens


async def test_bound_is_that_of_what_is_new() -> None:
    """After an answer only the words since then are uncertain, as far as their scripts make them so."""
    counting = TokenCounter("llama-3-8b", None)
    chat = user("服务器在凌晨三点重新启动，之后所有的连接都恢复了正常。" * 80)
    first = await counting.count_chat(chat)
    await counting.observe(chat, (), {}, first, Usage(first.tokens + 20, 5), answer="好的。")
    later = [*chat, {"role": "assistant", "content": "好的。"}, *user("谢谢你的回答。")]
    assert 0 < (await counting.count_chat(later)).error_bound < first.error_bound / 10
