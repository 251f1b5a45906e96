"""A history counter normalises for the model's own template, and counts what is then sent."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counted_models import CHATML, write_counted_model
from demanding_templates import TEMPLATES, render_with
from demands_by_rendering import demands_of
from sample_chat import READ_NOTE

from elbowroom.agents.prompt.counters import (
    LONGEST_COUNTED,
    HistoryCounter,
    TemplateFacts,
    facts_by_family,
    facts_by_template,
    found_thinking_switch,
    is_short,
)
from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.templates.normalise import normalise
from elbowroom.tokens.count import CannotCount, PromptRenderer
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.errors import TemplateOverran
from elbowroom.tokens.families.families import family_of
from elbowroom.tokens.file_counter import FileCounter
from elbowroom.tokens.files.loading import TokenizerLoader
from elbowroom.tokens.renderer import TemplateRenderer
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest
from elbowroom.tokens.templates.template import sha256_of

Messages = Sequence[Mapping[str, Any]]
ALTERNATING = CHATML.replace(
    "{%- for message in messages %}",
    "{%- for message in messages %}{%- if loop.previtem and loop.previtem.role == message.role %}"
    "{{ raise_exception('take turns') }}{% endif %}",
)
OPENING = "{{- '<|im_start|>assistant\\n' }}"
SWITCHABLE = CHATML.replace(
    OPENING, "{{- '<|im_start|>assistant\\n' ~ ('' if enable_thinking else '<think></think>') }}"
)
BRANDED = "{{- 'Thinking: ' ~ enable_thinking }}" + CHATML


def renderer_of(source: str) -> PromptRenderer:
    """Return what renders with a template as an engine does."""
    prompt = ChatPrompt(source)

    async def render(messages: Messages, tools: Messages, arguments: Mapping[str, Any]) -> str:
        return prompt.text(ChatRequest(messages, tools, {"enable_thinking": True, **arguments}))

    return PromptRenderer(source, render)


@asynccontextmanager
async def file_counter(path: Path, template: str) -> AsyncIterator[TokenCounter]:
    """Count with a file that has this template, rendered in this process."""
    write_counted_model(path, template)
    async with aclosing(TemplateRenderer(known={sha256_of(template)})) as renderer:
        yield TokenCounter("m", None, [FileCounter(path, TokenizerLoader(), renderer)])


def history_of(counter: TokenCounter, demands: TemplateDemands, **body: Any) -> HistoryCounter:
    """Return a history counter with these demands, whose texts are counted by letters."""
    return HistoryCounter(counter, body, TemplateFacts(demands, demands, False, "none"), len)


@pytest.mark.parametrize("name", TEMPLATES)
async def test_demands_are_those_that_a_waiting_renderer_shows(name: str) -> None:
    """Questions put one by one, with a pause between them, find the same demands as questions put at once."""
    render = render_with(TEMPLATES[name][0])

    async def slowly(messages: Messages, tools: Messages, arguments: Mapping[str, Any]) -> str:
        await asyncio.sleep(0)
        try:
            return render(messages, tools)
        except Exception as error:
            raise CannotCount("refused") from error

    facts = await facts_by_template(PromptRenderer("t", slowly), family_of("m"))
    assert facts.demands == demands_of(render)
    assert facts.without_tools == demands_of(render, tools=False)


async def test_a_template_that_has_to_be_stopped_demands_what_its_family_does() -> None:
    """A template that takes too long is no answer: the family's demands are taken, not those of a refusal."""

    async def endless(messages: Messages, tools: Messages, arguments: Mapping[str, Any]) -> str:
        raise CannotCount("stopped") from TemplateOverran("t", "it took too long")

    family = family_of("mistral-7b-instruct")
    assert await facts_by_template(PromptRenderer("t", endless), family) == facts_by_family(family)
    assert facts_by_family(family).demands.portable_ids


@pytest.mark.parametrize(("template", "switch"), [(CHATML, "none"), (SWITCHABLE, "at the end"), (BRANDED, "elsewhere")])
async def test_where_thinking_is_switched(template: str, switch: str) -> None:
    """What the switch changes is found: nothing, only the generation prompt, or what an engine has read already."""
    assert await found_thinking_switch(renderer_of(template)) == switch


async def test_other_work_goes_on_while_a_template_is_asked() -> None:
    """The event loop is free again after each single question."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    await facts_by_template(renderer_of(CHATML), family_of("m"))
    other.cancel()
    await asyncio.wait([other])
    assert turns > 40


async def test_count_is_that_of_what_is_sent(tmp_path: Path) -> None:
    """A history that the template refuses as it stands is counted as it is sent, tools included."""
    async with file_counter(tmp_path / "m.gguf", ALTERNATING) as counter:
        renderer = await counter.prompt_renderer()
        assert renderer is not None
        facts = await facts_by_template(renderer, counter.family)
        history = HistoryCounter(counter, {"tools": [READ_NOTE]}, facts, await counter.text_counter())
        messages = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]
        sent = await history.normalised(messages)
        assert sent != messages
        with pytest.raises(CannotCount):
            await renderer.render(messages, (), {})
        direct = await counter.count_chat(sent, [READ_NOTE], {})
        assert await history.prompt(messages) == direct.tokens
        assert direct.method == "exact"
        assert await history.prompt(messages) > await history.with_body({}).prompt(messages)
        assert history.text("Hello there") == (await counter.count_text("Hello there")).tokens


async def test_nothing_demanded_is_nothing_changed() -> None:
    """Sound messages are the very same objects where nothing is demanded."""
    messages = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]
    sent = await history_of(TokenCounter("m", None), TemplateDemands()).normalised(messages)
    assert all(one is other for one, other in zip(sent, messages, strict=True))


async def test_long_text_is_measured_by_its_beginning() -> None:
    """A text of megabytes is never counted whole at once."""
    asked: list[int] = []

    def count(text: str) -> int:
        asked.append(len(text))
        return len(text) // 4

    history = replace(history_of(TokenCounter("m", None), TemplateDemands()), count_text=count)
    assert history.text("word " * 400_000) == 500_000
    assert history.text("word " * 400_000) == 500_000
    assert asked == [LONGEST_COUNTED]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mistral-nemo", "gemma-2-2b", "gpt-oss-20b", "qwen2.5-7b", "?"])
def test_demands_by_family_take_any_model(model: str) -> None:
    """Without a template, a history is still repaired, and ends with one answer at most."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2
    sent = normalise([*messages, {"role": "assistant", "content": "c"}], facts_by_family(family_of(model)).demands)
    assert [message["role"] for message in sent].count("assistant") == 2


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (["word"] * 999, True),
        (["word"] * 1000, False),
        (["word " * 190_000], True),
        (["word " * 200_000], False),
        ([[{"type": "text", "text": "word " * 200_000}]], False),
        ([["a"] * 499], True),
        ([["a"] * 500], False),
        ([None, 5, {}, [None, 5]], True),
    ],
    ids=["messages", "many messages", "a text", "a long text", "a long part", "parts", "many parts", "no texts"],
)
def test_what_is_worked_on_in_the_event_loop(contents: Sequence[Any], expected: bool) -> None:
    """A history of few messages, calls and parts, none of them long; other requests wait meanwhile."""
    assert is_short([{"role": "user", "content": content} for content in contents]) is expected
