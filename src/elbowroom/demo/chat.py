"""`POST /v1/chat/completions`: from the body to the answer, streamed or whole."""

from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from elbowroom.demo import refusals, wire
from elbowroom.demo.answer import GARBAGE, Situation, default_answer
from elbowroom.demo.encode import WholeMessage, delta_of
from elbowroom.demo.engine import grow
from elbowroom.demo.generation import Generation, GenerationError
from elbowroom.demo.journal import RECORD
from elbowroom.demo.keys import STUDIO
from elbowroom.demo.overflow import PromptTooLongError, Reading, read
from elbowroom.demo.perform import Finished, Hangup, Limits, perform, stopped_at
from elbowroom.demo.requests import check_chat, has_images, json_object, resolve
from elbowroom.demo.residency import Instance
from elbowroom.demo.script import Raw, Reply, Script
from elbowroom.demo.sse import EventStream, hang_up


@dataclass(frozen=True, slots=True)
class Turn:
    """A request that has its model, its prompt and its answer, and only has to be played."""

    request: web.Request
    body: dict[str, Any]
    instance: Instance
    generation: Generation
    script: Script
    heading: wire.Heading

    @property
    def limits(self) -> Limits:
        """How fast and how far the answer goes."""
        studio = self.request.app[STUDIO]
        return Limits(
            grow=lambda tokens: grow(self.instance, self.generation, studio.overflow, tokens),
            split=studio.tokenizer_of(self.instance.model).split,
            tokens_per_second=studio.tokens_per_second,
            max_tokens=_max_tokens(self.body),
            reasoning_field=self.instance.model.reasoning_field,
        )


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer a chat request with the next script that fits it, the hook's, or the default answer."""
    studio, record = request.app[STUDIO], request[RECORD]
    body = json_object(record)
    queued = studio.scripts.peek(body)
    planned = queued or studio.hooked(body)
    if planned is not None and planned.reply is not None:
        studio.scripts.take(body)
        return _ready_made(planned.reply)
    check_chat(body)
    instance = await resolve(studio, body, record)
    try:
        reading = _read(request, body, instance)
    except PromptTooLongError as refusal:
        return await _refuse(request, body, str(refusal))
    script = studio.scripts.take(body) or (None if queued else planned)
    turn = Turn(
        request,
        body,
        instance,
        Generation(reading.prompt_tokens),
        stopped_at(script or _unscripted(body, instance, reading), body.get("stop")),
        studio.heading(instance),
    )
    return await (_stream(turn) if body.get("stream") else _whole(turn))


def _ready_made(reply: Reply) -> web.Response:
    if isinstance(reply.body, bytes):
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
    if isinstance(reply.body, str):
        return web.Response(status=reply.status, text=reply.body, headers=reply.headers)
    return web.json_response(reply.body, status=reply.status, headers=reply.headers)


def _read(request: web.Request, body: dict[str, Any], instance: Instance) -> Reading:
    studio, record = request.app[STUDIO], request[RECORD]
    messages, model = body["messages"], instance.model
    if has_images(messages) and not model.vision:
        raise refusals.plain(refusals.NO_IMAGES)
    tokenizer = studio.tokenizer_of(model)
    try:
        counted = tokenizer.count_tokens(messages, body.get("tools") or None)
    except ValueError as error:
        raise refusals.plain(f'Error rendering prompt with jinja template: "{error}".') from error
    record.counted_tokens = counted
    reading = read(messages, counted, instance.context_length, studio.overflow, model, tokenizer)
    record.prompt_tokens, record.dropped_messages = reading.prompt_tokens, reading.dropped_messages
    return reading


def _unscripted(body: dict[str, Any], instance: Instance, reading: Reading) -> Script:
    match reading.outcome:
        case "empty":
            return Script()
        case "garbage":
            return Script(GARBAGE)
        case "read":
            return default_answer(
                Situation(instance.model.name, instance.context_length, len(body["messages"]), reading, body)
            )


def _max_tokens(body: dict[str, Any]) -> int | None:
    wanted = body.get("max_tokens", body.get("max_completion_tokens"))
    return wanted if isinstance(wanted, int) and wanted >= 0 else None


async def _refuse(request: web.Request, body: dict[str, Any], message: str) -> web.StreamResponse:
    if not body.get("stream") or request.app[STUDIO].overflow.streamed == "status":
        raise refusals.plain(message)
    stream = EventStream(request)
    await stream.open()
    return await stream.fail(message)


async def _stream(turn: Turn) -> web.StreamResponse:
    stream = EventStream(turn.request, turn.script.cut_after)
    await stream.open()
    try:
        async with _at_work(turn), aclosing(perform(turn.script, turn.generation, turn.limits)) as events:
            turn.request[RECORD].phase = "streaming"
            async for event in events:
                match event:
                    case Raw(data):
                        await stream.send(data)
                    case Hangup():
                        hang_up(turn.request)
                    case Finished(reason):
                        if reason is not None:
                            await stream.send(wire.frame(wire.chunk(turn.heading, {}, reason)))
                    case _:
                        await stream.send(wire.frame(wire.chunk(turn.heading, delta_of(event))))
                        _note(turn)
    except GenerationError as failure:
        return await stream.fail(str(failure))
    options = turn.body.get("stream_options")
    usage = _usage(turn)
    if isinstance(options, dict) and options.get("include_usage") and usage is not None:
        await stream.send(wire.frame(wire.usage_chunk(turn.heading, usage)))
    return await stream.end(done=turn.script.done)


async def _whole(turn: Turn) -> web.StreamResponse:
    message = WholeMessage(turn.instance.model.reasoning_field)
    try:
        async with _at_work(turn), aclosing(perform(turn.script, turn.generation, turn.limits)) as events:
            turn.request[RECORD].phase = "generating"
            async for event in events:
                match event:
                    case Raw():
                        continue
                    case Hangup():
                        hang_up(turn.request)
                    case _:
                        message.add(event)
                        _note(turn)
    except GenerationError as failure:
        raise refusals.plain(str(failure)) from failure
    usage = _usage(turn)
    if turn.script.usage == "counted":
        usage["completion_tokens_details"] = {"reasoning_tokens": turn.generation.reasoning_tokens}
    return web.json_response(wire.completion(turn.heading, message.as_json(), message.finish_reason, usage))


def _at_work(turn: Turn) -> AbstractAsyncContextManager[None]:
    studio = turn.request.app[STUDIO]
    seconds = (
        turn.generation.prompt_tokens / studio.prefill_tokens_per_second if studio.prefill_tokens_per_second else 0
    )
    return studio.engine.at_work(turn.instance, turn.generation, seconds, studio.overflow, turn.request[RECORD])


def _note(turn: Turn) -> None:
    turn.request[RECORD].completion_tokens = turn.generation.completion_tokens


def _usage(turn: Turn) -> Any:
    if turn.script.usage == "counted":
        return wire.usage_of(turn.generation.prompt_tokens, turn.generation.completion_tokens)
    return turn.script.usage
