"""Plays conversations through a real elbowroom, in front of a simulated LM Studio, and looks at what the model gets."""

import logging
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from compacting import qwen
from controls import Summarised
from pruners import Agent, is_order
from recalled import recalled
from serving import Served, serve, settings_for
from sizes import TOOLS, size_of, size_of_tools, tokens

from elbowroom.context.budget import Budget
from elbowroom.context.transcript import Message
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer, Text, ToolCall
from elbowroom.logs.formats import FIELDS
from elbowroom.quality.conversations import Known
from elbowroom.server.state import Timing

MODEL: Final = "qwen2.5-7b-instruct"
AGENT: Final = f'[[agents]]\nid = "writer"\nmodel = "{MODEL}"\ntools = ["tool_output_cache"]\n'
COMPACTION: Final = "[compaction]\nbackground = false\n"
COUNTS: Final = (1, 3, 10)
"""After how many compactions a conversation is looked at."""


class Counted(SimulatedTokenizer):
    """The simulated engine's tokenizer, with the counts of a real vocabulary."""

    def count_tokens(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> int:
        """Return the tokens of the whole prompt."""
        return qwen().count_chat(messages, tools or ()).tokens


@dataclass(frozen=True, slots=True)
class Looked:
    """What the model gets right after a compaction, and everything that was said before it.

    `reread` is how many tokens the engine had to read anew for that request, the pruning agent's included. `texts` are
    the outputs that can be read by a reference in the prompt. `summarised` is what the model would get after one plain
    summary each time by the same agent, which has made up `invented_without` there.
    """

    compactions: int
    rung: str
    prompt: Sequence[Message]
    size: int
    history: Sequence[Message]
    known: Known
    texts: Sequence[str]
    reread: int
    invented: frozenset[str]
    summarised: Sequence[Message]
    invented_without: frozenset[str]


class Compactions(logging.Handler):
    """Notes the rungs of the compactions as the log tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.rungs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note one."""
        fields = getattr(record, FIELDS, {})
        if fields.get("event") == "compacted":
            self.rungs.append(fields["rung"])


class Conversation(Protocol):
    """A conversation that can be played: its messages turn by turn, each with what is known at its end."""

    def turns(self, window: int) -> Iterator[tuple[list[Message], Known]]:
        """Yield the turns."""


@dataclass(slots=True)
class Stage:
    """A running pair of both; `says` is what the model says next, `agent` who prunes."""

    served: Served
    studio: SimulatedLMStudio
    compactions: Compactions
    window: int
    model: str = "writer"
    tools: list[dict[str, Any]] = field(default_factory=list)
    says: Script = field(default_factory=lambda: Script(Text("Yes.", whole=True)))
    agent: Agent | None = None
    _outputs: dict[str, str] = field(default_factory=dict)

    def on_request(self, body: dict[str, Any]) -> Script:
        """Answer as the conversation goes on, and orders as the pruning agent does."""
        if is_order(body) and self.agent is not None:
            return Script(Text(self.agent.answer(body), whole=True))
        return self.says

    async def send(self, history: Sequence[Message]) -> int:
        """Send the whole conversation as a client does; return the tokens of the prompt that went upstream."""
        body = {"model": self.model, "messages": history} | ({"tools": self.tools} if self.tools else {})
        async with self.served.http.post(self.served.chat_url, json=body) as response:
            answer = await response.json()
        if response.status != 200:
            raise RuntimeError(f"elbowroom has answered {response.status}: {answer}")
        return int(answer["usage"]["prompt_tokens"])

    async def reachable(self, prompt: Sequence[Message]) -> list[str]:
        """Return the outputs that can be read by a reference in the prompt, and by the references in lists of them."""
        found: dict[str, str] = {}
        waiting = list(refs_in("\n".join(str(message.get("content") or "") for message in prompt)))
        while waiting:
            ref = waiting.pop()
            if ref not in found:
                found[ref] = await self._output(ref)
                waiting += refs_in(found[ref])
        return list(found.values())

    async def _output(self, ref: str) -> str:
        if ref not in self._outputs:
            async with self.served.http.get(f"{self.served.url}/v1/tool_outputs/{ref}") as response:
                self._outputs[ref] = await response.text() if response.status == 200 else ""
        return self._outputs[ref]


def refs_in(text: str) -> Iterator[str]:
    """Yield the references that a text names."""
    yield from re.findall(r"\bref(?:_id)?=\"?(\w{12})\b", text)


@asynccontextmanager
async def stage(
    window: int, model: str = "writer", tools: Sequence[dict[str, Any]] = TOOLS, recall: str = "auto"
) -> AsyncIterator[Stage]:
    """Run both with a window of this size; `model` is what the client asks for, with these tools.

    `recall` is how what was compacted away is found again.
    """
    noted = Compactions()
    log = logging.getLogger("elbowroom.agents.turn.compactor")
    log.addHandler(noted)
    log.setLevel(logging.INFO)
    loaded = SimulatedModel(MODEL, loaded_context_length=window, max_context_length=max(window, 32_768))
    studio = SimulatedLMStudio([loaded], rpc=False, tokenizer=Counted())
    async with studio:
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_for(studio.base_url, agents=f'{COMPACTION}recall = "{recall}"\n{AGENT}')
            async with serve(Path(folder), settings, timing=Timing(quiet=0)) as served:
                on = Stage(served, studio, noted, window, model, [*tools])
                studio.on_request = on.on_request
                try:
                    yield on
                finally:
                    log.removeHandler(noted)


async def play(
    on: Stage, conversation: Conversation, pruner: str, counts: Sequence[int] = COUNTS
) -> AsyncIterator[Looked]:
    """Play a conversation until it was compacted so many times; yield what is there after each of these numbers.

    Like an impatient client it asks only where the window fills: what does not change the prompt's fate is not sent.
    """
    known = Known()
    agent = on.agent = Agent(pruner, lambda: known, tokens)
    summarised = Summarised(Agent(pruner, lambda: known, tokens))
    budget = Budget(on.window)
    history: list[Message] = []
    unsent, compacted, begun = 0, 0, len(on.compactions.rungs)
    size = fixed = size_of_tools(on.tools)
    for messages, now in conversation.turns(on.window):
        known = now
        for at, message in enumerate(messages):
            history.append(message)
            summarised.messages.append(message)
            unsent += size_of(message)
            follows = messages[at + 1 : at + 2]
            if not follows or follows[0]["role"] != "assistant":
                continue
            if budget.occupied(size + unsent) < budget.trigger:
                continue
            on.says = said(follows[0])
            seen, chats, fresh = len(on.compactions.rungs), len(on.studio.chats), unsent
            size, unsent = await on.send(history), 0
            rungs = on.compactions.rungs[seen:]
            before, compacted = compacted, len(on.compactions.rungs) - begun  # with those of what was looked for since
            if rungs:
                summarised.compact(size - fixed)
            if any(before < count <= compacted for count in counts):
                asked = on.studio.chats[chats:]
                prompt = asked[-1].body["messages"]
                read = sum((chat.prompt_tokens or 0) - chat.reused_tokens for chat in asked)
                texts = await on.reachable(prompt)
                texts += await recalled(on, history, lost_in(prompt, known))
                invented = frozenset(agent.invented)
                reread = max(0, read - fresh)
                rung = on.compactions.rungs[-1]
                without = (tuple(summarised.messages), frozenset(summarised.agent.invented))
                yield Looked(compacted, rung, prompt, size, history, known, texts, reread, invented, *without)
            if compacted >= counts[-1]:
                return


def lost_in(prompt: Sequence[Message], known: Known) -> list[str]:
    """Return the labels of the facts whose newest value stands nowhere in a prompt."""
    text = "\n".join(str(message.get("content") or "") for message in prompt)
    return [label for label, fact in known.facts.items() if fact.newest not in text]


def said(message: Message) -> Script:
    """Return what the model says where the conversation goes on with this message; nothing hangs on its pieces."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    if calls:
        return Script(*(ToolCall(call["name"], call["arguments"], pieces=[call["arguments"]]) for call in calls))
    return Script(Text(str(message["content"]), whole=True))
