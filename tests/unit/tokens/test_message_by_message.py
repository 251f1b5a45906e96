"""Prompts that grow: what is rendered from the new messages alone is what the template makes of all of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_histories import TOOLS, Json, always_the_same, histories

from elbowroom.tokens.errors import TemplateFailed
from elbowroom.tokens.families.families import template_source
from elbowroom.tokens.templates.message_by_message import GrowingPrompts
from elbowroom.tokens.templates.messages import canonical_messages
from elbowroom.tokens.templates.template import ChatTemplate, environment

if TYPE_CHECKING:
    from collections.abc import Callable

CHATML: Final = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You help.<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WITH_TOOLS: Final = (Path(__file__).parents[2] / "support" / "chatml_tools.jinja").read_text()
ALONE: Final = {
    "ChatML": CHATML,
    "ChatML with tools": WITH_TOOLS,
    "roles by another name, set in the loop": (
        "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}{% set role = 'model' %}"
        "{% elif message.role == 'user' %}{% set role = 'human' %}{% endif %}[{{ role }}|{{ loop.index }}|"
        "{{ loop.index0 % 2 == 0 }}]{{ message.content | trim }}{% endfor %}{{ messages[-1].role }}"
    ),
    "looks ahead for results of tools only": (
        "{% for message in messages %}{% if message.role == 'tool' %}{% if loop.last or messages[loop.index0 + 1].role"
        " != 'tool' %}END{% endif %}{% else %}{{ message.role ~ message['content'].split('.')[-1] }}{% endif %}"
        "{% endfor %}{{ messages | length }}"
    ),
    "the one before": (
        "{% for message in messages %}{{ loop.previtem.role if not loop.first }}{{ message.content }}{% endfor %}"
    ),
    "macros that call each other": (
        "{% macro short(text, to=3) %}{% for word in text.split(' ') %}{{ word[:to] if loop.first else '+' }}"
        "{% endfor %}{% endmacro %}{% macro turn(one, text) %}<{{ one }}>{{ short(text) }}{% endmacro %}"
        "{% for message in messages %}{{ turn(message.role, message.content) }}{% endfor %}"
    ),
    **{name: template_source(name) for name in ("chatml", "llama3", "gemma", "deepseek", "granite", "phi", "command")},
}
"""Templates that write a message of text by itself, or beside the one before it."""
TOGETHER: Final = {
    "the last one is another": "{% for m in messages %}{{ m.content }}{% if not loop.last %}-{% endif %}{% endfor %}",
    "how many": "{% for message in messages %}{{ message.content }}{{ messages | length }}{% endfor %}",
    "the next one": "{% for message in messages %}{{ message.content }}{{ loop.nextitem.role }}{% endfor %}",
    "what has been": (
        "{% set ns = namespace(n=0) %}{% for message in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
        "{{ message.content }}{% endfor %}"
    ),
    "the last question": (
        "{% set last = messages[-1].content %}{% for message in messages %}{{ message.content == last }}{% endfor %}"
    ),
    "refuses": "{% for message in messages %}{% if loop.index > 3 %}{{ raise_exception('no') }}{% endif %}{% endfor %}",
    "counts by a list": "{% set l = [] %}{% for m in messages %}{{ l.append(m.role) }}{{ l | length }}{% endfor %}",
    "the time": "{% for message in messages %}{{ strftime_now('%Y') }}{{ message.content }}{% endfor %}",
    "other messages": "{% for message in messages[1:] %}{{ loop.index }}{{ message.content }}{% endfor %}",
    "messages of another name": (
        "{% if messages[0].role == 'system' %}{% set messages = messages[1:] %}{% endif %}"
        "{% for message in messages %}{{ loop.index0 }}{{ message.content }}{% endfor %}"
    ),
    "a macro that looks at all": (
        "{% macro role(at) %}{{ messages[at].role }}{% endmacro %}"
        "{% for message in messages %}{{ role(-1) }}{{ message.content }}{% endfor %}"
    ),
    "a macro of another name": (
        "{% macro same(text) %}{{ text }}{% endmacro %}{% for message in messages %}{{ same(message.content) }}"
        "{% set same = cycler('a', 'b') %}{{ same.next() }}{% endfor %}"
    ),
    "two loops": "{% for m in messages %}{{ m.role }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}",
}
"""Templates in which a message depends on others."""


@cache
def whole(source: str) -> ChatTemplate:
    """Return a template that renders all messages every time."""
    template = ChatTemplate(source, dialect="llama.cpp")
    vars(template)["_growing"] = Mock(pieces=Mock(return_value=None))
    return template


def outcome(template: ChatTemplate, variables: Json) -> str:
    """Return what a template renders, or how it fails."""
    try:
        return template.evaluate(variables)
    except TemplateFailed as error:
        return f"{type(error).__name__}: {error.message}"


@pytest.mark.parametrize("source", [*ALONE.values(), *TOGETHER.values()], ids=[*ALONE, *TOGETHER])
@given(history=histories(), steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=8))
@always_the_same
def test_every_prompt_is_that_of_the_whole_history(
    source: str, history: list[Json], steps: list[tuple[int, int]]
) -> None:
    """Grown, cut, edited in the middle, asked again, with and without tools: the text is the same to the letter."""
    messages = canonical_messages(history)
    growing, anew = ChatTemplate(source, dialect="llama.cpp"), whole(source)
    vars(growing)["_compiled"] = anew._compiled  # which keeps nothing, and takes long to make for each example
    for step, at in [(0, 0), *steps]:
        place = at % (len(messages) + 1)
        more = {"role": ("user", "assistant")[at % 2], "content": f"word {at}."}
        changed = [
            [*messages, more],
            messages,
            messages[:place],
            [*messages[:place], more, *messages[place + 1 :]],
            [*messages[:place], {"role": "system", "content": "Be brief."}, *messages[place:]],
            [*messages, more, {"role": "user", "content": "And then?"}],
        ]
        messages = changed[step]
        variables: Json = {"messages": messages, "bos_token": "<s>", "add_generation_prompt": True}
        if at % 3 == 0:
            variables["tools"] = TOOLS
        copies = json.loads(json.dumps(variables))
        assert outcome(growing, copies) == outcome(anew, variables)


def prompts_of(source: str, **options: Any) -> GrowingPrompts:
    """Return the memory of a template's prompts."""
    return GrowingPrompts(environment("llama.cpp"), source, **options)


def talk(turns: int, text: str = "word") -> list[Json]:
    """Return a conversation of questions and answers."""
    return [{"role": ("user", "assistant")[at % 2], "content": f"{text} {at}"} for at in range(2 * turns + 1)]


def noting(asked: list[Any], ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that asks, and notes what was asked."""

    def asks(*what: Any) -> Any:
        asked.append(what)
        return ask(*what)

    return asks


@pytest.mark.parametrize("source", ALONE.values(), ids=ALONE)
def test_only_new_messages_are_rendered(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a known history nothing is asked again, however long it is, also if its answer was one to go on with."""
    prompts, asked = prompts_of(source), list[Any]()
    assert prompts.pieces({"messages": talk(50)[:-1], "continues": True, "add_generation_prompt": True}, {})
    engine = environment("llama.cpp")
    for name in ("getattr", "getitem"):
        monkeypatch.setattr(engine, name, noting(asked, getattr(engine, name)))
    following = prompts.pieces({"messages": talk(51)}, {})
    assert len(asked) < 50
    assert "".join(following or ()) == ChatTemplate(source, dialect="llama.cpp").evaluate({"messages": talk(51)})


@pytest.mark.parametrize("source", ALONE.values(), ids=ALONE)
def test_a_known_beginning_is_not_rendered_again(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the history went on in another way: the last question is edited, asked again, or was only expected."""
    prompts, asked = prompts_of(source), list[Any]()
    said, expected = talk(50), {"role": "user", "content": "..."}
    assert prompts.pieces({"messages": [*said, {"role": "assistant", "content": "Yes."}, expected]}, {})
    engine = environment("llama.cpp")
    for name in ("getattr", "getitem"):
        monkeypatch.setattr(engine, name, noting(asked, getattr(engine, name)))
    edited = {"role": "user", "content": "And what else?"}
    for ending in ([{"role": "assistant", "content": "Yes"}, edited], [], [edited]):
        messages, before = [*said[: -1 if ending == [edited] else None], *ending], len(asked)
        others = prompts.pieces({"messages": messages}, {})
        assert len(asked) - before < 50
        assert "".join(others or ()) == whole(source).evaluate({"messages": messages})


def test_histories_that_end_alike_are_all_known() -> None:
    """Conversations whose last words are the same are not taken for each other, and none is lost."""
    prompts = prompts_of(CHATML)
    ends = [[*talk(3, name), {"role": "user", "content": "..."}] for name in ("one", "two")]
    for messages in [*ends, *ends, *ends]:
        text = "".join(prompts.pieces({"messages": messages}, {}) or ())
        assert text == whole(CHATML).evaluate({"messages": messages})
        assert prompts.knows([*messages, {"role": "user", "content": "more"}])


def test_other_variables_are_another_prompt() -> None:
    """A number that equals another of a different type is another variable."""
    prompts = prompts_of("{% for message in messages %}{{ x }}{{ message.content }}{% endfor %}")
    assert ["".join(prompts.pieces({"messages": talk(0), "x": x}, {}) or ()) for x in (1, 1.0, True)] == [
        "1word 0",
        "1.0word 0",
        "Trueword 0",
    ]


@pytest.mark.parametrize("source", TOGETHER.values(), ids=TOGETHER)
def test_templates_that_see_more_than_one_message_render_the_whole(source: str) -> None:
    """They are told by the expression itself, when it is evaluated."""
    system = {"role": "system", "content": "Be brief."}
    assert prompts_of(source).pieces({"messages": [system, *talk(3)]}, {}) is None


def test_no_more_bytes_are_kept_than_it_is_told() -> None:
    """The prompts used last are kept within the limit; one that is larger than all of it is not kept."""
    prompts = prompts_of(CHATML, most_bytes=100_000)
    for number in range(30):
        assert prompts.pieces({"messages": talk(1, f"{number} {'x' * 3000}")}, {})
        assert 0 < prompts.size <= 100_000
    before = prompts.size
    assert prompts.pieces({"messages": talk(1, "y" * 40_000)}, {})
    assert prompts.size == before
