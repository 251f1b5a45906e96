"""Conversations that use everything a chat template may have to render, fixed ones and random ones."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from elbowroom.tokens.templates.template import ChatTemplate

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

WEATHER: Final[Json] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place & <time>",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": 'The "place", such as 東京'},
                "days": {"type": "integer", "enum": [1, 2, 3]},
            },
            "required": ["place"],
        },
    },
}
SEARCH: Final[Json] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search notes",
        "parameters": {
            "type": "object",
            "properties": {
                "q": {"type": "array", "items": {"type": "string"}},
                "deep": {"type": "boolean", "default": False},
            },
        },
    },
}
TOOLS: Final = (WEATHER, SEARCH)
TEXTS: Final = (
    "Hello there",
    "You are terse & kind.",
    "  space \n around \n",
    "今日の天気は。日本語で答えて。",
    "🎉 👩\u200d👩\u200d👧 Grüße",
    "<b>&amp;\"'</b> {{ 7 * 7 }} {% raw %}",
    "<think>\nabc\n</think>\n\nanswer",
    "",
)


@dataclass(frozen=True, slots=True)
class Chat:
    """The body of a chat request as far as templates see it."""

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] = ()
    arguments: Json = field(default_factory=dict)


def system(text: str = "You are terse & kind.") -> Json:
    """Return a system message."""
    return {"role": "system", "content": text}


def user(text: str | list[Json] = "What's the weather?") -> Json:
    """Return a user message."""
    return {"role": "user", "content": text}


def answer(text: str | list[Json] | None = "Hi! How can I help?", **more: Any) -> Json:
    """Return an assistant message."""
    return {"role": "assistant", "content": text, **more}


def call(arguments: Json | str, name: str = "get_weather", number: int = 1) -> Json:
    """Return a tool call, its arguments as JSON text."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": text}}


def result(text: str | list[Json] = "sunny, 21 °C", number: int = 1) -> Json:
    """Return a tool's result."""
    return {"role": "tool", "tool_call_id": f"call0000{number}", "content": text}


def parts(*texts: str) -> list[Json]:
    """Return texts as content parts."""
    return [{"type": "text", "text": text} for text in texts]


PLACE: Final = {"place": "Tōkyō <&'>", "days": 2}
MIXED: Final = {"q": ["a", "b"], "deep": True, "x": None, "f": 1.5}
NUMBERS: Final = (
    '{"a": 1.0, "b": 1e20, "c": 1234567890123, "d": 0.1, "e": "\\u00e9\\n\\"/", "f": [], "g": {}, "h": [1, [2]]}'
)
CALLED: Final = answer("", tool_calls=[call(PLACE)])
PARALLEL: Final = answer("Let me look.", tool_calls=[call(PLACE), call(MIXED, "search", 2)])
THOUGHT: Final = answer("42 it is.", reasoning_content="Hmm, think\nhard.")
THOUGHT_CALL: Final = answer("", reasoning_content="I need a tool.", tool_calls=[call(PLACE)])
JSON_RESULT: Final = {**result('{"t": 21.5, "ok": true, "n": null}'), "name": "get_weather"}

CHATS: Final = {
    "plain": Chat((user(),)),
    "system": Chat((system(), user())),
    "turns": Chat((system(), user(), answer(), user())),
    "many turns": Chat((user(), answer(), user(), answer(), user())),
    "tools": Chat((system(), user()), TOOLS),
    "a tool without system": Chat((user(),), (WEATHER,)),
    "call pending": Chat((system(), user(), CALLED, result()), TOOLS),
    "call done": Chat((system(), user(), CALLED, result(), answer(), user()), TOOLS),
    "JSON result": Chat((user(), CALLED, JSON_RESULT, answer(), user()), TOOLS),
    "two rounds": Chat(
        (user(), CALLED, result(), answer(None, tool_calls=[call({}, "search", 2)]), result("-", 2), answer(), user()),
        TOOLS,
    ),
    "parallel calls": Chat((system(), user(), PARALLEL, result(), result("no\n result ", 2), answer(), user()), TOOLS),
    "parallel pending": Chat((user(), PARALLEL, result("no\n result ", 2), result()), TOOLS),
    "no content": Chat((user(), {"role": "assistant", "tool_calls": [call({})]}, result(), answer(), user()), TOOLS),
    "calls without tools": Chat((user(), CALLED, result(), answer(), user())),
    "odd numbers": Chat((user(), answer("", tool_calls=[call(NUMBERS, "search")]), result(), answer(), user()), TOOLS),
    "parts": Chat((user(parts("one", "two")),)),
    "parts everywhere": Chat((system(), user(parts("a ", "b")), answer(parts("fine", "ok")), user())),
    "parts of a result": Chat((user(), CALLED, result(parts("x", "y")), answer(), user()), TOOLS),
    "reasoning": Chat((system(), user(), THOUGHT, user())),
    "reasoning and call": Chat((system(), user(), THOUGHT_CALL, result()), TOOLS),
    "reasoning and call done": Chat((system(), user(), THOUGHT_CALL, result(), THOUGHT, user()), TOOLS),
    "thinking in the text": Chat((user(), answer(TEXTS[6]), user())),
    "ends with assistant": Chat((system(), user(), answer())),
    "ends in mid-sentence": Chat((user(), answer(), user(), answer("The weather is "))),
    "ends with reasoning": Chat((system(), user(), THOUGHT)),
    "ends in mid-thought": Chat((user(), answer("", reasoning_content="So far"))),
    "ends with nothing": Chat((user(), answer(""))),
    "ends with parts": Chat((user(), answer(parts("x", "y")))),
    "ends after a tool": Chat((user(), CALLED, result(), answer("So ")), TOOLS),
    "ends with a call": Chat((user(), CALLED), TOOLS),
    "ends with two": Chat((user(), answer(), answer())),
    "Japanese": Chat((system("日本語で答えて。"), user(TEXTS[3]))),
    "emoji": Chat((user(TEXTS[4]),)),
    "empty": Chat((system(""), user(""))),
    "empty answer": Chat((user(), answer(""), user())),
    "null answer": Chat((user(), answer(None), user())),
    "space": Chat((system(TEXTS[2]), user(TEXTS[2]), answer(TEXTS[2]), user())),
    "markup": Chat((user(TEXTS[5]),)),
    "developer": Chat(({"role": "developer", "content": "Dev says."}, user())),
    "two systems": Chat((system(), user(), system("Mid."), user())),
    "two users": Chat((user(), user("Hello"))),
    "system alone": Chat((system(),)),
    "bare tool": Chat((user(),), ({"type": "function", "function": {"name": "now"}},)),
    "no thinking": Chat((system(), user()), arguments={"enable_thinking": False}),
    "no thinking, turns": Chat((system(), user(), THOUGHT, user()), arguments={"enable_thinking": False}),
    "effort": Chat((user(),), arguments={"reasoning_effort": "high"}),
}


def random_chat(chance: random.Random) -> Chat:
    """Return a conversation of up to a dozen messages with whatever comes up."""
    messages = [system(chance.choice(TEXTS))] if chance.random() < 0.5 else []
    tools = chance.choice([(), (WEATHER,), TOOLS])
    for _ in range(chance.randint(1, 4)):
        messages.append(
            user(chance.choice(TEXTS)) if chance.random() < 0.8 else user(parts("one", chance.choice(TEXTS)))
        )
        if tools and chance.random() < 0.5:
            calls = [call(PLACE), call(MIXED, "search", 2)][: chance.randint(1, 2)]
            thought = {"reasoning_content": chance.choice(TEXTS)} if chance.random() < 0.3 else {}
            messages.append(answer(chance.choice(["", "Looking."]), tool_calls=calls, **thought))
            messages += [result(chance.choice(TEXTS), number) for number in range(1, len(calls) + 1)]
        if chance.random() < 0.8:
            thought = {"reasoning_content": chance.choice(TEXTS)} if chance.random() < 0.3 else {}
            messages.append(answer(chance.choice(TEXTS), **thought))
    if chance.random() < 0.8:
        messages.append(user(chance.choice(TEXTS)))
    arguments = {"enable_thinking": chance.random() < 0.5} if chance.random() < 0.5 else {}
    return Chat(tuple(messages), tools, arguments)


def rendered(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
    **arguments: Any,
) -> str:
    """Render messages just as they are, the way `transformers` does it with the same template."""
    given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt}
    return template.evaluate({**given, **arguments})
