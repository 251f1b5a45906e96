#!/usr/bin/env python3
"""Plays the golden journeys, and compares what they make of elbowroom with what is frozen in tests/golden.

Each journey has a server, a store and a simulated LM Studio of its own. What is recorded: each prompt that reaches the
model, each frame that reaches the client, each row of the store at the end. A message is one line of role, size, hash
and how it begins and ends; of a prompt only what follows the beginning that it shares with the one before.

--freeze      write what is played as the new truth
--only TEXT   only journeys whose name holds this text
--write DIR   write the full text of everything into a folder, a file for each journey: `diff -r` compares two checkouts
--jobs N      processes that share the work, two by default
"""

import argparse
import asyncio
import difflib
import hashlib
import json
import logging
import multiprocessing
import re
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chatting import eventually
from golden_journeys import Journey, journeys, one
from golden_model import brain, prose
from own_tools import own_tool
from scripted_pruner import is_prune_order
from serving import Served, serve, settings_for

from elbowroom.demo import Overflow, SimulatedLMStudio, SimulatedModel
from elbowroom.server.state import SHARED, Timing

FROZEN: Final = Path(__file__).parents[1] / "golden"
SETTLED_SECONDS: Final = 30.0
TIMES: Final = frozenset(
    {
        "at",
        "began",
        "completed_at",
        "created",
        "created_at",
        "ended",
        "last_named",
        "last_used",
        "saved",
        "seconds",
        "undone",
        "updated",
        "server",
    }
)
"""Columns and fields that tell a time, or a server."""
SKIPPED: Final = frozenset(
    {"alembic_version", "elbowroom_version", "schema_version", "tool_output_chunks", "servers", "batches"}
)
"""Tables of which nothing is told: versions, and what is compressed."""
RANDOM: Final = re.compile(
    r"(?<![0-9A-Za-z])(?:conv|msg|qmsg|turn|chatcmpl|resp|fc|rs|cmp|call|item|queue|q|req)[-_][0-9A-Za-z]{8,}(?:[._]\d+)?\b"
    r"|\b[0-9a-f]{32}(?:[._]\d+)?\b|\b[0-9a-f]{24}(?:[._]\d+)?\b"
)
SECONDS: Final = re.compile(r"\b\d+\.\d s\b|(?<=seconds\":)\d+\.\d+")
CALL: Final = re.compile(r"\b[0-9A-Za-z]{9}\b")
"""The form of a call's id, which is made at random."""
DAY: Final = re.compile(r"(?:\b[A-Z][a-z]+day )?\b20\d\d-\d\d-\d\d\b")
"""Days on which something was said or saved."""
SEALED: Final = re.compile(r"elbowroom-compaction-1\.[\w=-]+")
TRIES: Final = 4
ENDS: Final = 36


@dataclass(slots=True)
class World:
    """The client of one journey: what it has said and heard, and all that was recorded."""

    journey: Journey
    served: Served
    studio: SimulatedLMStudio
    stack: AsyncExitStack
    folder: Path
    messages: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)
    _seen: int = 0

    @property
    def name(self) -> str:
        """Return the journey's name, from which its texts are made."""
        return self.journey.name

    @property
    def target(self) -> str:
        """Return what the client names as the model."""
        return "writer" if self.journey.agent else f"{self.journey.kind}/{self.journey.model}"

    def heard(self, turns: int, words: int) -> None:
        """Let a history be there that no turn of this server has made."""
        self.messages.append({"role": "system", "content": "You keep the log of a ferry. Answer in full sentences."})
        for turn in range(turns):
            asked = f"Entry {turn}: {prose(f'{self.name} q{turn}', words)} What about {turn}?"
            answer = prose(f"{self.name} a{turn}", words)
            self.messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]

    async def ask(self, content: Any, *, stream: bool = True, results: int = 0, **fields: Any) -> None:
        """Ask a question, and go on with the results of tools until there is an answer."""
        self.messages.append({"role": "user", "content": content})
        await self.again(stream=stream, results=results, **fields)

    async def again(self, *, stream: bool = True, results: int = 0, **fields: Any) -> None:
        """Send the history as it is, and add the answer to it."""
        for _ in range(16):
            body = {"model": self.target, "messages": self.messages, "stream": stream, **fields}
            answer = await self._sent("/v1/chat/completions", body)
            if answer is None:
                return
            self.messages.append(answer)
            calls = answer.get("tool_calls") or []
            for call in calls:
                said = prose(call["function"]["arguments"], results or 20)
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
            if not calls:
                return

    async def _sent(self, path: str, body: Mapping[str, Any], **headers: str) -> dict[str, Any] | None:
        """Send a request, record what comes, and return the answer of a chat as a message; None where there is none."""
        url = f"{self.served.url}{path}"
        async with self.served.http.post(url, json=body, headers={"X-Conversation-Id": "ferry", **headers}) as response:
            text = (await response.read()).decode()
        await self._quiet()
        self._note_prompts()
        frames = list(_frames(text))
        self.told.append((f"client {response.status} {path}", frames))
        return _answer_in(frames) if response.status == 200 else None

    async def _quiet(self) -> None:
        await eventually(lambda: not self.studio.open_requests, "requests are left open", seconds=SETTLED_SECONDS)

    def _note_prompts(self) -> None:
        for chat in self.studio.chats[self._seen :]:
            self.told.append(("order" if is_prune_order(chat.body) else "prompt", chat.body))
        self._seen = len(self.studio.chats)

    async def post(self, what: str, body: Mapping[str, Any]) -> None:
        """Post to a route of the conversation."""
        await self._asked("POST", what, body)

    async def put(self, what: str, body: Mapping[str, Any]) -> None:
        """Put to a route of the conversation."""
        await self._asked("PUT", what, body)

    async def _asked(self, method: str, what: str, body: Mapping[str, Any] | None) -> Any:
        url = f"{self.served.url}/v1/conversations/ferry/{what}"
        async with self.served.http.request(method, url, json=body) as response:
            answer = await response.json()
        await self._quiet()
        self._note_prompts()
        self.told.append((f"client {response.status} {method} {what.partition('/')[0]}", [answer]))
        return answer

    async def pin(self, place: int) -> None:
        """Pin the client's message at a place of the conversation."""
        async with self.served.http.get(f"{self.served.url}/v1/conversations/ferry/messages") as response:
            said = (await response.json())["data"]
        await self._asked("PUT", f"messages/{said[place]['id']}/pin", None)

    async def respond(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Ask over OpenAI's other API, and return the items of the answer."""
        async with self.served.http.post(f"{self.served.url}/v1/responses", json=body) as response:
            answer = await response.json()
        await self._quiet()
        self._note_prompts()
        self.told.append((f"client {response.status} responses", [answer]))
        return list(answer.get("output", []))

    async def message(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask over Anthropic's API, and return the answer as a message of the next request."""
        headers = {"anthropic-beta": "context-management-2025-06-27"}
        async with self.served.http.post(f"{self.served.url}/v1/messages", json=body, headers=headers) as response:
            answer = await response.json()
        await self._quiet()
        self._note_prompts()
        self.told.append((f"client {response.status} messages", [answer]))
        return {"role": "assistant", "content": answer.get("content", "")}

    async def aside(self, messages: Sequence[Mapping[str, Any]], **headers: str) -> None:
        """Ask for something beside the chat."""
        body = {"model": self.target, "messages": messages, "stream": False}
        await self._sent("/v1/chat/completions", body, **headers)

    async def settled(self) -> None:
        """Wait until nothing is left to do behind an answer."""
        jobs = self.served.app[SHARED].background
        await eventually(lambda: not jobs._jobs, "the work behind an answer does not end", seconds=SETTLED_SECONDS)
        self._note_prompts()

    async def restart(self) -> None:
        """Stop the server and start another one on the same store."""
        await self.stack.aclose()
        self.served = await self.stack.enter_async_context(_server(self.journey, self.folder, self.studio))
        await self.served.app[SHARED].store.ready()


def _server(journey: Journey, folder: Path, studio: SimulatedLMStudio) -> Any:
    base = studio.base_url if journey.kind == "lmstudio" else f"{studio.base_url}/v1"
    agents = f"[compaction]\n{journey.compaction}\n{journey.more}\n"
    if journey.agent:
        own = f'id = "writer"\nmodel = "{journey.model}"\nprovider = "{journey.kind}"\n{journey.agent}'
        agents = f"[[agents]]\n{own}\n{agents}"
    given = [own_tool(look)] if journey.agent else []
    settings = settings_for(base, agents=agents, kind=journey.kind)
    return serve(
        folder,
        settings,
        toolbox=(lambda target: given if target.agent else []) if _is_plain(journey) else None,
        timing=Timing(quiet=0.02),
    )


def _is_plain(journey: Journey) -> bool:
    return bool(journey.agent) and "save_memory" not in journey.agent


async def look(path: str) -> str:
    """Look into a file of the log."""
    return f"In {path}: {prose(path, 260)}"


async def played(journey: Journey) -> list[tuple[str, Any]]:
    """Play a journey; return what was recorded, in order, each with what it is."""
    names = dict.fromkeys((journey.model, "qwen2.5-7b-instruct", "llama-3.1-8b-instruct"))
    models = [
        SimulatedModel(
            name, type="vlm" if journey.vision else "llm", loaded_context_length=journey.window, architecture=""
        )
        for name in names
    ]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        async with SimulatedLMStudio(models, rpc=False, on_request=brain(journey.pruner)) as studio:
            if journey.switches:
                studio.overflow = Overflow(**journey.switches)
            async with AsyncExitStack() as stack:
                served = await stack.enter_async_context(_server(journey, folder, studio))
                await served.app[SHARED].store.ready()  # else a busy machine tells that it is being opened
                world = World(journey, served, studio, stack, folder)
                await journey.play(world)
                await world.settled()
        return [*world.told, *_rows(folder)]


def _rows(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield each row of the store."""
    for path in sorted(folder.glob("*.db")) + sorted(folder.glob("*.sqlite*")):
        if path.name.endswith(("-wal", "-shm")):
            continue
        with sqlite3.connect(path) as database:
            database.row_factory = sqlite3.Row
            tables = [
                row[0] for row in database.execute("select name from sqlite_master where type = 'table' order by name")
            ]
            place = {row["id"]: row["number"] for row in database.execute("select id, number from messages")}
            for table in tables:
                if table not in SKIPPED and not table.startswith(("sqlite_", "search")):
                    rows = [dict(row) for row in database.execute(f'select * from "{table}"')]
                    rows.sort(
                        key=lambda row: (row.get("number", 0), place.get(row.get("message"), 0), row.get("position", 0))
                    )
                    told = _in_one(rows) if table == "message_parts" else rows
                    bare = [
                        {name: value for name, value in row.items() if name not in ("number", "position")}
                        for row in told
                    ]
                    yield from ((f"row of {table}", row) for row in sorted(bare, key=_without_ids))


def _without_ids(row: Mapping[str, Any]) -> str:
    """Return a row without ids and times, by which rows are put in order: parallel calls end as they end."""
    rest = {
        name: value if not isinstance(value, bytes) else len(value) for name, value in row.items() if name not in TIMES
    }
    return CALL.sub("", RANDOM.sub("", json.dumps(rest, sort_keys=True)))


def _in_one(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the parts of messages, the pieces of a text in a row as one: they are written as they come."""
    last: dict[str, Any] | None = None
    for part in parts:
        if last is not None and part["kind"] == last["kind"] == "text" and part["message"] == last["message"]:
            last["content"] += part["content"]
            last["status"] = part["status"]
            continue
        if last is not None:
            yield last
        last = dict(part)
    if last is not None:
        yield last


def _frames(text: str) -> Iterator[Any]:
    """Yield what a client gets: JSON, with the pieces of a text in a row put together, for they come as they come."""
    if not text.startswith(("data:", "event:", ":")):
        yield json.loads(text) if text[:1] in "{[" else text
        return
    said = ""
    for line in text.split("\n"):
        if not line.startswith("data: "):
            continue
        frame = line[6:] if line == "data: [DONE]" else json.loads(line[6:])
        choices = frame.get("choices") if isinstance(frame, dict) else None
        delta = choices[0]["delta"] if choices else {}
        if set(delta) <= {"content", "role"} and delta.get("content") and "event" not in frame:
            said += delta["content"]
            continue
        if said:
            yield {"said": said}
            said = ""
        yield frame
    if said:
        yield {"said": said}


def _answer_in(frames: Iterable[Any]) -> dict[str, Any] | None:
    said, calls = "", dict[int, dict[str, Any]]()
    for frame in frames:
        if not isinstance(frame, dict) or "error" in frame:
            return None if isinstance(frame, dict) else {"role": "assistant", "content": said, **_with(calls)}
        if "said" in frame:
            said += frame["said"]
        for choice in frame.get("choices", ()):
            if "message" in choice:
                kept = {
                    name: value
                    for name, value in choice["message"].items()
                    if name in ("role", "content", "tool_calls")
                }
                return {name: value for name, value in kept.items() if value is not None or name == "content"}
            for call in choice["delta"].get("tool_calls") or ():
                known = calls.setdefault(
                    call["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                )
                known["id"] += call.get("id") or ""
                known["function"]["name"] += call["function"].get("name") or ""
                known["function"]["arguments"] += call["function"].get("arguments") or ""
    return {"role": "assistant", "content": said, **_with(calls)}


def _with(calls: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [calls[at] for at in sorted(calls)]} if calls else {}


class Names:
    """Gives random ids stable names, in the order in which they first appear, and leaves out times."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._calls: set[str] = set()

    def of(self, value: Any) -> Any:
        """Return a value without what is different each time."""
        if isinstance(value, dict):
            if value.get("kind") == "compacting":  # whose size may be counted by then
                value = {name: inner for name, inner in value.items() if name != "before"}
            self._calls |= {
                value[name] for name in ("id", "tool_call_id", "call_id") if CALL.fullmatch(str(value.get(name)))
            }
            return {name: "*" if name in TIMES else self.of(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner) for inner in value]
        if isinstance(value, bytes):
            return f"{len(value)} bytes"
        if not isinstance(value, str):
            return value
        value = DAY.sub("a day", SEALED.sub("sealed", value))
        named = RANDOM.sub(lambda match: self._name(match[0]), value)
        return SECONDS.sub(
            "*", CALL.sub(lambda match: self._name(match[0]) if match[0] in self._calls else match[0], named)
        )

    def _name(self, given: str) -> str:
        return self._known.setdefault(given, f"id{len(self._known)}")


def lines_of(told: Sequence[tuple[str, Any]], *, in_full: bool) -> Iterator[str]:
    """Yield what was recorded, a line for each message and each row."""
    names, before, rows = Names(), list[str](), list[str]()
    for what, value in told:
        value = names.of(value)
        if what in ("prompt", "order"):
            messages = [_line(message, in_full=in_full) for message in value["messages"]]
            rest = {name: field for name, field in value.items() if name != "messages"}
            shared = next(
                (at for at, (one, other) in enumerate(zip(before, messages, strict=False)) if one != other),
                min(len(before), len(messages)),
            )
            yield f"{what}: {shared} messages as before, {len(messages) - shared} more; {_short(rest, in_full=in_full)}"
            yield from (f"    {line}" for line in (messages if in_full else messages[shared:]))
            before = messages
        elif what.startswith("row"):
            rows.append(f"{what}: {_short(value, in_full=in_full)}")
        else:
            yield f"{what}:"
            yield from (f"    {_short(frame, in_full=in_full)}" for frame in value)
    yield from sorted(rows)


def _line(message: Mapping[str, Any], *, in_full: bool) -> str:
    rest = {name: value for name, value in message.items() if name != "role"}
    content = message.get("content")
    plain = (
        content
        if set(rest) == {"content"} and isinstance(content, str)
        else json.dumps(rest, ensure_ascii=False, sort_keys=True)
    )
    return f"{message['role']}: {plain if in_full else _cut(plain)}"


def _short(value: Any, *, in_full: bool) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if in_full else _cut(text)


def _cut(text: str) -> str:
    """Return a text in one line: whole where it is short, else its size, its hash, its beginning and its end."""
    line = " ".join(text.split())
    if len(line) <= 3 * ENDS:
        return line
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    return f"({len(text)} {digest}) {line[:ENDS]} … {line[-ENDS:]}"


def text_of_journey(name: str, *, in_full: bool = False) -> str:
    """Return what a journey made, as text."""
    try:
        told = asyncio.run(played(one(name)))
    except Exception as error:  # noqa: BLE001  # which may not go from one process to another
        raise RuntimeError(f"{name}: {''.join(traceback.format_exception(error))}") from None
    return "\n".join([f"# {name}", *lines_of(told, in_full=in_full), ""])


def file_of(name: str) -> Path:
    """Return the file in which a journey is frozen."""
    return FROZEN / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.txt"


def differences(name: str) -> list[str]:
    """Return in what a journey differs from what is frozen; nothing where it does not.

    Ids of calls are made at random, and some take a token more than others: what differs is played again.
    """
    frozen = file_of(name).read_text(encoding="utf-8") if file_of(name).exists() else ""
    now = ""
    for _ in range(TRIES):
        if (now := text_of_journey(name)) == frozen:
            return []
    return list(difflib.unified_diff(frozen.splitlines(), now.splitlines(), "frozen", "now", lineterm="", n=2))


def _warm_up() -> None:
    """Load what the first requests of a process load, so that each journey finds the same, and say nothing of it."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for name in ("chatml talk", "chatml talk whole", "raw responses"):
        text_of_journey(name)


def _played_in_full(name: str) -> str:
    return text_of_journey(name, in_full=True)


def main() -> int:
    """Play, and say what has changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--named", nargs="*", default=())
    parser.add_argument("--write", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = [
        journey.name
        for journey in journeys()
        if options.only in journey.name and (not options.named or file_of(journey.name).stem in options.named)
    ]
    changed = 0
    with ExitStack() as stack:
        of_each: Callable[..., Iterator[Any]] = map
        if options.jobs == 1:
            _warm_up()
        else:
            pool = ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), _warm_up)
            of_each = stack.enter_context(pool).map
        if options.write:
            options.write.mkdir(parents=True, exist_ok=True)
            for name, text in zip(names, of_each(_played_in_full, names), strict=True):
                (options.write / file_of(name).name).write_text(text, encoding="utf-8")
        elif options.freeze:
            FROZEN.mkdir(exist_ok=True)
            for name, text in zip(names, of_each(text_of_journey, names), strict=True):
                file_of(name).write_text(text, encoding="utf-8")
        else:
            for name, found in zip(names, of_each(differences, names), strict=True):
                if found:
                    changed += 1
                    sys.stdout.write("\n".join([f"== {name}", *found[:60], ""]))
    sys.stdout.write(f"{len(names)} journeys, {changed} of them changed\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
