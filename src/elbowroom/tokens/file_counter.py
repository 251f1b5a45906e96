"""Counts with the model's own files: its chat template renders the prompt, its tokenizer cuts it into tokens."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from elbowroom.tokens.count import CannotCount, PromptRenderer, TokenCount
from elbowroom.tokens.errors import TemplateFailed, TokenizerError
from elbowroom.tokens.files import LoadedModel, StreamCounter, TokenizerLoader
from elbowroom.tokens.renderer import TemplateRenderer
from elbowroom.tokens.templates import ChatPrompt, ChatRequest

INLINE_CHARACTERS: Final = 20_000
"""Up to here counting takes a few milliseconds at most; more goes to a thread, by calls that release the GIL."""
BELIEVED_SECONDS = 1.0
"""How long a loaded file is taken to be unchanged: a request counts several times, and looks at the disk once."""
TOOL_TEMPLATE: Final = "tool_use"
WITHOUT_TEMPLATE: Final = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
"""The template that llama.cpp uses for a model without a chat template."""


TEMPLATE_SECONDS = 2.0
"""How long a chat waits for an unknown template, twice at most; an honest template takes a twentieth of it."""


@dataclass(frozen=True, slots=True)
class CountingTools:
    """The loaded tokenizers and the renderer of chat templates that all counters of an event loop share.

    Nothing is loaded or started before it is needed.
    """

    loader: TokenizerLoader = field(default_factory=TokenizerLoader)
    renderer: TemplateRenderer = field(default_factory=lambda: TemplateRenderer(deadline=TEMPLATE_SECONDS))

    async def aclose(self) -> None:
        """End the renderer's worker and forget the tokenizers."""
        await self.renderer.aclose()
        await self.loader.aclose()


class FileCounter:
    """The counter of one GGUF file or model folder, which is read when it is first needed and when it has changed.

    A change is seen at most a second later: so often the file is looked at.
    """

    def __init__(self, path: Path, loader: TokenizerLoader, renderer: TemplateRenderer) -> None:
        self.path = path
        self._loader = loader
        self._renderer = renderer
        self._seen: tuple[LoadedModel, float] | None = None
        self._prompts: tuple[LoadedModel, Prompts] | None = None

    async def load(self) -> LoadedModel:
        """Return the model's tokenizer, loaded in a thread where that has not been done. Raises CannotCount."""
        now = asyncio.get_running_loop().time()
        if self._seen is not None and now < self._seen[1]:
            return self._seen[0]
        try:
            model = await self._loader.load(self.path)
        except TokenizerError as error:
            raise CannotCount(error.message) from error
        self._seen = (model, now + BELIEVED_SECONDS)
        return model

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        model = await self.load()
        return await _counted(model.text.tokenizer.count, text, is_quick=len(text) <= INLINE_CHARACTERS)

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the exact size of the whole prompt; parts that were counted before cost little."""
        model = await self.load()
        is_known = self._prompts_of(model).of(has_tools=bool(tools)).template.knows(messages)
        text = await self.render(model, messages, tools, arguments)
        return await _counted(model.segments.count_prompt, text, is_quick=is_known or len(text) <= INLINE_CHARACTERS)

    async def render(
        self,
        model: LoadedModel,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        arguments: Mapping[str, Any],
    ) -> str:
        """Return the prompt as the engine makes it. Raises CannotCount where the template is broken."""
        prompt = self._prompts_of(model).of(has_tools=bool(tools))
        try:
            return await self._renderer.render(prompt, ChatRequest(messages, tools, arguments))
        except TemplateFailed as error:
            raise CannotCount(f"The chat template of {self.path} cannot be used: {error.message}") from error

    async def stream(self) -> StreamCounter:
        """Return a counter for an answer that grows."""
        return StreamCounter((await self.load()).text.tokenizer)

    async def prompt_renderer(self) -> PromptRenderer:
        """Return the file's chat template as it is now."""
        model = await self.load()
        return PromptRenderer(self._prompts_of(model).key, functools.partial(self.render, model))

    def _prompts_of(self, model: LoadedModel) -> "Prompts":
        if self._prompts is None or self._prompts[0] is not model:
            self._prompts = (model, Prompts(model, self.path.name))
        return self._prompts[1]


async def _counted(count: Callable[[str], int], text: str, *, is_quick: bool) -> TokenCount:
    """Return an exact count, made in a thread where it takes long. Raises CannotCount."""
    try:
        return TokenCount(count(text) if is_quick else await asyncio.to_thread(count, text), "exact")
    except TokenizerError as error:
        raise CannotCount(error.message) from error


class Prompts:
    """A model's chat templates, ready to render."""

    def __init__(self, model: LoadedModel, name: str) -> None:
        self._model = model
        self._name = name

    @functools.cached_property
    def key(self) -> str:
        """The hashes of the templates."""
        return " ".join(sorted({self.of(has_tools=has_tools).sha256 for has_tools in (False, True)}))

    def of(self, *, has_tools: bool) -> ChatPrompt:
        """Return the template for a request; some models have one of their own for tools."""
        if has_tools and TOOL_TEMPLATE in self._model.text.chat_templates:
            return self._for_tools
        return self._default

    @functools.cached_property
    def _default(self) -> ChatPrompt:
        return self._prompt(self._model.text.chat_template or WITHOUT_TEMPLATE)

    @functools.cached_property
    def _for_tools(self) -> ChatPrompt:
        return self._prompt(self._model.text.chat_templates[TOOL_TEMPLATE])

    def _prompt(self, source: str) -> ChatPrompt:
        tokenizer = self._model.text.tokenizer
        return ChatPrompt(source, name=self._name, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
