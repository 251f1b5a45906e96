"""Says in words what no compaction can free of a request, and what a person can do about it. All sizes are tokens."""

from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from elbowroom.context.budget import window_for

MOST_TOOLS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class FixedCost:
    """The parts of a request that no compaction can free, and the window they stand in; sizes are tokens.

    `tools` are the names and sizes of the tools that the model is told of, of which the first `own` are the agent's and
    the others the client's; slim ones would save `slim_saves`, 0 where they are slim already. `pinned` is the size
    of all pinned messages together, `material` names the files in them, and `reserve` is the room for the reply.
    """

    window: int
    reserve: int = 0
    system: int = 0
    tools: tuple[tuple[str, int], ...] = ()
    pinned: int = 0
    own: int = 0
    slim_saves: int = 0
    material: str = ""

    @property
    def all_tools(self) -> int:
        """Return the size of all tools together."""
        return sum(size for _, size in self.tools)

    @property
    def prompt(self) -> int:
        """Return the smallest size that the prompt can have."""
        return self.system + self.all_tools + self.pinned

    @property
    def total(self) -> int:
        """Return the smallest prompt and the room for the reply together."""
        return self.prompt + self.reserve

    @property
    def share(self) -> float:
        """Return the total as a share of the window; it is above 1 where the window is too small for it."""
        return self.total / self.window

    @property
    def has_many_of_agent(self) -> bool:
        """Tell whether most of the tools' size is that of the agent's own."""
        return 2 * sum(size for _, size in self.tools[: self.own]) > self.all_tools

    @property
    def is_tight(self) -> bool:
        """Tell whether less than half of the window is left for the conversation."""
        return self.total > self.window // 2


def notice_of(cost: FixedCost) -> str | None:
    """Return what a person should read about a fixed cost above half the window; None below that.

    The advice comes first, then what takes the room, the largest part first.
    """
    if not cost.is_tight:
        return None
    return (
        f"{_sentence(_ways(cost))} Before the conversation begins, {cost.total} of this model's "
        f"{cost.window} tokens ({cost.share:.0%}) are taken: {', '.join(items_of(cost))}."
    )


def short_notice_of(cost: FixedCost) -> str:
    """Return what makes the largest part smaller, and what is taken, in one line that a chat program shows whole."""
    if cost.tools and cost.all_tools >= max(cost.system, cost.pinned):
        best = "Give the agent fewer tools" if cost.has_many_of_agent else "Switch tools off in the client"
    else:
        best = "Shorten the system message" if cost.system > cost.pinned else "Send less text at once"
    return f"{best}: {cost.total:,} of {cost.window:,} tokens are taken before the chat begins."


def refusal_of(cost: FixedCost) -> str:
    """Return the error for a request that does not fit the window even without its history.

    After the advice come the words that clients look for.
    """
    return (
        f"{_sentence(_ways(cost))} This model's maximum context length is {cost.window} tokens, and "
        f"the request needs {cost.prompt}, however short the conversation is made: "
        f"{', '.join(items_of(cost, with_reply=False))}."
    )


def too_small_for(cost: FixedCost) -> str:
    """Return the error for a window that cannot even hold the system message and the tools.

    It has none of the words by which programs know a conversation that is too long: they would make that shorter and
    ask again, without end.
    """
    _, *ways = _ways(cost)
    return (
        f"{_sentence([f'load the model with {window_for(cost.prompt):,} tokens or more', *ways])} It is loaded with "
        f"{cost.window:,}, and before the conversation begins {cost.prompt:,} are needed: "
        f"{', '.join(items_of(cost, with_reply=False))}."
    )


def items_of(cost: FixedCost, *, with_reply: bool = True) -> list[str]:
    """Return the sizes of the parts in words, the largest part first; empty parts are left out."""
    items = [
        (cost.all_tools, _tools_in_words(cost.tools)),
        (cost.system, "the system message"),
        (cost.pinned, " with ".join(filter(None, ("messages that have to stay", cost.material)))),
        (cost.reserve if with_reply else 0, "room for the reply"),
    ]
    return [f"{size} by {words}" for size, words in sorted(items, key=itemgetter(0), reverse=True) if size]


def _tools_in_words(tools: tuple[tuple[str, int], ...]) -> str:
    largest = sorted(tools, key=itemgetter(1), reverse=True)[:MOST_TOOLS_NAMED]
    named = ", ".join(f"{name} {size}" for name, size in largest)
    if len(tools) == 1:
        return f"the tool {tools[0][0]}"
    if len(tools) <= MOST_TOOLS_NAMED:
        return f"{len(tools)} tools ({named})"
    return f"{len(tools)} tools (the largest: {named})"


SWITCH_OFF: Final = (
    "switch tools off in the client (Open WebUI: Builtin Tools, by `elbowroom connect open-webui --tools off`)"
)

BY_NAME: Final = (
    'set client_tools = "search" under [server] of the settings, or of the agent (the model is told of tools by name, '
    "and looks up those it needs)"
)


def _ways(cost: FixedCost) -> list[str]:
    ways = ["load the model with a larger context length"]
    if cost.system > max(cost.all_tools, cost.pinned):
        ways.append("shorten the system message")
    elif cost.pinned > cost.all_tools:
        ways.append("send less text at once")
    if cost.tools:
        ways.append("give the agent fewer tools" if cost.has_many_of_agent else SWITCH_OFF)
    if cost.tools and cost.slim_saves > 0:
        ways.append(f'set client_tools = "slim" (saves about {cost.slim_saves} tokens)')
    if len(cost.tools) - cost.own > 1 and not cost.has_many_of_agent:
        ways.append(BY_NAME)
    return ways


def _sentence(ways: list[str]) -> str:
    *first, last = ways
    sentence = f"{', '.join(first)}, or {last}." if first else f"{last}."
    return sentence[0].upper() + sentence[1:]
