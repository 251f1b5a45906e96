"""What the simulated models of the golden journeys say: everything follows from the request alone."""

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from scripted_pruner import Body, in_deltas, is_prune_order, listed_groups, text_of, valid_plan

from elbowroom.demo import Script, Text, ToolCall

WORDS: Final = [
    "anchor",
    "basil",
    "copper",
    "delta",
    "ember",
    "fathom",
    "garnet",
    "harbor",
    "island",
    "jasper",
    "kelp",
    "lantern",
    "meadow",
    "nickel",
    "orchard",
    "pebble",
    "quarry",
    "rudder",
    "saffron",
    "timber",
    "umber",
    "velvet",
    "willow",
    "yarrow",
    "zephyr",
    "bridge",
    "candle",
    "drift",
    "engine",
    "ferry",
    "gravel",
    "hollow",
    "iron",
]
SAY: Final = re.compile(r"say (\d+) words")
USE: Final = re.compile(r"use (\w+) (\d+) times?(?: (\d+) at once)?")
NUMBERED: Final = re.compile(r"n(\d+)-\w+\s*$")
DELTA: Final = 60
"""Characters of each delta of an answer."""


def prose(seed: str, count: int) -> str:
    """Return so many words of sentences, the same for the same seed."""
    chance = random.Random(seed)
    words = [chance.choice(WORDS) for _ in range(count)]
    sentences = [" ".join(words[start : start + 11]).capitalize() + "." for start in range(0, count, 11)]
    return " ".join(sentences)


def told(body: Body) -> Script:
    """Return the model's next words: the rest of a numbered answer, a call that was asked for, or some prose."""
    messages = body["messages"]
    asked = next((at for at in range(len(messages) - 1, -1, -1) if _asks(messages[at])), None)
    if asked is None:
        return _words(prose(text_of(messages[-1])[-40:], 30))
    text = text_of(messages[asked])
    if (wanted := USE.search(text)) and body.get("tools"):
        name, times, at_once = wanted[1], int(wanted[2]), int(wanted[3] or 1)
        done = sum(len(message.get("tool_calls") or ()) for message in messages[asked:])
        offered = [tool["function"]["name"] for tool in body["tools"]]
        if done < times and name in offered:
            numbers = range(done, min(times, done + at_once))
            return Script(*(ToolCall(name, {"path": f"notes/{text[-6:]}-{number}.md"}) for number in numbers))
    if wanted := SAY.search(text):
        said = "".join(text_of(message) for message in messages[asked:] if message["role"] == "assistant")
        begun = int(found[1]) + 1 if (found := NUMBERED.search(said)) else 0
        rest = [f"n{number}-{WORDS[number % len(WORDS)]}" for number in range(begun, int(wanted[1]))]
        lines = (" ".join(rest[start : start + 12]) for start in range(0, len(rest), 12))
        return _words((" " if begun else "") + ".\n".join(lines))
    return _words(prose(text[-60:], 55))


def _asks(message: Body) -> bool:
    """Tell whether a message is one of the journey's own questions."""
    return message["role"] == "user" and text_of(message).rstrip().endswith(("?", "!"))


def _words(text: str) -> Script:
    return in_deltas(text, lambda: DELTA) if text else Script()


def faithful(body: Body) -> Script | str:
    """Return a plan that tells of every listed group."""
    return valid_plan(body)


def sloppy(body: Body) -> Script | str:
    """Return a plan that tells next to nothing."""
    return json.dumps({"retain": "", "summary": "Several things were discussed.", "keep": []})


def garbage(body: Body) -> Script | str:
    """Return what is no plan."""
    return "Sure! I will go on with the conversation now, as you like."


def empty(body: Body) -> Script | str:
    """Return a plan with nothing in it."""
    return json.dumps({"retain": "", "summary": "", "keep": []})


def inventing(body: Body) -> Script | str:
    """Return a plan full of things that nobody has said."""
    made_up = " ".join(f"src/made/up_{number}.py costs {number}7,{number}00 EUR." for number in range(1, 9))
    return json.dumps({"retain": made_up, "summary": made_up, "keep": []})


def calling(body: Body) -> Script | str:
    """Call a tool instead of answering."""
    return Script(ToolCall("search", {"q": "plan"}))


def cut_off(body: Body) -> Script | str:
    """Break off in the middle of a plan."""
    return Script(Text(valid_plan(body)[:80], whole=True), finish_reason="length")


def keeping(body: Body) -> Script | str:
    """Keep some of the listed groups word for word."""
    groups = list(listed_groups(body))
    return json.dumps({"retain": "Keep it short.", "summary": "The beginning was told.", "keep": groups[::3]})


def rewriting(body: Body) -> Script | str:
    """Return a whole conversation in place of a plan."""
    kept = [
        {"role": "user", "content": "Earlier we spoke of ferries."},
        {"role": "assistant", "content": "Yes, and of tides."},
    ]
    return json.dumps(
        {"prunedConversation": kept, "summary": "Ferries and tides.", "originalTokens": 9, "prunedTokens": 1}
    )


def late_plan(body: Body) -> Script | str:
    """Answer a first order with garbage and a second, which names the reason, with a plan."""
    return (
        valid_plan(body)
        if "answer" in text_of(body["messages"][-1])[:400].lower() and "before" in text_of(body["messages"][-1])
        else "No."
    )


PRUNERS: Final[Mapping[str, Callable[[Body], Script | str]]] = {
    "faithful": faithful,
    "sloppy": sloppy,
    "garbage": garbage,
    "empty": empty,
    "inventing": inventing,
    "calling": calling,
    "cut off": cut_off,
    "keeping": keeping,
    "rewriting": rewriting,
    "late": late_plan,
}


def brain(pruner: str) -> Callable[[Body], Script | str | None]:
    """Return what a simulated LM Studio answers to each request, with this kind of pruning agent."""
    prune = PRUNERS[pruner]

    def answer(body: Body) -> Script | str | None:
        if is_prune_order(body):
            plan = prune(body)
            return Script(Text(plan, whole=True)) if isinstance(plan, str) else plan
        last = text_of(body["messages"][-1])
        if "save_memory" in last and "replaced by a short summary" in last:
            done = any(message.get("tool_calls") for message in body["messages"][-3:])
            return (
                Script("NO_REPLY")
                if done
                else Script(ToolCall("save_memory", {"text": "The ferry is called Old Marta."}))
            )
        if "title" in last.lower() and "### Task" in last:
            return Script(Text('{"title": "Ferries and tides"}', whole=True))
        return told(body)

    return answer


def named(tool: str, **properties: Any) -> dict[str, Any]:
    """Return a client's tool."""
    schema = {"type": "object", "properties": properties or {"path": {"type": "string"}}, "required": ["path"]}
    return {
        "type": "function",
        "function": {"name": tool, "description": f"Does {tool} on a path.", "parameters": schema},
    }
