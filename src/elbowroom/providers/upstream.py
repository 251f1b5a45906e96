"""Asks an upstream over HTTP: requests whose answer streams, requests for JSON, and one question for many askers."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import aiohttp
import msgspec

from elbowroom.errors import ContextOverflow, ElbowroomError, StreamCut, UpstreamError, UpstreamTimeout
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.failures import Source, connection_failure, failure_of_response
from elbowroom.tokens.count import left_of
from elbowroom.tokens.files import whole_characters

CONNECT_SECONDS: Final = 1.5
FIRST_BYTE_SECONDS = 1800.0  # a large prompt on a slow machine is read for many minutes
SILENCE_SECONDS = 300.0  # in the middle of an answer
IDLE_SECONDS: Final = 2.0  # shorter than the five seconds after which LM Studio's server closes an idle connection
ANSWER_SECONDS: Final = 10.0
RETRY_AFTER_SECONDS: Final = 0.2
ERROR_BODY_SECONDS = 3.0
MAX_ERROR_BYTES: Final = 256 * 1024
LARGE_BODY_BYTES: Final = 64 * 1024
TURN_BYTES: Final = 256 * 1024
"""As much of a body is written before others have their turn."""
LARGE_ANSWER: Final = 512 * 1024
"""Bytes of an answer from which on it is read in a thread."""


def open_session() -> aiohttp.ClientSession:
    """Return the HTTP session for all upstreams: no proxy from the environment, no cookies, no total timeout."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        trust_env=False,
    )


class Reply(NamedTuple):
    """A response that has been read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """One upstream as all requests to it need it. Raises only ElbowroomErrors, in words for the person.

    `headers` are those that each request to it takes: its key.
    """

    def __init__(self, http: aiohttp.ClientSession, source: Source) -> None:
        self.http = http
        self.source = source
        self.headers = {"Authorization": f"Bearer {source.key}"} if source.key else {}

    async def post(self, url: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Send a request of a client; return a response with the status 200, which the caller reads and closes.

        Any other status is raised. A refused connection is tried once more, and so is a request that could not be
        written, since the upstream has just closed the connection that was kept: it has not had the whole of it.
        """
        facts = request_facts()
        facts.quotable = (*facts.quotable[:1], body)
        data = await in_parts(body)
        size = sum(map(len, data))
        headers = {"Content-Type": "application/json", "Content-Length": str(size), **self.headers}
        is_repeated = False
        while True:
            # Megabytes in one piece would hold up the event loop, and aiohttp would copy a file in memory as a whole.
            content = b"".join(data) if size < LARGE_BODY_BYTES else _pieces(data)
            try:
                async with asyncio.timeout(FIRST_BYTE_SECONDS):
                    response = await self.http.post(url, data=content, headers=headers, allow_redirects=False)
            except (aiohttp.ClientError, TimeoutError) as error:
                if is_repeated or not _has_not_arrived(error):
                    raise connection_failure(error, self.source) from error
                is_repeated = True
                await asyncio.sleep(RETRY_AFTER_SECONDS)
            else:
                if response.status != 200:
                    raise await self._refusal(response)
                return response

    async def _refusal(self, response: aiohttp.ClientResponse) -> ElbowroomError:
        """Return the error that a response with another status tells of, or its beginning where that does not end."""
        body = bytearray()
        try:
            async with asyncio.timeout(ERROR_BODY_SECONDS):
                while len(body) < MAX_ERROR_BYTES and (part := await response.content.readany()):
                    body += part
        except (aiohttp.ClientError, TimeoutError):
            pass  # what has come tells enough
        finally:
            response.close()
        return failure_of_response(response.status, bytes(body), response.headers, self.source)

    async def ask(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the parsed JSON of a 200 answer, None where the answer is a 404 or not JSON; in ten seconds.

        What is asked changes nothing, so that it is asked once more where the upstream closes the connection instead.
        """
        try:
            reply = await self.exchange(method, url, body, seconds=ANSWER_SECONDS)
        except StreamCut:
            reply = await self.exchange(method, url, body, seconds=ANSWER_SECONDS)
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise failure_of_response(reply.status, reply.body, reply.headers, self.source)
        try:
            return parse_upstream_json(reply.body)
        except ValueError:
            return None

    async def exchange(
        self, method: str, url: str, body: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> Reply:
        """Return a whole reply, whatever its status.

        It may take so many seconds in all; where these are None, as long as it takes to load a large model.
        """
        timeout = aiohttp.ClientTimeout(
            total=seconds, sock_connect=CONNECT_SECONDS, sock_read=FIRST_BYTE_SECONDS if seconds is None else None
        )
        headers = {"Content-Type": "application/json", **self.headers}
        data = None if body is None else _json_text(body)
        try:
            async with self.http.request(
                method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return Reply(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise connection_failure(error, self.source) from error


def _has_not_arrived(error: Exception) -> bool:
    """Tell whether a request has failed because there was no connection, or it was closed before all was written."""
    closed = aiohttp.ClientConnectionResetError
    return isinstance(error, aiohttp.ClientConnectorError | closed) or isinstance(error.__cause__, closed)


async def _pieces(data: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in data:
        for start in range(0, len(part), LARGE_BODY_BYTES):
            yield part[start : start + LARGE_BODY_BYTES]


async def in_parts(body: Mapping[str, Any]) -> list[bytes]:
    """Return an object as JSON text, a large one in parts that a thread has written: no copy is made of the whole."""
    return [_json_text(body)] if left_of(TURN_BYTES, body) > 0 else await asyncio.to_thread(lambda: [*_members(body)])


def _parts(value: Any) -> Iterator[bytes]:
    """Yield a large value as JSON text in parts: while one is written no other thread has its turn."""
    match value:
        case str() if len(value) > TURN_BYTES:
            yield b'"'
            yield from (_json_text(value[at : at + TURN_BYTES])[1:-1] for at in range(0, len(value), TURN_BYTES))
            yield b'"'
        case dict() if value and left_of(TURN_BYTES, value) <= 0:
            yield from _members(value)
        case list() | tuple() if value:
            for number, some in enumerate(_in_turns(value)):
                yield b"," if number else b"["
                yield from _parts(some[0]) if len(some) == 1 else (_json_text(some)[1:-1],)
            yield b"]"
        case _:
            yield _json_text(value)


def _members(value: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a large object in parts."""
    for number, (name, member) in enumerate(value.items()):
        yield b"%b%b:" % (b"," if number else b"{", _json_text(name))
        yield from _parts(member)
    yield b"}"


def _in_turns(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield items in groups: some that are small together, or one that is large."""
    if len(items) == 1 or left_of(TURN_BYTES, items) > 0:
        yield items
        return
    half = len(items) // 2
    yield from _in_turns(items[:half])
    yield from _in_turns(items[half:])


def _json_text(value: Any) -> bytes:
    """Return a value as JSON in UTF-8; half of a character, for which llama.cpp refuses a request, is replaced."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return whole_characters(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


class WatchedBody:
    """The body of a response, read piece by piece; closes the response after some seconds of silence.

    Time counts only while somebody reads: a slow client is not a silent upstream. A timeout around each read, or
    aiohttp's own, would cost a timer for every token; this has one timer, which looks again later.
    """

    def __init__(self, response: aiohttp.ClientResponse, source: Source) -> None:
        self._response = response
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._has_begun = self._has_expired = False
        self._waits_since: float | None = None
        self._timer = self._loop.call_later(min(FIRST_BYTE_SECONDS, SILENCE_SECONDS), self._look)

    async def read(self, *, has_begun: bool) -> bytes:
        """Return what has arrived, nothing at the end; an answer that `has_begun` must not be silent for long.

        Raises UpstreamTimeout and StreamCut.
        """
        self._waits_since, self._has_begun = self._loop.time(), has_begun
        try:
            return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise self._failure(error) from error
        finally:
            self._waits_since = None

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _failure(self, error: aiohttp.ClientError) -> ElbowroomError:
        name = self._source.name
        if self._has_expired or isinstance(error, TimeoutError):
            return UpstreamTimeout(
                f"{name} fell silent in the middle of its answer. It may still be computing; its log tells more."
            )
        kept = " The text so far is kept; ask again to go on." if self._has_begun else ""
        return StreamCut(f"{name} broke off the connection in the middle of its answer.{kept}")

    def _look(self) -> None:
        now, most = self._loop.time(), SILENCE_SECONDS if self._has_begun else FIRST_BYTE_SECONDS
        left = (now if self._waits_since is None else self._waits_since) + most - now
        if left > 0:
            self._timer = self._loop.call_later(min(left, SILENCE_SECONDS), self._look)
        else:
            self._has_expired = True
            self._response.close()


def parse_upstream_json(text: bytes) -> Any:
    """Return the value, with null for numbers that JSON does not have.

    Raises ValueError where it is no JSON, or nested too deeply to be read.
    """
    if len(text) > LARGE_ANSWER:
        with suppress(ValueError, RecursionError):  # what this parser refuses the other one may take
            return msgspec.json.decode(text)
    try:
        value, end = _READER.raw_decode(written := text.decode().removeprefix("\ufeff").strip())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(written):
        raise ValueError("more than one JSON value")
    return value


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


# One reader for all chunks: making one for each, as json.loads does with options, costs more than reading a chunk.
_READER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def error_in(body: Any) -> Any | None:
    """Return the error that a JSON body or event carries, None where it is not an error."""
    if not isinstance(body, dict):
        return None
    if error := body.get("error"):
        return error
    if body.get("object") == "error" or (body.get("type") == "error" and "message" in body):
        return body
    return None


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Asking(Generic[T]):
    """A question that is under way, and how many wait for its answer."""

    task: asyncio.Task[T]
    waiting: int = 0


class AskedOnce(Generic[T]):
    """Asks one question at a time for all that want its answer; they share the answer or the failure.

    A question is cancelled when the last of them has left.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._under_way: _Asking[T] | None = None

    async def answer(self) -> T:
        """Wait for the question that is under way, or ask it."""
        asking = self._under_way
        if asking is None or asking.task.done():
            asking = self._under_way = _Asking(asyncio.create_task(self._ask()))
        asking.waiting += 1
        try:
            await asyncio.wait([asking.task])
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                asking.task.cancel()
                if self._under_way is asking:
                    self._under_way = None
        return asking.task.result()

    async def new_answer(self) -> T:
        """Return the answer to a question that is asked after this call, or the failure of the one before it.

        All that call this while a question is under way share the next one.
        """
        before = self._under_way
        if before is not None and not before.task.done():
            await asyncio.wait([before.task])
            if not before.task.cancelled() and (failure := before.task.exception()) is not None:
                raise failure
        return await self.answer()

    def forget(self) -> None:
        """Let those that ask from now on ask anew; a question that is under way is answered to those that wait."""
        self._under_way = None

    async def aclose(self) -> None:
        """Cancel the question that is under way."""
        if self._under_way is not None:
            self._under_way.task.cancel()
            await asyncio.wait([self._under_way.task])


FRESH_SECONDS = 3.0
PATIENCE_SECONDS = 2.0


class RecentModels:
    """An upstream's list of models, which is asked for once for all that want it, and kept for a few seconds."""

    def __init__(
        self, fetch: Callable[[], Awaitable[Sequence[ModelInfo]]], clock: Callable[[], float], seconds: float
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._seconds = seconds
        self._asking = AskedOnce(self._read)
        self._models: Sequence[ModelInfo] | None = None
        self._read_at = 0.0
        self._changes = 0

    async def get(self) -> Sequence[ModelInfo]:
        """Return the list, at most `seconds` old. Raises what `fetch` raises."""
        return self._kept() or await self._asking.answer()

    async def get_new(self) -> Sequence[ModelInfo]:
        """Return a list that was asked for after this call. Raises what `fetch` raises.

        Where the upstream does not answer within two seconds, a list that `get` would return serves as well.
        """
        kept = self._kept()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if kept else None):
                return await self._asking.new_answer()
        except (TimeoutError, UpstreamTimeout):
            if not kept:
                raise
            return kept

    def forget(self) -> None:
        """Have the list read again at the next request: a model was loaded, unloaded or refused a prompt."""
        self._models = None
        self._changes += 1
        self._asking.forget()

    @contextmanager
    def forgotten_on_failure(self) -> Iterator[None]:
        """Forget the list where the upstream fails or refuses a prompt: something may have changed."""
        try:
            yield
        except (ContextOverflow, UpstreamError):
            self.forget()
            raise

    def _kept(self) -> Sequence[ModelInfo] | None:
        return self._models if self._clock() - self._read_at <= self._seconds else None

    async def _read(self) -> Sequence[ModelInfo]:
        """Read the list, and keep it unless something has changed meanwhile: it must not pass for fresh then."""
        changes_before = self._changes
        try:
            models = await self._fetch()
        except ElbowroomError:
            self._models = None
            raise
        if self._changes == changes_before:
            self._models, self._read_at = models, self._clock()
        return models
