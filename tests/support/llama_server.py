"""The llama.cpp server in a process of its own, with the prompts that it saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

PROGRAM = Path(__file__).with_name("llama_server_process.py")
START_TIMEOUT = 60.0  # seconds; the tiny model needs about one, a loaded machine gets more
STOP_TIMEOUT = 5.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How the engine runs.

    `context_length` is in tokens, and divided by `slots` unless these draw on one `shared_pool`, as those of
    LM Studio do. `inspection` turns on `/slots`, which tells the text of each slot, `/metrics` and `POST
    /props`. `more` has parameters by llama.cpp's own names.
    """

    context_length: int = 8192
    slots: int = 1
    shared_pool: bool = False
    jinja: bool = True
    inspection: bool = True
    model_id: str = "tiny"
    more: Json = field(default_factory=dict)


class EngineError(RuntimeError):
    """The engine did not start; the message ends with the last lines of its log."""


class LlamaServer:
    """One engine with one model, listening on 127.0.0.1 at a port that the system chose.

    `folder` receives the engine's log and the prompts that it saw. The process ends with `stop()`, with the
    `with` block, and with this process, however that ends.
    """

    def __init__(self, model: Path, folder: Path, options: Options | None = None) -> None:
        self.model = model
        self.options = options or Options()
        self.base_url = ""
        self._log = folder / "engine.log"
        self._prompts = folder / "prompts"
        self._prompts.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The number of the engine's process, running or ended."""
        assert self._process is not None, "the engine was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the engine's process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the engine and return when its model is loaded; a second or so."""
        self.stop()
        settings = {"model": str(self.model), "prompt_folder": str(self._prompts), **asdict(self.options)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAM, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"LLAMA_SERVER_SLOTS_DEBUG": "1"},
            )
        self.base_url = self._address(self._process)

    def stop(self) -> None:
        """End the engine, whatever it is doing, and wait until it is gone."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def prompts(self) -> list[str]:
        """The prompt of every completion asked for, oldest first, as the engine was about to tokenize it.

        The engine writes them itself, those that it then refuses included. It names them by the millisecond,
        so that of requests in the very same millisecond one remains; a `RecordingRelay` misses none.
        """
        files = sorted(self._prompts.iterdir())
        return [file.read_bytes().decode() for file in files]

    def forget_prompts(self) -> None:
        """Empty the record of prompts."""
        for file in self._prompts.iterdir():
            file.unlink()

    async def get(self, path: str) -> tuple[int, Any]:
        """Ask for `path` and return the status and the JSON answer."""
        async with aiohttp.ClientSession() as client, client.get(self.base_url + path) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Json) -> tuple[int, Any]:
        """Send a JSON body to `path` and return the status and the JSON answer."""
        async with aiohttp.ClientSession() as client, client.post(self.base_url + path, json=body) as answer:
            return answer.status, await answer.json()

    async def render(self, body: Json) -> str:
        """Return the prompt that the engine would make of a chat request."""
        answer = await self._ask("/apply-template", body)
        return str(answer["prompt"])

    async def count(self, body: Json) -> int:
        """Return how many tokens the prompt of a chat request has."""
        answer = await self._ask("/v1/chat/completions/input_tokens", body)
        return int(answer["input_tokens"])

    async def tokenize(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt as the engine makes them when it reads one, BOS included."""
        answer = await self._ask("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})
        return list(answer["tokens"])

    async def one_tool_call(self) -> Json:
        """Return what to add to a chat request with tools so that the model calls a tool, exactly once.

        The call itself is shaped by the engine's grammar; text in its arguments needs an `enum` or a
        `maxLength`, or it goes on for ever. Only for a model whose chat template opens calls with the token
        `<tool_call>` and ends messages with `<|im_end|>`.
        """
        (call,), (end,) = await self.tokenize("<tool_call>"), await self.tokenize("<|im_end|>")
        preferred = [[call, 100], [end, 200]]  # the grammar lets the end come only after a call
        return {"tool_choice": "required", "parallel_tool_calls": False, "logit_bias": preferred}

    async def _ask(self, path: str, body: Json) -> Json:
        status, answer = await self.post(path, body)
        if status != 200:
            raise ValueError(f"POST {path} was answered with {status}: {answer}")
        return dict(answer)

    def _address(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        deadline = threading.Timer(START_TIMEOUT, process.kill)
        deadline.start()
        address = process.stdout.readline().strip()
        deadline.cancel()
        deadline.join()
        if not address:
            self.stop()
            last_lines = self._log.read_text(errors="replace")[-2000:]
            raise EngineError(f"The engine did not start with {self.model}. Its log ends:\n{last_lines}")
        return address
