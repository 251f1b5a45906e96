"""Other people's yardsticks: the canaries and the benchmark of compaction-conformance-kit, and LoCoMo's questions.

The canaries and LoCoMo are played through a running elbowroom, message by message, as a client sends them. The
benchmark hands over turns and a budget in characters: there each round is a compaction that a running elbowroom makes,
as it does for `elbowroom quality`, for the largest window whose outcome fits the budget.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from controls import Summarised, last_messages, without_the_middle
from evidence import evidence_table, locomo_chats, own_chats
from kit import held, messages_of_turns, only_old, part, sessions, written
from play import MODEL, Stage, said, stage
from pruners import EMPTY, Agent
from sizes import size_of, tokens
from tables import CUT, LAST, PLAIN, table

from elbowroom.agents.catalog import Target
from elbowroom.agents.rehearsal import Rehearsal, in_the_background
from elbowroom.agents.request import NOBODY
from elbowroom.context.compaction.division import quotation, summary_message
from elbowroom.context.transcript import Message, Summary, text_of
from elbowroom.errors import WindowTooSmall
from elbowroom.quality.conversations import Known
from elbowroom.server.state import CATALOG, run_settings_of
from elbowroom.settings.references import SAME_AGENT

CANARY_WINDOW: Final = 1536
LOCOMO_WINDOW: Final = 8192
BENCHMARK_WINDOW: Final = 16_384
SEEDS: Final = (1, 2, 3, 4, 5, 6)
BUDGETS: Final = (0.10, 0.20, 0.30)
ROUNDS: Final = 5
PARTS: Final = ("canaries", "benchmark")
EVIDENCE: Final = "evidence"
"""A part that is ours and takes longer, so that it is measured by its name alone."""
AGENTS: Final = ("garbage", EMPTY)
LEAST_WINDOW: Final = 64
STEPS: Final = 9
"""How often the window whose outcome fits a budget is halved in."""
BEST: Final = "the best choice beside the last exchange"
"""A control that knows what has to be kept, and keeps as much of it as elbowroom's own message has room for."""
UNANSWERABLE: Final = 5
"""LoCoMo's category of questions that the chat does not answer."""


@dataclass(slots=True)
class Score:
    """What prompts have kept; `old` of `updated` have an old value alone. Sizes are tokens."""

    kept: int = 0
    of: int = 0
    old: int = 0
    updated: int = 0
    tokens: int = 0
    whole: int = 0

    def add(self, other: "Score") -> None:
        """Add another one's."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


Scores = dict[str, Score]
Grader = Callable[[Sequence[Message]], Score]


async def walked(on: Stage, history: Sequence[Message], agent: str, known: Known) -> dict[str, Sequence[Message]]:
    """Send a conversation as it grows; return what the model gets with its last request, and what it would get else."""
    on.agent = Agent(agent, lambda: known, tokens)
    plain = Summarised(Agent("faithful", lambda: known, tokens))
    last = max(at for at, message in enumerate(history) if message["role"] == "user")
    size = 0
    for at, message in enumerate(history[: last + 1]):
        plain.messages.append(message)
        if message["role"] == "user":
            seen = len(on.compactions.rungs)
            on.says = said(history[at + 1]) if history[at + 1 : at + 2] else on.says
            size = await on.send(history[: at + 1])
            if len(on.compactions.rungs) > seen:
                plain.compact(size)
    told = history[: last + 1]
    return {
        agent: on.studio.chats[-1].body["messages"],
        LAST: last_messages(told, size),
        CUT: without_the_middle(told, size),
        PLAIN: last_messages(plain.messages, size),
    }


def scored(prompts: Mapping[str, Sequence[Message]], history: Sequence[Message], grader: Grader) -> Scores:
    """Return the scores of prompts, with their sizes."""
    scores: Scores = {}
    for way, prompt in prompts.items():
        scores[way] = grader(prompt)
        scores[way].tokens = sum(map(size_of, prompt))
        scores[way].whole = sum(map(size_of, history))
    return scores


def canaries(agent: str, seeds: Sequence[int]) -> Scores:
    """Play the kit's sessions through a running elbowroom with this pruning agent, in a process of its own."""
    return asyncio.run(_canaries(agent, seeds))


async def _canaries(agent: str, seeds: Sequence[int]) -> Scores:
    scores: Scores = {}
    async with stage(CANARY_WINDOW, MODEL, ()) as on:
        for history, planted in sessions(tuple(seeds)):
            known = Known(constraints=[canary.content for canary in planted])
            grader = partial(_of_canaries, planted)
            for way, score in scored(await walked(on, history, agent, known), history, grader).items():
                scores.setdefault(way, Score()).add(score)
    return scores


def _of_canaries(planted: Sequence[Any], prompt: Sequence[Message]) -> Score:
    return Score(held(planted, prompt), len(planted), *only_old(planted, prompt))


def canary_table(agents: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """Yield the table of the canaries, as the prompt at the end of each session has them."""
    scores: Scores = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for found in pool.map(canaries, agents, [seeds] * len(agents)):
            scores = found | scores
    heads = ("pruning agent", "canaries kept", "of", "only old value", "of updated", "tokens", "of all")
    order = [*agents, *(way for way in (PLAIN, LAST, CUT) if way in scores)]
    yield from table(heads, ([_name(way), *_cells(scores[way], len(seeds) * 4)] for way in order))


def _cells(score: Score, prompts: int) -> Iterator[str]:
    yield f"{100 * score.kept / score.of:.1f}"
    yield from map(str, (score.of, score.old, score.updated))
    yield f"{score.tokens // prompts:,}"
    yield f"{100 * score.tokens / score.whole:.0f} %"


def _name(way: str) -> str:
    return f"*{way}*" if way in (LAST, CUT, PLAIN, BEST) else way


@dataclass(slots=True)
class Compacting:
    """A compactor of the kit's benchmark that keeps messages from round to round; `make` compacts them to a budget."""

    name: str
    make: Callable[[list[Message], int], list[Message]]
    _messages: list[Message] = field(default_factory=list)

    def compact(self, turns: Sequence[Any], round_num: int = 1, budget_chars: int | None = None) -> Any:
        """Return what is left of the turns; from the second round on they are the last outcome as one text."""
        if round_num == 1:
            self._messages = messages_of_turns(turns)
        self._messages = self.make(self._messages, budget_chars or 10**9)
        text = written(self._messages)
        return part("compacted").CompactedContext(text=text, compactor_name=self.name, round_num=round_num)


async def _compacted(on: Stage, target: Target, messages: list[Message], budget: int, *, always: bool) -> list[Message]:
    """Return the largest outcome of a compaction that fits a budget of so many characters, else the smallest one.

    Without `always`, what fits as it is stays as it is, as in a chat.
    """
    if not always and len(written(messages)) <= budget:
        return messages
    least, most = LEAST_WINDOW, BENCHMARK_WINDOW
    best: list[Message] | None = None
    smallest = messages
    for _ in range(STEPS):
        window = int((least * most) ** 0.5)
        outcome = await _for_window(on, target, messages, window)
        if outcome is None:
            least = window
            continue
        smallest = min(smallest, outcome, key=lambda each: len(written(each)))
        if len(written(outcome)) <= budget:
            best, least = max(best or [], outcome, key=lambda each: len(written(each))), window
        else:
            most = window
    if best is None and len(written(messages)) <= budget:
        return messages
    return best or smallest


async def _for_window(on: Stage, target: Target, messages: list[Message], window: int) -> list[Message] | None:
    settings = run_settings_of(on.served.app, NOBODY)
    rehearsal = await Rehearsal.of(target, settings, SAME_AGENT, window)
    try:
        done = await in_the_background(rehearsal, partial(rehearsal.compact, messages))
    except WindowTooSmall:
        return None
    return [*done.messages]


async def benchmarked(agent: str) -> dict[str, Any]:
    """Return what the kit's own benchmark says of elbowroom with this pruning agent, of controls and of its own."""
    loop = asyncio.get_running_loop()
    known = Known(constraints=[canary.content for _, planted in sessions((1, 2, 3, 4)) for canary in planted])
    async with stage(BENCHMARK_WINDOW, MODEL, ()) as on:
        on.agent = Agent(agent, lambda: known, tokens)
        target = await on.served.app[CATALOG].get().resolve(MODEL)
        target = Target(f"{target.provider.id}/{target.model}", target.provider, target.model)

        def ours(messages: list[Message], budget: int, *, always: bool) -> list[Message]:
            work = _compacted(on, target, messages, budget, always=always)
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        theirs = part("compactors")
        makers: dict[str, Callable[[], Any]] = {
            agent: partial(Compacting, agent, partial(ours, always=False)),
            f"{agent}, compacted each round": partial(Compacting, agent, partial(ours, always=True)),
            LAST: partial(Compacting, LAST, partial(_in_characters, last_messages)),
            CUT: partial(Compacting, CUT, partial(_in_characters, without_the_middle)),
            PLAIN: partial(Compacting, PLAIN, partial(_summary, known)),
            BEST: partial(Compacting, BEST, partial(_best, known)),
            **{
                f"the kit's {kind().name}": kind
                for name, kind in vars(theirs).items()
                if name.endswith("Compactor") and name not in ("Compactor", "LLMSummarizerCompactor")
            },
        }
        run = part("benchmark").run_budget_benchmark
        result: dict[str, Any] = await asyncio.to_thread(run, makers, budgets=BUDGETS, rounds=ROUNDS)
        return result


def _in_characters(
    make: Callable[[Sequence[Message], int], list[Message]], messages: list[Message], budget: int
) -> list[Message]:
    """Return the largest outcome of a control that fits a budget of so many characters."""
    sizes = range(0, sum(map(size_of, messages)) + 2, 8)
    found = [messages[:1]]
    for size in sizes:
        outcome = make(messages, size) if size else []
        if outcome and len(written(outcome)) <= budget:
            found.append(outcome)
    return found[-1]


def _summary(known: Known, messages: list[Message], budget: int) -> list[Message]:
    """Return one plain summary: the newest of what has to be known that stands in the messages, as far as it fits."""
    text = written(messages)
    lines: list[str] = []
    left = budget - len("[system] ")
    for each in known.constraints:
        if each in text and len(each) + 1 <= left and each not in lines:
            lines.append(each)
            left -= len(each) + 1
    return [{"role": "system", "content": "\n".join(lines)}]


def _best(known: Known, messages: list[Message], budget: int) -> list[Message]:
    """Return what an oracle keeps beside what always stays: as many as possible of the texts that have to be known."""
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    system = [message for message in messages[:last] if message["role"] == "system"]
    text = written(messages)
    lines: list[str] = []
    best = [*system, *messages[last:]]
    for each in sorted({each for each in known.constraints if each in text}, key=lambda each: (len(each), each)):
        lines.append(quotation("user", each))
        outcome = [*system, Summary(role="user", content=summary_message("", "", lines, "done")), *messages[last:]]
        best = outcome if len(written(outcome)) <= budget else best
    return best


def benchmark_table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of the kit's benchmark."""
    heads = (
        "pruning agent",
        "budget",
        "canaries kept",
        "newest value",
        "only old value",
        "of updated",
        "both of a pair",
        "size of budget",
    )
    entries = sorted(
        result["entries"], key=lambda entry: (entry["budget_fraction"], -entry["randomized"]["overall_final_survival"])
    )
    yield from table(heads, (_entry(entry) for entry in entries))


def _entry(entry: Mapping[str, Any]) -> list[str]:
    told, again = entry["semantic"]["conflicts"], entry["randomized"]["supersession"]
    n = told["n"] + again["n"]
    newest, old = told["latest"] + again["latest"], told["stale_only"] + again["stale_only"]
    return [
        _name(entry["compactor"]),
        f"{entry['budget_fraction']:.0%}".replace("%", " %"),
        f"{100 * entry['randomized']['overall_final_survival']:.1f}",
        f"{100 * newest / n:.1f}",
        f"{old}",
        f"{n}",
        f"{100 * entry['semantic']['distinct_pair_rate']:.1f}",
        f"{100 * entry['max_output_to_budget']:.0f} %",
    ]


def locomo_table(path: Path, agents: Sequence[str]) -> Iterator[str]:
    """Yield the table of LoCoMo's questions; the file is that of its authors."""
    chats = [(_chat(each["conversation"]), _answers(each["qa"])) for each in json.loads(path.read_text("utf-8"))]
    scores: Scores = {}
    for agent in agents:
        scores = asyncio.run(_locomo(agent, chats)) | scores
    heads = ("pruning agent", "answers kept", "of", "tokens", "of all")
    cells = {way: list(_cells(score, len(chats))) for way, score in scores.items()}
    order = [*agents, *(way for way in (LAST, CUT) if way in scores)]
    yield from table(heads, ([_name(way), *cells[way][:2], *cells[way][4:]] for way in order))


async def _locomo(agent: str, chats: Sequence[tuple[list[Message], list[set[str]]]]) -> Scores:
    scores: Scores = {}
    async with stage(LOCOMO_WINDOW, MODEL, ()) as on:
        for history, answers in chats:
            prompts = await walked(on, history, agent, Known())
            for way, score in scored(prompts, history, partial(_of_answers, answers)).items():
                scores.setdefault(way, Score()).add(score)
    return scores


def _chat(conversation: Mapping[str, Any]) -> list[Message]:
    """Return a chat of two people as messages: the one who speaks first is the user."""
    names = sorted((key for key in conversation if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
    messages: list[Message] = [{"role": "system", "content": "You are a friend who remembers what was said."}]
    for name in names:
        messages.append({"role": "user", "content": f"It is {conversation[f'{name}_date_time']}."})
        for turn in conversation[name]:
            role = "user" if turn["speaker"] == conversation["speaker_a"] else "assistant"
            if messages[-1]["role"] == role:
                messages[-1] = {"role": role, "content": f"{text_of(messages[-1])}\n{turn['text']}"}
            else:
                messages.append({"role": role, "content": turn["text"]})
    return messages


def _answers(questions: Sequence[Mapping[str, Any]]) -> list[set[str]]:
    return [_words(str(each["answer"])) for each in questions if each["category"] != UNANSWERABLE]


def _of_answers(answers: Sequence[set[str]], prompt: Sequence[Message]) -> Score:
    said_words = _words(written(prompt))
    return Score(sum(answer <= said_words for answer in answers), len(answers))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def tables(parts: Sequence[str], agents: Sequence[str], seeds: Sequence[int], locomo: Path | None) -> dict[str, str]:
    """Return the tables of these yardsticks as sections of the document."""
    found: dict[str, str] = {}
    if "canaries" in parts:
        found["canaries"] = "".join(canary_table(agents, seeds))
    if "benchmark" in parts:
        found["benchmark"] = "".join(benchmark_table(asyncio.run(benchmarked(agents[0]))))
    if EVIDENCE in parts:
        found[EVIDENCE] = "".join(evidence_table(list(own_chats())))
    if locomo is not None:
        found["locomo"] = "".join(locomo_table(locomo, agents))
        found["locomo evidence"] = "".join(evidence_table(list(locomo_chats(locomo))))
    return found
