"""The simulator: its switches, its state, starting and stopping."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from aiohttp import web

from elbowroom.demo import refusals, wire
from elbowroom.demo.engine import Engine
from elbowroom.demo.journal import Disconnect, Journal, RecordedRequest
from elbowroom.demo.models import Downloads, SimulatedModel, demo_models
from elbowroom.demo.overflow import Overflow
from elbowroom.demo.pruner import summary_of_order
from elbowroom.demo.residency import Instance, Residency
from elbowroom.demo.routes import application
from elbowroom.demo.rpc import RpcCall
from elbowroom.demo.script import Body, OnRequest, Script, ScriptQueue, When
from elbowroom.demo.tokenizer import CountingWith, CountTokens, SimulatedTokenizer, Tokenizer


@dataclass(slots=True, eq=False)
class SimulatedLMStudio:
    """An LM Studio on 127.0.0.1, as an async context manager; its fields are switches, set at any time.

    Except `models`, `port` (0: any free one) and `clock`, which are read when it is made. Speeds are in
    tokens a second, 0 is as fast as possible. `native_api`: `v0` is an app without `/api/v1`, `none` one
    without `/api`. `http_server` off leaves only what the internal port serves, `rpc` off no websockets.
    With `prefix_cache` only those tokens take time that come after the beginning shared with the instance's
    last prompt; with `tells_cached` the usage tells how many it shares. `offered` are models that can be
    downloaded, each in `downloads.seconds`. `on_request` is asked for requests that no queued script fits.
    `count_tokens` and `split_tokens` override those of `tokenizer`.
    """

    models: Sequence[SimulatedModel] = field(default_factory=demo_models)
    port: int = field(default=0, kw_only=True)
    tokens_per_second: float = field(default=0.0, kw_only=True)
    prefill_tokens_per_second: float = field(default=0.0, kw_only=True)
    overflow: Overflow = field(default_factory=Overflow, kw_only=True)
    just_in_time: bool = field(default=True, kw_only=True)
    auto_evict: bool = field(default=True, kw_only=True)
    idle_ttl_seconds: float = field(default=3600.0, kw_only=True)
    api_token: str | None = field(default=None, kw_only=True)
    cors: bool = field(default=False, kw_only=True)
    native_api: Literal["v1", "v0", "none"] = field(default="v1", kw_only=True)
    http_server: bool = field(default=True, kw_only=True)
    rpc: bool = field(default=True, kw_only=True)
    prefix_cache: bool = field(default=False, kw_only=True)
    tells_cached: bool = field(default=False, kw_only=True)
    on_request: OnRequest | None = field(default=None, kw_only=True)
    tokenizer: Tokenizer = field(default_factory=SimulatedTokenizer, kw_only=True)
    count_tokens: CountTokens | None = field(default=None, kw_only=True)
    split_tokens: Callable[[str], list[str]] | None = field(default=None, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    offered: Sequence[SimulatedModel] = field(default=(), kw_only=True)
    residency: Residency = field(init=False)
    downloads: Downloads = field(init=False)
    scripts: ScriptQueue = field(default_factory=ScriptQueue, init=False)
    journal: Journal = field(default_factory=Journal, init=False)
    engine: Engine = field(default_factory=Engine, init=False)
    rpc_calls: list[RpcCall] = field(default_factory=list, init=False)
    _runner: web.AppRunner | None = field(default=None, init=False)
    _answers: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.residency = Residency(self.models, self.clock)
        self.downloads = Downloads(self.clock)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on `port`; the first free port found stays the simulator's own over stop and start."""
        self.journal.closing = False
        self._runner = web.AppRunner(
            application(self), handler_cancellation=True, access_log=None, shutdown_timeout=0.05
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and every connection, as a process that ends; the models and the journal stay."""
        self.journal.closing = True
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self.engine.stop()

    @property
    def base_url(self) -> str:
        """Its address, without a path: `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request so far, in the order of arrival."""
        return self.journal.requests

    @property
    def chats(self) -> list[RecordedRequest]:
        """All chat requests so far, in the order of arrival."""
        return [request for request in self.requests if request.path.partition("?")[0] == "/v1/chat/completions"]

    @property
    def disconnects(self) -> list[Disconnect]:
        """The clients that left before their answer was complete."""
        return self.journal.disconnects

    @property
    def open_requests(self) -> int:
        """How many requests are being answered right now."""
        return self.journal.open

    @property
    def readings(self) -> int:
        """How many prompts are being read or wait to be read, those of clients that left included."""
        return len(self.engine.readings)

    def enqueue(self, *scripts: Script | str, when: When | None = None, repeat: bool = False) -> None:
        """Add answers, used in order, one a chat request that reaches the model; a str is one text.

        With `when`, a script waits for a request whose body it holds for. With `repeat` it is never used
        up. A request that is refused uses none up.
        """
        for script in scripts:
            self.scripts.add(Script(script) if isinstance(script, str) else script, when, repeat=repeat)

    def hooked(self, body: Body) -> Script | None:
        """Return the script that `on_request` gives for a request."""
        answer = self.on_request(body) if self.on_request is not None else None
        return Script(answer) if isinstance(answer, str) else answer

    def load(self, key: str, context_length: int | None = None) -> Instance:
        """Load an instance at once, as a person does by hand; raise ModelNotFound for an unknown key."""
        return self.residency.load(key, context_length)

    def unload(self, key: str) -> None:
        """Unload an instance by its id, or all of a model; their running requests fail."""
        self.residency.unload(key)

    def crash(self, key: str, message: str = refusals.CRASHED) -> None:
        """Crash an instance, or all of a model; their running requests fail with the message."""
        self.residency.unload(key, message)

    def reload(self, key: str, context_length: int) -> Instance:
        """Unload the model and load it again with another window."""
        self.residency.unload(key)
        return self.residency.load(key, context_length)

    async def wait_until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Return as soon as the condition holds; raise TimeoutError if it does not within so many seconds."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - a condition may be about anything
                await asyncio.sleep(0.002)

    def tokenizer_of(self, model: SimulatedModel) -> Tokenizer:
        """Return the tokenizer that counts for this model."""
        if model.tokenizer is not None:
            return model.tokenizer
        if self.count_tokens is None and self.split_tokens is None:
            return self.tokenizer
        return CountingWith(self.tokenizer, self.count_tokens, self.split_tokens)

    def heading(self, kind: str, instance: Instance) -> wire.Heading:
        """Return the heading of the next answer, with a unique id that begins with `kind`."""
        self._answers += 1
        digest = hashlib.sha256(f"{self.port}/{self._answers}".encode()).hexdigest()
        return wire.Heading(f"{kind}-{digest[:22]}", int(time.time()), instance.id)


def demo_studio(port: int = 0) -> SimulatedLMStudio:
    """Return the simulator of `elbowroom demo`: its models, at the pace of a laptop."""
    return SimulatedLMStudio(
        port=port,
        tokens_per_second=35,
        prefill_tokens_per_second=1_500,
        prefix_cache=True,
        on_request=summary_of_order,
    )
