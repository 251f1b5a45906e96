"""Renders prompts without blocking the event loop or trusting a template that is not known.

A template known by its hash renders in this process. Any other renders in a worker process with limited memory
(where the system has such limits), which is killed and replaced when a template takes too long.
"""

import asyncio
import json
import operator
import os
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Self

from elbowroom.caches import HISTORIES
from elbowroom.tokens.errors import ConversationNotContinuable, TemplateFailed, TemplateOverran
from elbowroom.tokens.templates import (
    KNOWN_TEMPLATES,
    ChatPrompt,
    ChatRequest,
    Message,
    canonical_message,
    canonical_tools,
)
from elbowroom.tokens.worker import ERROR, ERRORS, LENGTH_BYTES, TEXT, LastPrompt

INLINE_MESSAGES: Final = 64
"""A known template renders this many messages in about a millisecond; more go to a thread."""
CHANCES: Final = 2
"""How often a template may be killed before it is not tried again: once may be the machine's fault."""


class TemplateRenderer:
    """Renders prompts for one event loop; close it with `aclose`.

    `deadline` is the time in seconds that an unknown template may take, `start_deadline` the time that its worker may
    take to start, `memory` the bytes that the worker may have. `known` are the hashes of templates that are trusted.
    """

    def __init__(
        self,
        *,
        deadline: float = 5.0,
        start_deadline: float = 60.0,
        memory: int = 512 * 2**20,
        known: Collection[str] = KNOWN_TEMPLATES,
    ) -> None:
        self._deadline = deadline
        self._start_deadline = start_deadline
        self._memory = memory
        self._known = known
        self._turn = asyncio.Lock()
        self._worker: WorkerProcess | None = None
        self._kills: dict[str, int] = {}

    async def render(self, prompt: ChatPrompt, request: ChatRequest) -> str:
        """Return the prompt for a request; the request is only read.

        Raises `TemplateRefused` where the template says no to the messages, `TemplateOverran` where it went past a
        limit, `TemplateFailed` where it is broken, and `ConversationNotContinuable`.
        """
        try:
            if prompt.sha256 not in self._known:
                return await self._render_in_worker(prompt, request)
            is_short = len(request.messages) <= INLINE_MESSAGES
            if prompt.is_warm and (is_short or prompt.template.knows(request.messages)):
                return prompt.text(request)
            # A thread shares the interpreter's lock, but hands it over every few milliseconds: the loop stays alive.
            return await asyncio.to_thread(prompt.text, request)
        except RecursionError:
            raise TemplateFailed(prompt.name, "the messages are nested too deeply") from None

    async def aclose(self) -> None:
        """End the worker; a later `render` starts another one."""
        async with self._turn:
            if self._worker is None:
                return
            worker, self._worker = self._worker, None
            await worker.end()

    async def _render_in_worker(self, prompt: ChatPrompt, request: ChatRequest) -> str:
        if self._kills.get(prompt.sha256, 0) >= CHANCES:
            raise TemplateOverran(prompt.name, f"it had to be stopped {CHANCES} times and is not tried again")
        messages = HISTORIES.of(request.messages).each(canonical_message)
        async with self._turn:
            worker = await self._ready_worker(prompt.name)
            order = order_for(prompt, request, messages, worker.last.messages, self._deadline)
            try:
                async with asyncio.timeout(self._deadline):
                    reply = parsed(await worker.ask(order), worker.last.text)
            except TimeoutError:
                raise await self._stopped(prompt, f"it took more than {self._deadline:g} seconds") from None
            except (OSError, EOFError, ValueError):
                raise await self._stopped(prompt, "it broke the process that rendered it") from None
            except BaseException:
                await self._kill()
                raise
            if isinstance(reply, str):
                worker.last.keep(messages, reply, order)
        self._kills.pop(prompt.sha256, None)
        return text_from(reply, prompt.name)

    async def _ready_worker(self, name: str) -> "WorkerProcess":
        if self._worker is not None and self._worker.is_running:
            return self._worker
        try:
            async with asyncio.timeout(self._start_deadline):
                self._worker = await WorkerProcess.start(self._memory)
                await self._worker.ready()
        except (OSError, EOFError) as error:
            await self._kill()
            raise TemplateFailed(name, f"the process that renders it does not start: {error!r}") from None
        except BaseException:
            await self._kill()
            raise
        return self._worker

    async def _stopped(self, prompt: ChatPrompt, reason: str) -> TemplateOverran:
        self._kills[prompt.sha256] = self._kills.get(prompt.sha256, 0) + 1
        await self._kill()
        return TemplateOverran(prompt.name, reason)

    async def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()


def order_for(
    prompt: ChatPrompt, request: ChatRequest, messages: list[Message], before: list[Message], deadline: float
) -> bytes:
    """Write the order for a request with its canonical `messages`, so that no image travels.

    Those at its beginning that the worker remembers from `before`, the very same objects, are only counted.
    """
    shared = next((at for at, differs in enumerate(map(operator.is_not, messages, before)) if differs), None)
    shared = min(len(messages), len(before)) if shared is None else shared
    order = {
        "source": prompt.source,
        "name": prompt.name,
        "bos_token": prompt.bos_token,
        "eos_token": prompt.eos_token,
        "now": prompt.clock().isoformat(),
        "seconds": deadline + 1,
        "shared": shared,
        "messages": messages[shared:],
        "tools": canonical_tools(request.tools),
        "arguments": dict(request.arguments),
        "add_generation_prompt": request.add_generation_prompt,
    }
    return json.dumps(order).encode()


def parsed(reply: bytes, before: str) -> str | dict[str, str]:
    """Return the text of a reply, which may begin as the one `before`, or its error object.

    Raises `ValueError` where it is neither.
    """
    if reply.startswith(TEXT):
        rest = len(TEXT) + LENGTH_BYTES
        shared = int.from_bytes(reply[len(TEXT) : rest], "big")
        if shared > len(before):
            raise ValueError(f"{shared} letters of {len(before)}")
        return before[:shared] + reply[rest:].decode("utf-8", "surrogatepass")
    error: dict[str, str] = json.loads(reply.removeprefix(ERROR))
    return error


def text_from(reply: str | dict[str, str], name: str) -> str:
    """Return the text of a reply, or raise its error."""
    if isinstance(reply, str):
        return reply
    reason = reply["reason"]
    if reply["error"] == "not continuable":
        raise ConversationNotContinuable(reason)
    raise ERRORS.get(reply["error"], TemplateFailed)(name, reason)


LONGEST_REPLY: Final = 128 * 2**20
BUFFERED: Final = 2**20
"""Bytes of a reply that are buffered."""
ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "SYSTEMROOT", "TEMP")
"""The environment variables that the worker gets: enough to start Python, no tokens and keys."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerProcess:
    """A running worker. After a cancelled `ask` it has to be killed: its reply would still come.

    `last` is the prompt that it remembers.
    """

    process: Process
    orders: StreamWriter
    replies: StreamReader
    last: LastPrompt = field(default_factory=LastPrompt)

    @classmethod
    async def start(cls, memory: int) -> Self:
        """Start a worker that may take so many bytes of memory; `ready` tells when it can be asked."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "elbowroom.tokens.worker", str(memory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=BUFFERED,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )
        if process.stdin is None or process.stdout is None:
            raise OSError("it has no pipes")
        return cls(process, process.stdin, process.stdout)

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self.process.returncode is None

    async def ready(self) -> None:
        """Wait until the worker has loaded what it needs. Raises `EOFError` when it ends instead."""
        await self._read_frame()

    async def ask(self, order: bytes) -> bytes:
        """Send an order and return the reply. Raises `OSError`, `EOFError` or `ValueError` when the worker breaks."""
        self.orders.write(len(order).to_bytes(LENGTH_BYTES, "big") + order)
        await self.orders.drain()
        return await self._read_frame()

    async def end(self, patience: float = 2.0) -> None:
        """Let the worker end by itself, and kill it when it doesn't."""
        self.orders.close()
        try:
            async with asyncio.timeout(patience):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the worker at once."""
        if self.is_running:
            self.process.kill()
        await self.process.wait()

    async def _read_frame(self) -> bytes:
        length = int.from_bytes(await self.replies.readexactly(LENGTH_BYTES), "big")
        if length > LONGEST_REPLY:
            raise ValueError(f"a reply of {length} bytes")
        return await self.replies.readexactly(length)
