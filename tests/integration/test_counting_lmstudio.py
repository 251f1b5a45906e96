"""How LM Studio's models are counted: by file, checked against LM Studio, else by LM Studio, else by family."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import eventually
from counted_models import CHATML, OVERRIDDEN, FileTokenizer, write_counted_model
from sample_chat import TOOL_CHAT
from spread_variants import spread

from elbowroom.demo import SimulatedLMStudio, SimulatedModel, SimulatedTokenizer
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.failures import Source
from elbowroom.providers.lmstudio import counting as lmstudio_counting
from elbowroom.providers.lmstudio import rpc as lmstudio_rpc
from elbowroom.providers.lmstudio.counting import LMStudioCounting
from elbowroom.providers.lmstudio.provider import LMStudio
from elbowroom.providers.lmstudio.rpc import LMStudioRpc
from elbowroom.providers.upstream import Upstream
from elbowroom.tokens import file_counter
from elbowroom.tokens.anchoring import Usage
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.file_counter import CountingTools
from elbowroom.tokens.renderer import TemplateRenderer
from elbowroom.tokens.templates.template import sha256_of

KEY = "tiny"
MESSAGES, TOOLS = TOOL_CHAT["messages"], TOOL_CHAT["tools"]
KNOWN = {sha256_of(CHATML), sha256_of(OVERRIDDEN)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The file of the model."""
    return write_counted_model(tmp_path / "tiny.gguf")


def studio_with(path: Path, template: str | None = None, **fields: Any) -> SimulatedLMStudio:
    """Return a simulated LM Studio that counts with this file."""
    size = path.stat().st_size
    listed = SimulatedModel(KEY, size_bytes=size, loaded_context_length=8192, tokenizer=FileTokenizer(path, template))
    return SimulatedLMStudio([listed], **fields)


@asynccontextmanager
async def provider_for(
    studio: SimulatedLMStudio, path: Path | None = None, *, home: Path | None = None
) -> AsyncIterator[LMStudio]:
    """Run a provider with the model's file from the settings or from a home; templates render in this process."""
    tools = CountingTools(renderer=TemplateRenderer(known=KNOWN))
    files = {} if path is None else {KEY: str(path)}
    async with aiohttp.ClientSession() as http:
        provider = LMStudio("lmstudio", studio.base_url, http, tools=tools, model_files=files, home=str(home or "/no"))
        try:
            yield provider
        finally:
            await provider.aclose()
            await tools.aclose()


async def counter_of(provider: LMStudio, name: str = KEY) -> TokenCounter:
    """Return the counter of a model as it is listed now."""
    provider._models.forget()
    [info] = [info for info in await provider.models() if info.id == name]
    return await provider.counter(info)


def endpoints(studio: SimulatedLMStudio) -> list[str]:
    """Return which websocket calls have come."""
    return [call.endpoint for call in studio.rpc_calls]


def engines_count(studio: SimulatedLMStudio) -> int:
    """Return what the simulated engine counts for the sample chat."""
    return studio.tokenizer_of(studio.residency.models[KEY]).count_tokens(MESSAGES, TOOLS)


async def test_both_agree(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file counts, to the token; LM Studio was asked once, however often is counted."""
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        for _ in range(3):
            counter = await counter_of(provider)
            assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(engines_count(studio), "exact")
            assert (await counter.count_text("Hello there")).method == "exact"
        assert endpoints(studio) == ["applyPromptTemplate", "tokenize"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_once_for_each_load(model: Path) -> None:
    """Another window means another load: both are compared again. Other instances that come do not matter."""
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        first = await counter_of(provider)
        await first.count_text("Hello")
        studio.load(KEY, 2048)
        assert await counter_of(provider) is first
        studio.unload(KEY)
        studio.load(KEY, 4096)
        second = await counter_of(provider)
        await second.count_text("Hello")
        assert second is not first
        assert endpoints(studio) == ["applyPromptTemplate", "tokenize"] * 2


async def test_many_counts_at_once(model: Path) -> None:
    """Whoever comes while the comparison is under way waits for the same one, with the same counter."""
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        [info] = await provider.models()
        counters = await asyncio.gather(*(provider.counter(info) for _ in range(20)))
        assert len(set(map(id, counters))) == 1
        counts = await asyncio.gather(*(counter.count_chat(MESSAGES, TOOLS) for counter in counters))
        assert {count.tokens for count in counts} == {engines_count(studio)}
        assert endpoints(studio) == ["applyPromptTemplate", "tokenize"]


async def test_a_template_of_the_persons_own(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where LM Studio renders another prompt, LM Studio counts; a warning names the file. Tokens stay the file's."""
    async with studio_with(model, OVERRIDDEN) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        for _ in range(2):
            assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(engines_count(studio), "engine")
        stream = await counter.stream()
        stream.feed("bahudo keri lo")
        assert stream.value == len(FileTokenizer(model).encode("bahudo keri lo"))
        assert (await counter.count_text("bahudo keri lo")).tokens == stream.value
    [warning] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "renders tiny's prompts in another way" in warning
    assert str(model) in warning


async def test_a_file_of_another_model(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where LM Studio cuts text in another way, nothing is counted with the file."""
    listed = SimulatedModel(KEY, loaded_context_length=8192, tokenizer=SimulatedTokenizer())
    async with SimulatedLMStudio([listed]) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(engines_count(studio), "engine")
        text = await counter.count_text("bahudo keri lo")
        assert text == TokenCount(len(SimulatedTokenizer().encode("bahudo keri lo")), "engine")
    assert "cuts tiny's text in another way" in caplog.text


async def test_without_the_websocket_the_file_is_believed(
    model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LM Studio that does not answer contradicts nothing; once it answers, it is heard."""
    monkeypatch.setattr(lmstudio_rpc, "REFUSED_SECONDS", -1.0)
    async with studio_with(model, OVERRIDDEN, rpc=False) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        ours = FileTokenizer(model).count_tokens(MESSAGES, TOOLS)
        assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(ours, "exact")
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        studio.rpc = True
        assert (await counter.count_chat(MESSAGES, TOOLS)).method == "exact"
        assert not studio.rpc_calls
        monkeypatch.setattr(lmstudio_counting, "ASK_AGAIN", -1.0)
        await counter.count_chat(MESSAGES, TOOLS)
        await eventually(lambda: len(studio.rpc_calls) == 2, "it was not asked again")
        async with asyncio.timeout(60):
            method = "exact"
            while method != "engine":  # as soon as the answers have been compared
                method = (await counter.count_chat(MESSAGES, TOOLS)).method


async def test_a_file_that_changes_is_noticed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new template in the same place is used at the next look at the file, and compared."""
    monkeypatch.setattr(file_counter, "BELIEVED_SECONDS", 0.0)
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        assert (await counter.count_chat(MESSAGES, TOOLS)).method == "exact"
        write_counted_model(model, OVERRIDDEN)
        os.utime(model, ns=(1, 1))
        assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(engines_count(studio), "engine")
        assert endpoints(studio).count("applyPromptTemplate") == 3  # two comparisons and the count
        write_counted_model(model)
        os.utime(model, ns=(2, 2))
        assert (await counter.count_chat(MESSAGES, TOOLS)).method == "exact"


async def test_a_file_that_goes_away_and_comes_back(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without it LM Studio counts, with a warning that names the file; with it the file does, without a restart."""
    away = model.with_name("away.gguf")
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        os.rename(model, away)
        assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(engines_count(studio), "engine")
        os.rename(away, model)
        assert await counter.count_chat(MESSAGES, TOOLS) == TokenCount(engines_count(studio), "exact")
    [warning] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert str(model) in warning


def make_folder(path: Path) -> None:
    """Put an empty folder in the place of the file."""
    path.unlink()
    path.mkdir()


DAMAGED: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "no model": lambda path: path.write_text("hello"),
    "a folder": make_folder,
    "a template that is no template": lambda path: write_counted_model(path, "{% if %}"),
    "a template that refuses": lambda path: write_counted_model(path, "{{ raise_exception('no') }}"),
}


@pytest.mark.parametrize(("damage", "has_rpc"), spread(DAMAGED.values(), [True, False]))
async def test_a_model_that_cannot_be_used(
    model: Path,
    damage: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
    *,
    has_rpc: bool,
) -> None:
    """Damage of every kind leads to the next way of counting, with one warning that names the file."""
    async with studio_with(model, rpc=has_rpc) as studio:
        damage(model)
        async with provider_for(studio, model) as provider:
            counter = await counter_of(provider)
            for _ in range(2):
                count = await counter.count_chat(MESSAGES, TOOLS)
                assert count.method in (("engine",) if has_rpc else ("family", "estimate"))
            await counter.warm_up()
            assert (await counter.stream()).value == 0
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum(str(model) in warning for warning in warnings) == 1


async def test_found_by_lm_studios_index(model: Path, tmp_path: Path) -> None:
    """With nothing in the settings the file is found in LM Studio's own folder, and counts."""
    home = tmp_path / "home"
    (home / ".internal").mkdir(parents=True)
    row = {
        "defaultIdentifier": KEY,
        "format": "gguf",
        "entryPoint": {"absPath": str(model)},
    }
    (home / ".internal" / "model-index-cache.json").write_text(json.dumps({"models": [row]}))
    async with studio_with(model) as studio, provider_for(studio, home=home) as provider:
        assert (await (await counter_of(provider)).count_chat(MESSAGES, TOOLS)).method == "exact"
        studio.unload(KEY)
        counter = await counter_of(provider)
        assert (await counter.count_chat(MESSAGES, TOOLS)).method == "exact"
        assert not studio.residency.instances


@pytest.mark.parametrize(("root", "is_found"), [("http://localhost:1", True), ("http://192.0.2.7:1", False)])
async def test_another_machines_models_are_not_looked_for_here(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, *, is_found: bool
) -> None:
    """This machine's LM Studio folder says nothing about a remote LM Studio."""
    folder = tmp_path / ".lmstudio" / "models" / "p" / "r"
    folder.mkdir(parents=True)
    os.rename(model, folder / "m.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    info = ModelInfo(KEY, "lmstudio", KEY, size_bytes=(folder / "m.gguf").stat().st_size)
    tools = CountingTools(renderer=TemplateRenderer(known=KNOWN))
    async with aiohttp.ClientSession() as http:
        counting = LMStudioCounting(
            root, LMStudioRpc(Upstream(http, Source("LM Studio", root)), f"{root}/llm"), tools, "", {}
        )
        count = await (await counting.counter(info)).count_text("Hello")
        await tools.aclose()
    assert (count.method == "exact") is is_found


@pytest.mark.slow
@pytest.mark.fault("model of an unknown family", "first", "counted by the nearest family, with its bound")
async def test_neither_file_nor_websocket(caplog: pytest.LogCaptureFixture) -> None:
    """The family counts, says so and how far it may be off; LM Studio is not complained about at every count."""
    listed = SimulatedModel("llama-3-8b", loaded_context_length=8192)
    async with SimulatedLMStudio([listed], rpc=False) as studio, provider_for(studio) as provider:
        counter = await counter_of(provider, "llama-3-8b")
        for _ in range(3):
            count = await counter.count_chat(MESSAGES, TOOLS)
            assert count.method in ("family", "estimate")
            assert count.error_bound > 0
            assert not count.is_exact
    assert caplog.text.count("falls back") == 1


async def test_a_model_that_is_not_loaded() -> None:
    """It is counted by its family: nothing is asked of LM Studio, nothing is loaded."""
    async with SimulatedLMStudio([SimulatedModel("llama-3-8b")]) as studio, provider_for(studio) as provider:
        counter = await counter_of(provider, "llama-3-8b")
        assert (await counter.count_chat(MESSAGES, TOOLS)).tokens > 50
        assert not studio.rpc_calls
        assert not studio.residency.instances


async def observe(counter: TokenCounter, messages: list[dict[str, Any]], reported: int) -> TokenCount:
    """Count, tell the counter what the engine reports for it, and return the count."""
    count = await counter.count_chat(messages)
    await counter.observe(messages, (), {}, count, Usage(reported))
    return count


async def test_a_constant_difference_is_learned(model: Path) -> None:
    """An instruction that LM Studio adds to every prompt is known after two answers, and stays in exact counts."""
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        chats = [[{"role": "user", "content": "bahudo " * number}] for number in (1, 5, 9)]
        sizes = [(await counter.count_chat(chat)).tokens for chat in chats]
        for chat, size in zip(chats[:2], sizes, strict=False):
            await observe(counter, chat, size + 17)
        assert await counter.count_chat(chats[2]) == TokenCount(sizes[2] + 17, "exact", 0, 17)
        await observe(counter, chats[2], sizes[2] + 17)
        assert (await counter.count_chat(chats[0])).tokens == sizes[0] + 17


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


async def test_images_are_estimated_and_learned(model: Path) -> None:
    """A count with an image is no exact one; after an answer the same conversation is known, image and all."""
    chat: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "What?"}, IMAGE]}]
    more = [*chat, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Sure?"}]
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        before = await counter.count_chat(chat)
        text_of_more = (await counter.count_chat(more)).tokens
        assert (before.method, before.is_exact) == ("estimate", False)
        assert before.error_bound >= 256
        await observe(counter, chat, before.tokens + 700)
        again = await counter.count_chat(chat)
        assert (again.tokens, again.method, again.error_bound) == (before.tokens + 700, "estimate", 0)
        assert (await counter.count_chat(more)).tokens == text_of_more + 700
        twice = [*more, *chat]
        assert (await counter.count_chat(twice)).error_bound >= 256
        plain = await counter.count_chat([{"role": "user", "content": "Hi"}])
        assert plain.method == "exact"


async def test_a_growing_answer_is_counted_like_a_whole_one(model: Path) -> None:
    """The running count of a stream is that of its text, at every point where somebody looks."""
    async with studio_with(model) as studio, provider_for(studio, model) as provider:
        counter = await counter_of(provider)
        stream = await counter.stream()
        text = "bahudo keri lo, 1.234 {x: [1]} 日本語\n\n" * 60
        for at in range(0, len(text), 7):
            stream.feed(text[at : at + 7])
            if at % 490 == 0:
                assert stream.value == (await counter.count_text(text[: at + 7])).tokens
                assert stream.at_most >= stream.value


async def test_closing_in_the_middle_of_a_comparison(model: Path) -> None:
    """Nothing is left running."""
    before = asyncio.all_tasks()
    async with studio_with(model) as studio:
        async with provider_for(studio, model) as provider:
            [info] = await provider.models()
            counting = asyncio.create_task((await provider.counter(info)).count_text("Hello"))
            await asyncio.sleep(0)
            counting.cancel()
            await asyncio.wait([counting])
    await eventually(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()}, "tasks are left")
