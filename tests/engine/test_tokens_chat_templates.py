"""Every chat template that llama.cpp ships renders here as in `transformers` and as in llama.cpp's own server."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from llama_server import LlamaServer
from template_chats import CHATS, Chat, random_chat, rendered
from tiny_gguf import write_model
from vocabularies import trained_vocabulary

from elbowroom.errors import ElbowroomError
from elbowroom.tokens.errors import TemplateFailed
from elbowroom.tokens.templates.known import KNOWN_TEMPLATES
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest
from elbowroom.tokens.templates.template import ChatTemplate, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

RANDOM_CHATS: Final = 25
TEMPLATES_SHIPPED: Final = 70
NEEDS_FUNCTIONS_AS_KEYS: Final = "CohereForAI-c4ai-command-r-plus-tool_use"
"""Its tool list looks types up in Python's way; the engine's Jinja can't, so there is nothing to compare."""


def chats(seed: str) -> Iterator[tuple[str, Chat]]:
    """Yield the fixed conversations, and random ones that are the same for the same seed."""
    yield from CHATS.items()
    chance = random.Random(seed)
    for number in range(RANDOM_CHATS):
        yield f"random chat {number}", random_chat(chance)


def templates(folder: Path) -> dict[str, str]:
    """Return name and source of every template."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}
    assert len(found) == TEMPLATES_SHIPPED
    return found


def transformers_text(source: str, chat: Chat, arguments: Mapping[str, Any]) -> str | None:
    """Render with transformers, None where it fails."""
    from transformers.utils.chat_template_utils import render_jinja_template

    tools: list[Any] | None = list(chat.tools) or None
    try:
        rendered: Any = render_jinja_template(
            [list(chat.messages)], tools, chat_template=source, add_generation_prompt=True, **arguments
        )
    except Exception:  # noqa: BLE001 - a template may raise anything
        return None
    return str(rendered[0][0])


def our_text(template: ChatTemplate, chat: Chat, arguments: Mapping[str, Any]) -> str | None:
    """Render the same here; transformers gives reasoning under both of its names."""
    messages = [
        {**message, "thinking": message["reasoning_content"]} if "reasoning_content" in message else message
        for message in chat.messages
    ]
    try:
        return rendered(template, messages, list(chat.tools) or None, **arguments)
    except TemplateFailed:
        return None


def test_all_shipped_templates_are_known(real_models: Path) -> None:
    """Each of them renders without a worker."""
    unknown = [name for name, source in templates(real_models).items() if sha256_of(source) not in KNOWN_TEMPLATES]
    assert unknown == []


def test_all_shipped_templates_render_as_in_transformers(real_models: Path) -> None:
    """Text for text, and where one fails the other does."""
    different = []
    for name, source in templates(real_models).items():
        template = ChatTemplate(source)
        for title, chat in chats(name):
            arguments = {"bos_token": "<s>", "eos_token": "</s>", **chat.arguments}
            if our_text(template, chat, arguments) != transformers_text(source, chat, arguments):
                different.append((name, title))
    assert different == []


async def test_all_shipped_templates_give_the_engines_prompt(real_models: Path, tmp_path: Path) -> None:
    """Text for text, continued answers and special cases included; what one refuses the other does."""
    vocabulary = trained_vocabulary()
    different = []
    for name, source in templates(real_models).items():
        folder = tmp_path / name
        folder.mkdir()
        write_model(folder / "model.gguf", vocabulary, source)
        with LlamaServer(folder / "model.gguf", folder) as engine:
            _, props = await engine.get("/props")
            prompt = ChatPrompt(source, bos_token=props["bos_token"], eos_token=props["eos_token"])
            for title, chat in chats(name):
                if name == NEEDS_FUNCTIONS_AS_KEYS and chat.tools:
                    continue
                ours = prompt_here(prompt, chat)
                theirs = await prompt_there(engine, chat)
                if ours != theirs:
                    different.append((name, title, ours, theirs))
    assert different == []


def prompt_here(prompt: ChatPrompt, chat: Chat) -> str | None:
    """Return our prompt, None where there is none."""
    try:
        return prompt.text(ChatRequest(chat.messages, chat.tools, chat.arguments))
    except ElbowroomError:
        return None


async def prompt_there(engine: LlamaServer, chat: Chat) -> str | None:
    """Return the engine's prompt, None where it answers with an error."""
    body = {"messages": chat.messages, "tools": chat.tools, "chat_template_kwargs": chat.arguments}
    status, reply = await engine.post("/apply-template", body)
    return str(reply["prompt"]) if status == 200 else None
