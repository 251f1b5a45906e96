"""The golden journeys: small tables of models, windows, pruning agents and features, multiplied with care."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golden_model import named, prose
from large_requests import PICTURE as ONE_PIXEL

if TYPE_CHECKING:
    from golden import World

Play = Callable[["World"], Awaitable[None]]
TEMPLATES: Final = {
    "chatml": "qwen2.5-7b-instruct",
    "llama3": "llama-3.1-8b-instruct",
    "llama2": "llama-2-7b-chat",
    "mistral": "mistral-7b-instruct-v0.3",
    "tekken": "ministral-3b-instruct",
    "gemma": "gemma-3-4b-it",
    "gemma4": "gemma-4-31b-it",
    "phi": "phi-3.5-mini-instruct",
    "command": "command-r-35b",
    "granite": "granite-3.3-8b-instruct",
    "harmony": "gpt-oss-20b",
    "deepseek": "deepseek-v3",
}
"""A model of each template of `tokens/family_templates`."""
FOREGROUND: Final = "background = false"
TOOLS: Final = [named("read_log"), named("search"), named("run_check")]
PICTURE: Final = f"data:image/png;base64,{ONE_PIXEL}"


@dataclass(frozen=True, slots=True)
class Journey:
    """What is played: a model with a window and a pruning agent, settings as TOML, and what the client does.

    `agent` is the table of an agent that answers; without one the raw model does. `kind` is that of the provider.
    """

    name: str
    play: Play
    model: str = TEMPLATES["chatml"]
    window: int = 4096
    pruner: str = "faithful"
    compaction: str = FOREGROUND
    agent: str = ""
    more: str = ""
    kind: str = "lmstudio"
    vision: bool = False
    switches: dict[str, Any] = field(default_factory=dict)


async def talk(world: "World", turns: int = 3, words: int = 60, *, stream: bool = True, **fields: Any) -> None:
    """Ask one question after the other, the whole history each time."""
    for turn in range(turns):
        await world.ask(f"Part {turn}: {prose(f'{world.name} {turn}', words)} What of {turn}?", stream=stream, **fields)


async def at_once(world: "World", turns: int = 14, words: int = 120, **fields: Any) -> None:
    """Bring a long history in one request, and go on with it."""
    world.heard(turns, words)
    await world.ask("And what comes next?", **fields)
    await world.ask("Then what is left to do?", **fields)


async def long_answer(world: "World", words: int, before: int = 4) -> None:
    """Ask for an answer that passes the window, and go on after it."""
    world.heard(before, 60)
    await world.ask(f"Please say {words} words!")
    await world.ask("go on, what was the last one?")


async def client_tools(world: "World", calls: int, parallel: int, size: int, turns: int = 2) -> None:
    """Let the model call tools of the client, whose results have this many words."""
    for turn in range(turns):
        await world.ask(f"Turn {turn}: use read_log {calls} times {parallel} at once!", tools=TOOLS, results=size)
    await world.ask("What did the logs say?", tools=TOOLS)


async def server_tools(world: "World", calls: int, parallel: int, turns: int = 2) -> None:
    """Let an agent call tools of the server; the client sends only what it has seen."""
    for turn in range(turns):
        await world.ask(f"Turn {turn}: use look {calls} times {parallel} at once!")
    await world.ask("What did you find?")


async def edited(world: "World") -> None:
    """Change a message in the middle, ask again for an answer, and go back to the first branch."""
    await at_once(world, 12, 110)
    whole = list(world.messages)
    world.messages = [*whole[:4], {"role": "user", "content": "Something else altogether: what of the tides?"}]
    await world.again()
    world.messages = whole[:-1]
    await world.again()
    world.messages = whole
    await world.ask("Back to where we were?")


async def continued(world: "World") -> None:
    """Let the model continue an answer of the client's history."""
    world.heard(10, 120)
    world.messages.append({"role": "assistant", "content": "The ferry left at"})
    await world.again()


async def restarted(world: "World") -> None:
    """Compact, start the server anew on the same store, and go on."""
    await at_once(world, 14, 120)
    await world.restart()
    await world.ask("Do you still know?")


async def compacted_by_hand(world: "World", *, focus: str = "", edits: bool = False, undoes: bool = False) -> None:
    """Compact because a person wants it, and change or take back what stands."""
    await talk(world, 6, 90)
    await world.post(
        "compact", {"model": world.target, "messages": world.messages, **({"focus": focus} if focus else {})}
    )
    await world.ask("Shall we go on?")
    if edits:
        await world.put(
            "summary", {"model": world.target, "messages": world.messages, "summary": "We spoke of ferries."}
        )
        await world.ask("Is that so?")
    if undoes:
        await world.post("compact/undo", {"model": world.target, "messages": world.messages})
        await world.ask("And all of it again?")


async def previewed(world: "World") -> None:
    """See what a compaction would do."""
    await talk(world, 6, 90)
    await world.post("compact", {"model": world.target, "messages": world.messages, "preview": True})
    await world.ask("Nothing has changed?")


async def commanded(world: "World") -> None:
    """Write the command to compact into the chat."""
    await talk(world, 6, 90)
    world.messages.append({"role": "user", "content": "/compact keep the tides"})
    await world.again()
    await world.ask("And now?")


async def pinned(world: "World") -> None:
    """Pin a message, and fill the window after it."""
    await talk(world, 4, 60)
    await world.pin(1)
    for turn in range(8):
        await world.ask(f"More {turn}: {prose(f'more {turn}', 120)} What of it?")


async def queued(world: "World") -> None:
    """Put a message into the queue, which the next turn takes in."""
    await talk(world, 2, 40)
    await world.post("queue", {"message": {"role": "user", "content": "Keep the answer short, will you?"}})
    await world.ask("Where are we?")


async def with_files(world: "World", words: int) -> None:
    """Send a file with a question, as chat programs do."""
    source = f'<source id="1" name="tides.md">\n{prose("tides", words)}\n</source>'
    await world.ask(f"<context>\n{source}\n</context>\n\nWhat does the file say?")
    await world.ask("And what does it not say?")


async def with_pictures(world: "World") -> None:
    """Send pictures in a long history."""
    world.heard(10, 100)
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    await world.ask([{"type": "text", "text": "What do you see in this?"}, picture])
    await world.ask("And what is missing?")


async def as_responses(world: "World", turns: int = 8) -> None:
    """Speak OpenAI's other API, with compactions that the client keeps."""
    items: list[dict[str, Any]] = []
    for turn in range(turns):
        items.append({"role": "user", "content": f"Part {turn}: {prose(f'r{turn}', 90)} What of {turn}?"})
        managed = {"context_management": [{"type": "compaction", "compact_threshold": 1500}]}
        items += await world.respond({"model": world.target, "input": items, **managed})


async def as_messages(world: "World", turns: int = 8) -> None:
    """Speak Anthropic's API, with its edits."""
    said: list[dict[str, Any]] = []
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 800}}
    for turn in range(turns):
        said.append({"role": "user", "content": f"Part {turn}: {prose(f'm{turn}', 90)} What of {turn}?"})
        body = {"model": world.target, "max_tokens": 300, "system": "You keep the log.", "messages": said}
        said.append(await world.message({**body, "context_management": {"edits": [edit]}}))


async def titled(world: "World", words: int) -> None:
    """Ask for a title, as Open WebUI does beside a chat."""
    await talk(world, 2, 40)
    history = f"<chat_history>\nUSER: {prose('title', words)}\nASSISTANT: Yes.\n</chat_history>"
    order = f"### Task:\nGenerate a title for the chat.\n{history}"
    await world.aside([{"role": "user", "content": order}], **{"X-Elbowroom-Task": "title_generation"})


async def in_the_background(world: "World") -> None:
    """Come near the trigger, wait until what follows the answer is done, and go on."""
    world.heard(9, 110)
    await world.ask("How far are we?")
    await world.settled()
    await world.ask("And what then?")


AGENT: Final = 'instructions = "You help with the log of a ferry."'
REMEMBERING: Final = f'{AGENT}\ntools = ["save_memory"]'


NOT_THE_SAME_TWICE: Final = frozenset(
    {
        *(
            f"{template} {kind}"
            for template in ("mistral", "tekken")
            for kind in ("client tools", "parallel client tools", "server tools")
        ),
        *("1500 words after 6", "agent's parallel results at 2048", "answer at 2048", "slim tools at 4096"),
    }
)
"""Ids of calls are made at random, and with two vocabularies some take more tokens than others; in the others the place
where an answer is stopped, or the result that comes first, depends on the moment."""


def journeys() -> Iterator[Journey]:
    """Yield all journeys that are the same each time; each name is there once."""
    yield from (journey for journey in _all() if journey.name not in NOT_THE_SAME_TWICE)


def _all() -> Iterator[Journey]:
    for template, model in TEMPLATES.items():
        at = partial(Journey, model=model)
        yield at(f"{template} talk", talk)
        yield at(f"{template} talk whole", partial(talk, stream=False), agent=AGENT)
        yield at(f"{template} compacted", at_once)
        yield at(f"{template} compacted by garbage", at_once, pruner="garbage")
        yield at(f"{template} compacted without a system message", partial(at_once, turns=16, words=100), agent="")
        yield at(f"{template} long answer", partial(long_answer, words=1500))
        yield at(f"{template} client tools", partial(client_tools, calls=3, parallel=1, size=120))
        yield at(f"{template} parallel client tools", partial(client_tools, calls=4, parallel=2, size=200))
        yield at(f"{template} server tools", partial(server_tools, calls=2, parallel=1), agent=AGENT)
        yield at(f"{template} continued", continued)
        yield at(f"{template} edited", edited)
    for pruner in ("sloppy", "garbage", "empty", "inventing", "calling", "cut off", "keeping", "rewriting", "late"):
        for window in (2048, 4096, 8192):
            turns = 14 * window // 4096
            yield Journey(f"{pruner} at {window}", partial(at_once, turns=turns), window=window, pruner=pruner)
        yield Journey(f"{pruner} for an agent", at_once, pruner=pruner, agent=AGENT)
        yield Journey(f"{pruner} with tools", partial(client_tools, calls=8, parallel=2, size=150), pruner=pruner)
    for window in (2048, 4096, 8192, 16384, 32768):
        share = window / 4096
        yield Journey(f"history at {window}", partial(at_once, turns=int(14 * share)), window=window)
        yield Journey(f"far beyond {window}", partial(at_once, turns=int(40 * share)), window=window)
        yield Journey(f"answer at {window}", partial(long_answer, words=int(1100 * share)), window=window)
        yield Journey(
            f"huge result at {window}",
            partial(client_tools, calls=1, parallel=1, size=int(3000 * share)),
            window=window,
        )
        yield Journey(
            f"many results at {window}",
            partial(client_tools, calls=10, parallel=1, size=int(180 * share)),
            window=window,
        )
        yield Journey(
            f"agent's results at {window}",
            partial(server_tools, calls=9, parallel=1, turns=3),
            window=window,
            agent=AGENT,
        )
        yield Journey(
            f"agent's parallel results at {window}",
            partial(server_tools, calls=6, parallel=3),
            window=window,
            agent=AGENT,
        )
        yield Journey(f"file at {window}", partial(with_files, words=int(2600 * share)), window=window)
        yield Journey(f"small file at {window}", partial(with_files, words=int(400 * share)), window=window)
    for words in (1500, 2600, 4200, 9000):
        for before in (0, 6, 12):
            yield Journey(f"{words} words after {before}", partial(long_answer, words=words, before=before))
            yield Journey(
                f"{words} words of an agent after {before}",
                partial(long_answer, words=words, before=before),
                agent=AGENT,
            )
    for restarts in (0, 1, 2):
        compaction = f"{FOREGROUND}\nmax_restarts = {restarts}"
        yield Journey(f"at most {restarts} restarts", partial(long_answer, words=6000), compaction=compaction)
    for kept in (0, 1, 2, 5):
        compaction = f"{FOREGROUND}\nretain_last_turns = {kept}"
        yield Journey(f"retains {kept} turns", at_once, compaction=compaction)
        yield Journey(f"retains {kept} turns of an agent", at_once, compaction=compaction, agent=AGENT)
    yield from _with_and_without_agent()


def _with_and_without_agent() -> Iterator[Journey]:
    for agent in ("", AGENT):
        whose = "agent" if agent else "raw"
        at = partial(Journey, agent=agent)
        yield at(f"{whose} restarted", restarted)
        yield at(f"{whose} by hand", compacted_by_hand)
        yield at(f"{whose} by hand with a focus", partial(compacted_by_hand, focus="the tides"))
        yield at(f"{whose} summary edited", partial(compacted_by_hand, edits=True))
        yield at(f"{whose} undone", partial(compacted_by_hand, undoes=True))
        yield at(f"{whose} by hand with garbage", compacted_by_hand, pruner="garbage")
        yield at(f"{whose} previewed", previewed)
        yield at(f"{whose} commanded", commanded)
        yield at(f"{whose} pinned", pinned)
        yield at(f"{whose} queued", queued)
        yield at(f"{whose} pictures", with_pictures, vision=True)
        yield at(f"{whose} responses", as_responses)
        yield at(f"{whose} messages", as_messages)
        yield at(f"{whose} titled", partial(titled, words=80))
        yield at(f"{whose} titled beyond the window", partial(titled, words=6000))
        yield at(f"{whose} in the background", in_the_background, compaction="")
        yield at(f"{whose} in the background with garbage", in_the_background, compaction="", pruner="garbage")
        yield at(f"{whose} not by itself", at_once, compaction="auto = false")
        yield at(f"{whose} switched off", at_once, compaction="enabled = false")
        yield at(f"{whose} early", at_once, compaction=f"{FOREGROUND}\nthreshold_ratio = 0.6")
        yield at(f"{whose} late", at_once, compaction=f"{FOREGROUND}\nthreshold_ratio = 0.88")
        yield at(
            f"{whose} with own prompts", at_once, compaction=f'{FOREGROUND}\nsummary_directives = ["Name the ferry."]'
        )
        yield at(f"{whose} of an unmanaged provider", talk, kind="openai")
        yield at(
            f"{whose} with tools of an unmanaged provider",
            partial(client_tools, calls=2, parallel=1, size=100),
            kind="openai",
        )
        yield at(f"{whose} with a limit", partial(at_once, max_tokens=600))
        yield at(f"{whose} in a form", partial(at_once, response_format={"type": "json_object"}))
        yield at(f"{whose} refused by the engine", partial(at_once, turns=11), switches={"prompt": "A"})
        yield at(
            f"{whose} refused with a status", partial(at_once, turns=11), switches={"prompt": "B", "streamed": "status"}
        )
    for window in (4096, 8192):
        yield Journey(
            f"remembering at {window}", at_once, window=window, agent=REMEMBERING, more="[memory]\nenabled = true"
        )
        yield Journey(
            f"another pruning agent at {window}",
            at_once,
            window=window,
            agent=AGENT,
            compaction=f'{FOREGROUND}\nmodel = "llama-3.1-8b-instruct"',
        )
        yield Journey(f"recall for all at {window}", at_once, window=window, compaction=f'{FOREGROUND}\nrecall = "all"')
        yield Journey(f"slim tools at {window}", replace_tools(window), window=window)
    for turns in (8, 11, 17, 23, 31):
        for words in (40, 90, 160):
            yield Journey(f"{turns} turns of {words} words", partial(at_once, turns=turns, words=words))
            yield Journey(
                f"{turns} turns of {words} words for an agent", partial(at_once, turns=turns, words=words), agent=AGENT
            )


def replace_tools(window: int) -> Play:
    """Return a talk beside so many tools that their descriptions leave no room."""
    tools = [
        named(
            f"tool_{number}",
            **{f"field_{at}": {"type": "string", "description": prose(f"{number} {at}", 12)} for at in range(6)},
        )
        for number in range(window // 160)
    ]
    return partial(talk, turns=2, tools=tools)


def one(name: str) -> Journey:
    """Return the journey of this name."""
    return next(journey for journey in journeys() if journey.name == name)


__all__ = ["Journey", "journeys", "one", "replace"]
