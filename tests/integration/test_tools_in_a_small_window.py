"""An agent with a small window reads a huge file and a whole vault: nothing floods the window, and nothing is lost."""

import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, chunks_of, stream_bytes
from own_tools import own_tool
from request_checks import assert_fits, assert_little_is_read_again, assert_paired
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import Body, Message, orders_of, small_window, turns_of
from vaults import changes_of

from elbowroom.agents.tools.tool import ServerTool, ToolResult
from elbowroom.agents.tools.vault import vault_tools
from elbowroom.context.outputs.output import ref_to
from elbowroom.demo import Script, ToolCall
from elbowroom.demo.journal import RecordedRequest
from elbowroom.server.state import SHARED

WINDOW = 8192
QUESTION = "Read the log of the ferry and my notes, and tell me what went wrong."
ANSWER = "The engine of the ninth boat went wrong."
WORDS = [
    "harbour",
    "ferry",
    "captain",
    "engine",
    "calm",
    "crossing",
    "pier",
    "winter",
    "garden",
    "seeds",
    "boat",
    "half",
    "full",
    "noted",
    "weather",
]
REF = re.compile(r'(?:ref_id="|ref=)([a-z0-9]{12})\b')
SAID = 200  # characters from which a result has a reference


@dataclass
class Journey:
    """A model that makes so many calls, one or two a step, over a log and a vault; and what the tools returned."""

    calls: int
    log: str
    notes: int
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    made: int = 0
    returned: list[str] = field(default_factory=list)

    def says(self, body: Body) -> Script | str:
        """Make the next calls, or answer."""
        if self.made >= self.calls:
            return ANSWER
        refs = REF.findall("\n".join(content_of(message) for message in body["messages"]))
        wanted = [self._next(refs[-1] if refs else None) for _ in range(1 + (self.chance.random() < 0.15))]
        self.made += len(wanted)
        return Script("Looking on. ", *wanted) if self.chance.random() < 0.3 else Script(*wanted)

    def _next(self, ref: str | None) -> ToolCall:
        note = f"note {self.chance.randrange(self.notes)}"
        choices = [
            ToolCall("vault_read", {"path": note}),
            ToolCall("vault_search", {"query": self.chance.choice(WORDS), "limit": 40}),
            ToolCall("report", {"number": self.made}),
            ToolCall("read_log", {}),
        ]
        if ref is not None:
            choices += [
                ToolCall("tool_output_cache", {"ref_id": ref, "offset": self.chance.randrange(1, 400)}),
                ToolCall("tool_output_cache_grep", {"ref_id": ref, "pattern": "engine.*(winter|calm)+"}),
            ]
        return choices[3] if not self.made else self.chance.choice(choices)

    def tools(self, folder: Path) -> list[ServerTool]:
        """Return the tools: the log, reports of many sizes, and those of a vault."""

        @own_tool
        async def read_log() -> str:
            """Read the ferry's whole log."""
            return self.log

        @own_tool
        async def report(number: int) -> str:
            """Read a report."""
            chance = random.Random(number)
            lines = [" ".join(chance.choices(WORDS, k=11)) for _ in range(chance.choice((1, 8, 60, 600)))]
            return f"Report {number}\n" + "\n".join(lines)

        notes = {f"f{n % 10}/note {n}.md": f"# Note {n}\n\n" + note_text(n) for n in range(self.notes)}
        vault = vault_tools(["vault.read", "vault.search"], changes_of(folder, notes), may_write=False)
        return [self._recorded(tool) for tool in (read_log, report, *vault)]

    def _recorded(self, tool: ServerTool) -> ServerTool:
        call: Callable[[Mapping[str, Any]], Awaitable[str | ToolResult]] = tool.call

        async def recorded(arguments: Mapping[str, Any]) -> str | ToolResult:
            result = await call(arguments)
            self.returned.append(result if isinstance(result, str) else result.text)
            return result

        return replace(tool, call=recorded)


def note_text(number: int) -> str:
    """Return the text of a note, a few lines to a few pages."""
    chance = random.Random(number)
    return "\n".join(" ".join(chance.choices(WORDS, k=14)) for _ in range(chance.choice((3, 12, 40))))


def log_of(size: int) -> str:
    """Return a log of about so many bytes, with one line that is a fifth of it."""
    chance = random.Random(size)
    page = "".join(f"{n}: {' '.join(chance.choices(WORDS, k=12))}\n" for n in range(2000))
    pages = [f"page {number}\n{page}" for number in range(max(1, size * 4 // 5 // len(page)))]
    return "".join(pages) + "x" * (size // 5) + "\nthe last line, without a break"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "size", "notes"),
    [
        pytest.param(30, 500_000, 60, id="short"),
        pytest.param(100, 50_000_000, 10_000, id="whole", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
async def test_a_huge_file_and_a_vault(tmp_path: Path, calls: int, size: int, notes: int) -> None:
    """No request overflows, every line of every output can be read by its ref, and little is read again."""
    journey = Journey(calls, log_of(size), notes)
    tools = journey.tools(tmp_path)
    agent = f"{AGENT}max_turns = 200\n"
    async with small_window(tmp_path, journey.says, window=WINDOW, agents=agent, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        body = {"model": "writer", "messages": [{"role": "user", "content": QUESTION}], "stream": True}
        said = text_of(chunks_of(await stream_bytes(served, body)))
        assert said.endswith(ANSWER)
        assert journey.made >= calls
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
        assert_little_is_read_again([turn.body["messages"] for turn in turns_of(studio)])
        await assert_kept(served, journey.returned)
        await assert_reachable(served, turns_of(studio)[-1], journey.returned)


async def assert_kept(served: Served, returned: Sequence[str]) -> None:
    """Fail where an output cannot be read back byte for byte."""
    outputs = served.app[SHARED].store.tool_outputs
    for text in set(returned):
        ref = ref_to("", text)
        assert await outputs.find("", ref.id) == ref
        async with aclosing(outputs.blocks("", ref.id)) as blocks:  # type: ignore[type-var]
            assert "".join([block.text async for block in blocks]) == text


async def assert_reachable(served: Served, last: RecordedRequest, returned: Sequence[str]) -> None:
    """Fail where the model could not find an output: it stands in the prompt, or a ref to it, or a list of refs."""
    outputs = served.app[SHARED].store.tool_outputs
    prompt = "\n".join(content_of(message) for message in last.body["messages"])
    known: set[str] = set()
    todo = REF.findall(prompt)
    while todo:
        ref_id = todo.pop()
        if ref_id in known:
            continue
        known.add(ref_id)
        async with aclosing(outputs.blocks("", ref_id)) as blocks:  # type: ignore[type-var]
            first = "".join([block.text async for block in blocks][:1])
        if first.startswith("["):
            todo += REF.findall(first)
    lost = [text for text in set(returned) if len(text) >= SAID and text not in prompt]
    assert not [text[:80] for text in lost if ref_to("", text).id not in known]


async def test_results_of_the_client_are_kept_too(tmp_path: Path) -> None:
    """What the client's tools returned is viewed and kept as well, the same in the next turn, which sends it whole."""
    lines = "\n".join(f"{number}: {WORDS[number % 14]} {WORDS[number % 5]}" for number in range(3000))
    call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[Message] = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": lines},
    ]
    agent = f'{AGENT}tools = ["tool_output_cache"]\n'
    async with small_window(tmp_path, lambda body: ANSWER, window=WINDOW, agents=agent) as (served, studio):
        body = {"model": "writer", "messages": messages, "stream": True}
        assert text_of(chunks_of(await stream_bytes(served, body))) == ANSWER
        more: list[Message] = [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And now?"}]
        await stream_bytes(served, {**body, "messages": [*messages, *more]})
        first, second = turns_of(studio)
        assert not orders_of(studio)
        assert_fits(first)
        assert second.body["messages"][: len(first.body["messages"])] == first.body["messages"]
        assert f'ref_id="{ref_to("", lines).id}"' in content_of(first.body["messages"][-1])
        await assert_kept(served, [lines])
