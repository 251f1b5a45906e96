"""Runs llama.cpp's own server tests twice each: directly at the engine, and through elbowroom, which passes on.

It is copied as `conftest.py` beside their `utils.py`, and takes the place of what starts their server and asks it. The
engine is that of our tests with its tiny model, whose words and counts are others than those that they name: the
direct run learns them, and the run through elbowroom has to see the same. What elbowroom does not serve is asked of
the engine.
"""

import json
import os
import re
import subprocess
import sys
import threading
import types
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import openai
import pytest

sys.modules["wget"] = types.ModuleType("wget")  # which nothing here downloads with
utils: Any = import_module("utils")

SETTINGS: Final[dict[str, Any]] = json.loads(os.environ["LLAMA_CPP_TESTS"])
"""The engine's `program`, `model` and `port`, the `folder` of its log, elbowroom's port, and where to `report`."""
SERVED: Final = ("/chat/completions", "/v1/chat/completions", "/v1/completions", "/chat/completions/input_tokens")
PROVIDER: Final = "engine"
LEARNED: Final = ("n_prompt",)
"""Parameters of their tests that name counts of their model."""
SHAPED: Final = ("format", "schema", "grammar", "logit_bias")
"""In the names of tests whose answers have to end by themselves; others are as long as they may be, as theirs are."""
START_SECONDS: Final = 60.0


class State:
    """How the running test goes: its way, what the direct one has shown of the model, how often elbowroom was asked."""

    way = "direct"
    seen: Final = defaultdict[str, list[Any]](list)
    test = ""
    place = 0
    asked = 0

    @classmethod
    def agrees(cls, value: Any) -> bool:
        """Learn a value in the direct run; tell in the other whether it is the same."""
        values = cls.seen[cls.test]
        if cls.way == "direct":
            values.append(value)
            return True
        cls.place += 1
        return cls.place <= len(values) and bool(values[cls.place - 1] == value)


class Learned:
    """Stands for a number of their model."""

    def __eq__(self, other: object) -> bool:
        return State.agrees(other)

    __hash__ = None  # type: ignore[assignment]  # like other values that can be changed


def start(self: Any, timeout_seconds: float = START_SECONDS) -> None:
    """Start the engine as their server is set up; skip the test where its model cannot be had."""
    if self.model_hf_repo != "ggml-org/test-model-stories260K" or self.models_dir:
        pytest.skip(f"needs the model {self.model_hf_repo or 'of a router'}, which is downloaded")
    template = Path(self.chat_template_file).read_text(encoding="utf-8") if self.chat_template_file else None
    more = {
        "port": SETTINGS["port"],
        "n_batch": self.n_batch,
        "n_ubatch": self.n_ubatch,
        "n_predict": self.n_predict,
        "chat_template": template or self.chat_template,
        "sampling.seed": self.seed,
        "sampling.temp": self.temperature,
        "sampling.ignore_eos": not any(word in State.test for word in SHAPED),
        "verbosity": 100 if self.debug else None,
    }
    options = {
        "model": SETTINGS["model"],
        "prompt_folder": "",
        "context_length": self.n_ctx or 4096,
        "slots": self.n_slots or 1,
        "shared_pool": bool(self.kv_unified),
        "jinja": self.jinja is not False,
        "inspection": True,
        "model_id": self.model_alias,
        "more": {name: value for name, value in more.items() if value is not None},
    }
    with Path(SETTINGS["folder"], "engine.log").open("ab") as log:
        self.process = subprocess.Popen(
            [sys.executable, SETTINGS["program"], json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"LLAMA_SERVER_DEBUG_FAKE_TIMING": "1"},
        )
    deadline = threading.Timer(timeout_seconds, self.process.kill)
    deadline.start()
    address = self.process.stdout.readline()
    deadline.cancel()
    assert address, "the engine did not start"
    self.server_port = SETTINGS["port"]
    utils.server_instances.add(self)


def stop(self: Any) -> None:
    """End the engine and wait until it is gone."""
    utils.server_instances.discard(self)
    if self.process is not None:
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()
        self.process = None


def make_url(self: Any, path: str, host: str | None = None) -> str:
    """Return the address for a path: elbowroom's where the test runs through it, and it serves that."""
    is_ours = State.way == "through" and path in SERVED
    State.asked += is_ours
    return f"http://127.0.0.1:{SETTINGS['elbowroom'] if is_ours else SETTINGS['port']}{path}"


def named(data: Any, path: str, alias: str | None) -> Any:
    """Return a body with the model's name, which elbowroom needs and llama.cpp ignores."""
    if State.way == "direct" or path not in SERVED or not isinstance(data, dict):
        return data
    return {**data, "model": f"{PROVIDER}/{alias}"}


MAKE_REQUEST: Final = utils.ServerProcess.make_request
MAKE_STREAM: Final = utils.ServerProcess.make_stream_request


def make_request(self: Any, method: str, path: str, data: Any = None, *rest: Any, **more: Any) -> Any:
    """Ask as they do, by the model's name."""
    return MAKE_REQUEST(self, method, path, named(data, path, self.model_alias), *rest, **more)


def make_stream_request(self: Any, method: str, path: str, data: Any = None, *rest: Any, **more: Any) -> Iterator[Any]:
    """Ask as they do; the model's name comes back as it was sent, and they know the part behind the provider."""
    for chunk in MAKE_STREAM(self, method, path, named(data, path, self.model_alias), *rest, **more):
        if "model" in chunk:
            chunk["model"] = chunk["model"].removeprefix(f"{PROVIDER}/")
        yield chunk


class OpenAI(openai.OpenAI):
    """The client of OpenAI, at elbowroom where the test runs through it."""

    def __init__(self, **named: Any) -> None:
        if State.way == "through":
            named["base_url"] = f"http://127.0.0.1:{SETTINGS['elbowroom']}/v1"
        super().__init__(**named, max_retries=0)

    def _prepare_options(self, options: Any) -> Any:
        if State.way == "through" and isinstance(options.json_data, dict):
            State.asked += 1
            [server] = utils.server_instances
            options.json_data = {**options.json_data, "model": f"{PROVIDER}/{server.model_alias}"}
        return super()._prepare_options(options)


for name in (start, stop, make_url, make_request, make_stream_request):
    setattr(utils.ServerProcess, name.__name__, name)
utils.OpenAI = OpenAI
utils.match_regex = lambda _, text: State.agrees(text)


@pytest.fixture(autouse=True, params=["direct", "through"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each test both ways, and end its engine."""
    State.way, State.place, State.asked = request.param, 0, 0
    State.test = key_of(request.node.nodeid)
    yield
    for server in list(utils.server_instances):
        server.stop()


def key_of(nodeid: str) -> str:
    """Return the name of a test without its way."""
    return re.sub(r"(\[)?(direct|through)(?(1)(\]|-)|-)", lambda found: "[" if found[3] == "-" else "", nodeid, count=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let numbers of their model be learned, and each test run directly first."""
    for item in items:
        params = getattr(item, "callspec", None)
        for parameter in LEARNED:
            if params is not None and parameter in params.params:
                params.params[parameter] = Learned()
    items.sort(key=lambda item: item.callspec.params["way"])  # type: ignore[attr-defined]  # each of these has one


OUTCOMES: Final = defaultdict[str, dict[str, Any]](dict)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note how a test has ended, and why."""
    report = yield
    told: Any = report
    if told.when == "call" or told.outcome != "passed":
        outcome = OUTCOMES[key_of(item.nodeid)]
        current = {"outcome": told.outcome, "why": str(told.longrepr or "")[-1500:], "asked": State.asked}
        outcome[item.callspec.params["way"]] = current  # type: ignore[attr-defined]  # each of these has one
    return report


def pytest_sessionfinish() -> None:
    """Write what came of all tests."""
    Path(SETTINGS["report"]).write_text(json.dumps(OUTCOMES), encoding="utf-8")
