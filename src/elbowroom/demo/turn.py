"""One request to a loaded model: reads its prompt, then plays its answer, streamed or whole."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from elbowroom.demo import refusals, wire
from elbowroom.demo.engine import grow
from elbowroom.demo.journal import RECORD, STUDIO
from elbowroom.demo.overflow import Reading, message_sizes, read
from elbowroom.demo.perform import Encoding, Event, Finished, Hangup, Limits, Visible, perform, stopped_at
from elbowroom.demo.residency import Generation, GenerationError, Instance
from elbowroom.demo.script import Body, Raw, Script
from elbowroom.demo.wire import EventStream, hang_up


@dataclass(frozen=True, slots=True)
class Turn:
    """A request with its instance, its running generation, and the script and encoding of its answer."""

    request: web.Request
    body: Body
    instance: Instance
    generation: Generation
    script: Script
    encoding: Encoding

    async def play(self) -> web.StreamResponse:
        """Send the answer, as a stream where the body asks for one."""
        try:
            return await (self._stream() if self.body.get("stream") else self._whole())
        finally:
            self.request.app[STUDIO].residency.touch(self.instance)

    async def _stream(self) -> web.StreamResponse:
        stream = EventStream(self.request, self.script.cut_after)
        await stream.open()
        try:
            async with self._at_work(), aclosing(self._perform()) as events:
                self.request[RECORD].phase = "streaming"
                async for event in events:
                    match event:
                        case Raw(data):
                            await stream.send(data)
                        case Hangup():
                            hang_up(self.request)
                        case Finished(None):
                            continue
                        case _:
                            await stream.send(wire.frame(self.encoding.chunk(event)))
                            self._note()
        except GenerationError as failure:
            return await stream.fail(str(failure))
        options, usage = self.body.get("stream_options"), self._usage()
        if isinstance(options, dict) and options.get("include_usage") and usage is not None:
            await stream.send(wire.frame(self.encoding.usage_chunk(usage)))
        return await stream.end(done=self.script.done)

    async def _whole(self) -> web.Response:
        said: list[Visible] = []
        try:
            async with self._at_work(), aclosing(self._perform()) as events:
                self.request[RECORD].phase = "generating"
                async for event in events:
                    match event:
                        case Raw():
                            continue
                        case Hangup():
                            hang_up(self.request)
                        case _:
                            said.append(event)
                            self._note()
        except GenerationError as failure:
            raise refusals.plain(str(failure)) from failure
        usage = self._usage()
        if self.script.usage == "counted":
            usage["completion_tokens_details"] = {"reasoning_tokens": self.generation.reasoning_tokens}
        return web.json_response(self.encoding.whole(said, usage))

    def _at_work(self) -> AbstractAsyncContextManager[None]:
        studio, record = self.request.app[STUDIO], self.request[RECORD]
        tokens = self.generation.prompt_tokens - (record.reused_tokens if studio.prefix_cache else 0)
        seconds = tokens / studio.prefill_tokens_per_second if studio.prefill_tokens_per_second else 0
        return studio.engine.at_work(self.instance, self.generation, seconds, studio.overflow, record)

    def _perform(self) -> AsyncGenerator[Event, None]:
        studio = self.request.app[STUDIO]
        limits = Limits(
            grow=lambda tokens: grow(self.instance, self.generation, studio.overflow, tokens),
            split=studio.tokenizer_of(self.instance.model).split,
            tokens_per_second=studio.tokens_per_second,
            max_tokens=_max_tokens(self.body),
            reasoning_field=self.instance.model.reasoning_field,
        )
        return perform(stopped_at(self.script, self.body.get("stop")), self.generation, limits)

    def _note(self) -> None:
        self.request[RECORD].completion_tokens = self.generation.completion_tokens

    def _usage(self) -> Any:
        if self.script.usage == "counted":
            record = self.request[RECORD]
            cached = record.reused_tokens if self.request.app[STUDIO].tells_cached else None
            return wire.usage_of(self.generation.prompt_tokens, self.generation.completion_tokens, cached)
        return self.script.usage


def read_prompt(request: web.Request, body: Body, instance: Instance) -> Reading:
    """Count the prompt and return what the model reads of it; raise PromptTooLongError if it is refused."""
    studio, record = request.app[STUDIO], request[RECORD]
    messages, tools = body["messages"], body.get("tools") or None
    tokenizer = studio.tokenizer_of(instance.model)
    try:
        counted = tokenizer.count_tokens(messages, tools)
    except ValueError as error:
        raise refusals.plain(f'Error rendering prompt with jinja template: "{error}".') from error
    record.counted_tokens = counted
    window, architecture = instance.context_length, instance.model.architecture
    sizes = message_sizes(messages, tools, counted, tokenizer) if counted >= window else ()
    reading = read(messages, counted, sizes, window, studio.overflow, architecture)
    record.prompt_tokens, record.dropped_messages = reading.prompt_tokens, reading.dropped_messages
    prompt = tokenizer.render(messages, tools)
    record.reused_tokens = reading.prompt_tokens * _shared(instance.last_prompt, prompt) // max(1, len(prompt))
    instance.last_prompt = prompt
    return reading


async def refuse_prompt(request: web.Request, body: Body, message: str) -> web.StreamResponse:
    """Answer a prompt that does not fit with an event in a stream, or with a status."""
    if not body.get("stream") or request.app[STUDIO].overflow.streamed == "status":
        raise refusals.plain(message)
    stream = EventStream(request)
    await stream.open()
    return await stream.fail(message)


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common, by halving what is not known yet."""
    same, least = 0, min(len(one), len(other)) + 1
    while least - same > 1:
        middle = (same + least) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            least = middle
    return same


def _max_tokens(body: Body) -> int | None:
    wanted = body.get("max_tokens", body.get("max_completion_tokens"))
    return wanted if isinstance(wanted, int) and wanted >= 0 else None
