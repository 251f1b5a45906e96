"""A refusal is remembered for a minute after it was worked out, and no request makes that longer."""

from typing import Any

from elbowroom.agents.refusals import MOST_KEPT, SECONDS, Refusals
from elbowroom.errors import ContextOverflow, WindowTooSmall


class Prompt:
    """A prompt by its name; it stands for one that a request asks for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = ("", "lmstudio", "m")

    async def key(self, *, is_final: bool) -> str:
        """Return its key, another where it is not final."""
        return f"{self.name} {is_final}"


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Return its time in seconds."""
        return self.now


async def test_for_a_minute() -> None:
    """The third time within a minute comes from memory, until the minute is over; then it is worked out twice anew."""
    clock = Clock()
    refusals, prompt = Refusals(clock), Prompt("a")
    asked: Any = prompt
    error = WindowTooSmall("Load the model with more.", window=10, prompt_tokens=20)
    for moment in (0.0, 10.0):
        clock.now = moment
        assert await refusals.known(asked) is None
        await refusals.note(asked, error)
    for moment, left in ((20.0, 50), (69.0, 1)):
        clock.now = moment
        known = await refusals.known(asked)
        assert isinstance(known, WindowTooSmall)
        assert (known.window, known.prompt_tokens, known.retry_after) == (10, 20, left)
    assert error.retry_after is None
    clock.now = 10.0 + SECONDS
    assert await refusals.known(asked) is None
    await refusals.note(asked, error)
    assert await refusals.known(asked) is None


async def test_only_the_same() -> None:
    """Another prompt of the same person is not known, nor one that may fit once its history is shorter."""
    refusals = Refusals(Clock())
    asked: Any = Prompt("a")
    other: Any = Prompt("b")
    for _ in range(2):
        await refusals.note(asked, ContextOverflow("Too long.", window=10, prompt_tokens=20))
    assert await refusals.known(other) is None
    assert await refusals.known(asked) is not None


async def test_memory_is_bounded() -> None:
    """The oldest are forgotten beyond a number."""
    refusals = Refusals(Clock())
    error = ContextOverflow("Too long.", window=10, prompt_tokens=20)
    prompts: list[Any] = [Prompt(str(number)) for number in range(MOST_KEPT + 1)]
    for asked in prompts:
        for _ in range(2):
            await refusals.note(asked, error)
    assert await refusals.known(prompts[0]) is None
    assert await refusals.known(prompts[-1]) is not None
