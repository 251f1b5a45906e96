"""What happens to a prompt, for every purpose and every outcome of counting, pruning, keeping and failing.

A token is a character here, and a world made of answers stands for counters, stores and pruning agents.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from elbowroom.context.budget import Budget, Compact, Refuse, Send
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.context.costs import Engine
from elbowroom.context.effects import Aside, Ask, Count, KeepText, Tell
from elbowroom.context.fitting import Keep, Note, Shortener, TakeResults
from elbowroom.context.ledger import Written
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.masking import Chosen, ClientTools
from elbowroom.context.outputs import is_stub
from elbowroom.context.planner import (
    AHEAD,
    BEFORE_REQUEST,
    IN_ANSWER,
    PREVIEW,
    REHEARSAL,
    Alone,
    Climb,
    Flush,
    HandOut,
    Offer,
    Planner,
    Purpose,
)
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, Summary, text_of
from elbowroom.errors import ContextOverflow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from elbowroom.context.compaction import Rung
    from elbowroom.context.effects import Work

T = TypeVar("T")
WINDOW = 4000
LONGEST_NOTE = 150
TRIGGER, SUMMARY = 3200, Summary(role="user", content="<elbowroom-summary>\nShort.\n</elbowroom-summary>")
PURPOSES = {
    "before a request": BEFORE_REQUEST,
    "in an answer": IN_ANSWER,
    "by hand": BEFORE_REQUEST,
    "preview": PREVIEW,
    "ahead": AHEAD,
    "rehearsal": REHEARSAL,
}


def size(messages: Sequence[Message]) -> int:
    """Return the size of a prompt."""
    return sum(len(text_of(message)) for message in messages)


@dataclass
class World:
    """Answers what plans need; `did` are the effects that change something, by their names."""

    rung: Rung | None = "plan"
    was_waiting: bool = False
    others: Written | None = None
    put_back: int = 0
    pins: Mapping[str, Message] = field(default_factory=dict)
    tool: int = 0
    tools: ClientTools | None = None
    fails_at: type | Ask | None = None
    failure: BaseException = field(default_factory=lambda: RuntimeError("the world fails"))
    did: list[str] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    counts: int = 0
    is_offered: bool = False
    doubt: int = 0

    def run(self, plan: Work[T]) -> T:
        """Carry a plan out."""
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect = plan.send(answer) if failure is None else plan.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = failure = None
            try:
                answer = self.answer(effect)
            except BaseException as error:  # noqa: BLE001  # the plan raises it
                failure = error

    def answer(self, effect: Any) -> Any:
        """Answer one effect."""
        if self.fails_at in (effect, type(effect)):
            raise self.failure
        if isinstance(effect, Count):
            self.counts += 1
            return size(effect.messages) + (self.tool if self.is_offered else 0) - effect.at_least * self.doubt
        if isinstance(effect, Aside):
            return effect.work()
        if effect is Ask.PINS:
            return self.pins
        if effect is Ask.CLIENT_TOOLS:
            return self.tools
        self.did.append(effect.name if isinstance(effect, Ask) else type(effect).__name__)
        self.seen.append(effect)
        match effect:
            case Alone():
                return self.run(effect.plan(self.was_waiting))
            case Ask.OTHERS:
                return self.others is not None, self.others
            case Offer():
                changes, self.is_offered = self.tool > 0, effect.is_offered
                return changes
            case Climb():
                return self.climbed(effect)
            case Ask.LESS:
                self.put_back -= 1
                return self.put_back >= 0
            case Ask.OVERFLOW:
                return ContextOverflow("It cannot fit.")
            case _:
                return None

    def climbed(self, effect: Climb) -> Compaction | Cannot:
        """Return the last message below a summary."""
        history, last = effect.prompt.messages, 2 if effect.purpose.foresees else 1
        if self.rung is None:
            return Cannot(size(history))
        kept = (SUMMARY, *history[-last:])
        messages, tail = kept[: -1 if effect.purpose.foresees else None], 1
        tool = self.tool if self.is_offered else 0
        before, after = size(history) + tool - effect.tool, size(messages) + tool
        return Compaction(messages, self.rung, before, after, 3, str(SUMMARY["content"]), tail)


def chat(length: int, last: int = 40) -> list[Message]:
    """Return a conversation of about that length, whose last question is `last` long."""
    turns: list[Message] = []
    while size(turns) + 400 <= length - last:
        turns += [{"role": "user", "content": "q" * 40}, {"role": "assistant", "content": "a" * 360}]
    return [*turns, {"role": "user", "content": "n" * last}]


def planner(messages: Sequence[Message], **fields: Any) -> Planner:
    """Return the planner of a conversation in a window of 4,000 tokens."""
    chosen = {name: fields.pop(name) for name in ("auto", "strikes") if name in fields}
    manager = AgentContextManager(Budget(WINDOW), history=Prompt.of(messages), **chosen)
    return Planner(manager, Shortener(manager, len), **fields)


@pytest.mark.parametrize(
    ("length", "last", "auto", "purpose", "wanted"),
    [
        (1000, 40, True, BEFORE_REQUEST, Send),
        (3300, 40, True, BEFORE_REQUEST, Compact),
        (6000, 40, True, BEFORE_REQUEST, Compact),
        (6000, 4100, True, BEFORE_REQUEST, Refuse),
        (3300, 40, False, BEFORE_REQUEST, Send),
        (6000, 40, False, BEFORE_REQUEST, Refuse),
        (1000, 40, True, IN_ANSWER, Send),
        (2400, 40, True, IN_ANSWER, Compact),
        (2400, 40, True, BEFORE_REQUEST, Send),
        (2400, 40, True, REHEARSAL, Compact),
    ],
)
def test_what_is_decided(length: int, last: int, purpose: Purpose, wanted: type, *, auto: bool) -> None:
    """The trigger decides before a request, what is free in an answer; what nothing can free is refused."""
    world = World()
    decision = world.run(planner(chat(length, last), auto=auto).decision(purpose))
    assert isinstance(decision, wanted)
    assert not world.did


def test_a_prompt_with_room_is_counted_once() -> None:
    """Nothing else is asked of the world where nothing needs to be done."""
    world = World()
    assert world.run(planner(chat(1000)).first_decision()) == Send()
    assert (world.counts, world.did) == (1, [])


@pytest.mark.parametrize("at", [None, 900, 5000])
def test_what_a_client_wants_is_compacted_below_the_trigger(at: int | None) -> None:
    """From the size on that it names; with the history of an answer that was stopped its wish is no longer for that."""
    made, world = planner(chat(2400), at=at), World()
    decision = world.run(made.decision(BEFORE_REQUEST))
    assert isinstance(decision, Compact) is (at == 900)
    made.manager.history = made.manager.history.stopped("The boat left. " * 20)
    assert isinstance(world.run(made.decision(BEFORE_REQUEST)), Send)


def test_pins_are_asked_for_once_and_count_as_fixed() -> None:
    """A pinned message that leaves no room for anything changes what is decided."""
    messages = [{"role": "user", "content": "p" * 3500}, *chat(900)]
    made = planner(messages)
    keyed = [item._replace(key=str(at)) for at, item in enumerate(made.manager.history.items)]
    made.manager.history = Prompt(tuple(keyed), tuple(keyed))
    decision = World(pins={"0": messages[0]}).run(made.decision(BEFORE_REQUEST))
    assert isinstance(decision, Compact)
    assert not decision.asks_pruner
    assert made.manager.history.items[0].is_pinned


@pytest.mark.parametrize("rung", ["plan", "digest", "last messages", None])
@pytest.mark.parametrize("purpose", PURPOSES.values(), ids=PURPOSES)
def test_a_compaction_for_each_purpose(purpose: Purpose, rung: Rung | None) -> None:
    """What is not kept changes nothing, nor what code alone made ahead of time; else it stands from now on."""
    made, world = planner(chat(3600)), World(rung=rung)
    before = made.manager.history
    expected: Message | None = {"role": "user", "content": "?"} if purpose.foresees else None
    outcome = world.run(made.shrink(purpose, Compact(2000), expected))
    assert isinstance(outcome, Cannot if rung is None else Compaction)
    is_kept = purpose.is_kept and rung is not None and (not purpose.foresees or rung == "plan")
    assert (made.manager.history.messages != before.messages) is is_kept
    assert ("Flush" in world.did) is (purpose.is_kept and not purpose.foresees)
    assert ("Keep" in world.did) is is_kept
    assert ("Note" in world.did) is (purpose.is_kept and not purpose.foresees and rung is None)
    assert world.did.index("Climb") > world.did.index("Flush") if "Flush" in world.did else True
    if is_kept:
        assert isinstance(outcome, Compaction)
        kept = next(effect for effect in world.seen if isinstance(effect, Keep))
        assert (kept.written.after, kept.done, kept.messages) == (outcome.after, outcome, len(before.items))
        assert made.manager.history.messages == list(outcome.messages)
        assert made.manager.filled == outcome.after


@pytest.mark.parametrize("rung", ["plan", None])
def test_a_strike_is_counted_where_nothing_was_freed(rung: Rung | None) -> None:
    """After two of them the pruning agent is not asked again."""
    made, world = planner(chat(3600)), World(rung=rung)
    world.run(made.shrink(BEFORE_REQUEST, Compact(2000)))
    assert made.manager.strikes == (rung is None)
    struck = World().run(planner(chat(3600), strikes=2).decision(BEFORE_REQUEST))
    assert isinstance(struck, Compact)
    assert not struck.asks_pruner


@pytest.mark.parametrize("length", [3600, 5000])
@pytest.mark.parametrize("rung", ["plan", None])
@pytest.mark.parametrize("has_said", [False, True])
@pytest.mark.parametrize("put_back", [0, 1])
def test_whether_a_prompt_is_sent(length: int, rung: Rung | None, put_back: int, *, has_said: bool) -> None:
    """It is sent once it is compacted, or fits as it is; less is put back before anybody gets an error."""
    made, world = planner(chat(length)), World(rung=rung, put_back=put_back)
    decision = world.run(made.first_decision())
    plan = made.carry_out(decision, has_said=has_said)
    if rung == "plan" or length < WINDOW:
        assert world.run(plan)
        assert "LESS" not in world.did
    elif has_said:
        assert not world.run(plan)
    else:
        with pytest.raises(ContextOverflow):
            world.run(plan)
        assert world.did.count("LESS") == put_back + 1


@pytest.mark.parametrize(
    ("length", "last", "doubt", "auto", "has_said", "is_sent"),
    [
        (4100, 4100, 200, True, False, True),  # one message, and nothing else to free
        (4100, 4100, 200, True, True, False),  # an answer that has begun ends instead
        (4100, 4100, 100, True, False, None),  # by its fewest tokens it is as large as the window
        (5000, 40, 2000, False, False, True),
        (5000, 40, 100, False, False, None),
        (3900, 3900, 500, True, False, True),
    ],
)
def test_what_may_fit_is_sent_with_a_notice(
    length: int, last: int, doubt: int, *, auto: bool, has_said: bool, is_sent: bool | None
) -> None:
    """The engine judges what an estimate leaves open, and the person knows; what surely fits needs no notice."""
    messages = chat(length, last)
    made, world = planner(messages, auto=auto), World(rung=None, doubt=doubt)
    decision = world.run(made.first_decision())
    plan = made.carry_out(decision, has_said=has_said)
    if is_sent is None:
        with pytest.raises(ContextOverflow):
            world.run(plan)
        return
    assert world.run(plan) is is_sent
    told = [effect for effect in world.seen if isinstance(effect, Tell)]
    sizes = f"{size(messages) - doubt:,} to {size(messages):,}"
    assert [(effect.kind, sizes in effect.text) for effect in told] == (
        [("tight", True)] if is_sent and size(messages) >= WINDOW else []
    )


@pytest.mark.parametrize("rung", ["plan", None])
def test_a_compaction_goes_before_a_prompt_that_may_fit(rung: Rung | None) -> None:
    """Only what is left when all has gone that can go is tried, or the whole where nothing of it could."""
    messages = chat(5000, 4100)
    made, world = planner(messages), World(rung=rung, doubt=1500)
    decision = world.run(made.first_decision())
    assert isinstance(decision, Compact)
    assert world.run(made.carry_out(decision, has_said=False))
    assert world.did[-1] == "Tell"
    assert (made.manager.history.messages == messages) is (rung is None)


@pytest.mark.parametrize("rung", ["plan", None])
def test_what_an_engine_has_refused_is_not_sent_again(rung: Rung | None) -> None:
    """Its own error is raised unless the prompt has become shorter, though by our count it would fit."""
    refusal = ContextOverflow("The engine says no.")
    made, world = planner(chat(2400), refusal=refusal), World(rung=rung)
    decision = world.run(made.next_decision(IN_ANSWER))
    plan = made.carry_out(decision, has_said=False)
    if rung:
        assert world.run(plan)
        assert made.refusal is None
    else:
        with pytest.raises(ContextOverflow, match="The engine says no"):
            world.run(plan)


@pytest.mark.parametrize("others", [None, Written(WINDOW, 3600, 900, "plan")])
def test_of_two_requests_one_compacts(others: Written | None) -> None:
    """The other one takes over what the first has made, and decides anew; where it has made nothing it compacts."""
    made, world = planner(chat(3600)), World(was_waiting=True, others=others)
    outcome = world.run(made.compact(Compact(2000)))
    assert (outcome is None) is (others is not None)
    assert ("Tell" in world.did) is (others is not None)
    assert ("Climb" in world.did) is (others is None)


def test_in_an_answer_nobody_else_is_waited_for() -> None:
    """A later step, and an answer that goes on, have messages that no other request has."""
    for made in (planner(chat(3600), step=2), planner(chat(3600))):
        if made.step == 1:
            made.manager.history = made.manager.history.stopped("The boat left. " * 20)
        world = World()
        assert isinstance(world.run(made.compact(Compact(2000))), Compaction)
        assert "Alone" not in world.did


@pytest.mark.parametrize(
    ("was_waiting", "others", "rung", "did"),
    [
        (False, None, "plan", ["Alone", "Flush", "Offer", "Climb", "Keep"]),
        (False, None, None, ["Alone", "Flush", "Offer", "Climb", "Note", "HandOut"]),
        (True, Written(WINDOW, 900, 300, "plan"), "plan", ["Alone", "OTHERS", "HandOut"]),
        (True, Written(WINDOW, 800, 400, "plan"), "plan", ["Alone", "OTHERS", "Flush", "Offer", "Climb", "Keep"]),
    ],
)
def test_by_hand(*, was_waiting: bool, others: Written | None, rung: Rung | None, did: list[str]) -> None:
    """It compacts below the trigger too, unless another request just has; what stays as it is is handed out as well."""
    made, world = planner(chat(1600)), World(rung=rung, was_waiting=was_waiting, others=others)
    before, outcome = world.run(made.by_hand(Written(WINDOW, 800, 400, "plan")))
    assert world.did == did
    assert (before, outcome) == (900, others) if did[-1] == "HandOut" and rung else before == size(chat(1600))
    for effect in world.seen:
        assert not isinstance(effect, Climb) or effect.decision.is_wanted
        assert not isinstance(effect, HandOut) or rung or effect.written.rung == "unchanged"


@pytest.mark.parametrize("tool", [0, 400])
def test_a_tool_that_a_compaction_offers_was_not_there_before(tool: int) -> None:
    """The size before is without it, as the person was shown it, and the size after is with it."""
    made, world = planner(chat(1600)), World(tool=tool)
    before, outcome = world.run(made.by_hand(None))
    assert isinstance(outcome, Compaction)
    assert outcome.before == before == size(chat(1600))
    assert outcome.after == size(made.manager.history.messages) + tool


@pytest.mark.parametrize("asks_pruner", [False, True])
def test_a_preview_changes_nothing(*, asks_pruner: bool) -> None:
    """It says what would be, with a pruning agent or without, and no memory is saved for it."""
    made, world = planner(chat(1600)), World()
    history = made.manager.history
    before, outcome = world.run(made.preview(asks_pruner=asks_pruner))
    assert before == size(chat(1600))
    assert isinstance(outcome, Compaction)
    assert made.manager.history.messages == history.messages
    assert world.did == ["Offer", "Climb"]
    assert world.seen[-1].decision.asks_pruner is asks_pruner


def test_a_rehearsal_compacts_what_leaves_little_room() -> None:
    """Nothing of it is kept, and what has room is left alone."""
    world = World()
    assert isinstance(world.run(planner(chat(2400)).rehearsal()), Compaction)
    assert world.did == ["Offer", "Climb"]
    assert World().run(planner(chat(800)).rehearsal()) is None


@pytest.mark.parametrize("rung", ["plan", "retry", "digest", None])
@pytest.mark.parametrize(("length", "is_full"), [(1000, False), (2300, True), (2900, False), (3600, False)])
@pytest.mark.parametrize("due_at", [None, 500, 3900])
@pytest.mark.parametrize("long", [40, 400])
def test_ahead_of_the_next_message(
    length: int, rung: Rung | None, due_at: int | None, long: int, *, is_full: bool
) -> None:
    """It is flushed some way below the trigger, compacted where a long turn would reach it, or the engine says so.

    What is planned is kept, and has room for the message that is expected.
    """
    made, world = planner(chat(length)), World(rung=rung)
    history = made.manager.history
    expected: Message = {"role": "user", "content": "?" * 40}
    turn: Message = {"role": "user", "content": "?" * long}
    outcome, is_news = world.run(made.ahead(lambda: expected, turn, due_at, is_full=is_full))
    occupied = Budget(WINDOW).occupied(size([*history.messages, turn]))
    assert ("Flush" in world.did) is (due_at is not None and (is_full or occupied >= due_at))
    assert ("Climb" in world.did) is (is_full or occupied >= TRIGGER)
    is_kept = "Climb" in world.did and rung in ("plan", "retry")
    assert (outcome is not None, is_news, "Keep" in world.did) == (is_kept, is_kept, is_kept)
    assert (made.manager.history.messages == history.messages) is not is_kept
    assert all(message != expected for message in made.manager.history.messages)
    for effect in world.seen:
        assert not isinstance(effect, Flush) or effect.histories == (history.messages,)
        assert not isinstance(effect, Climb) or effect.prompt.messages[-1] == expected
        assert not isinstance(effect, Climb) or not effect.decision.is_firm, "the answer just read would go"


@pytest.mark.parametrize("rung", ["plan", "digest", None])
@pytest.mark.parametrize(
    ("before", "length", "taken_in", "asks_pruner"),
    [(300, 2000, 1500, None), (40, 6000, 5000, False), (40, 6000, 3000, True), (700, 6000, 5000, True)],
    ids=["all of it has room", "a summary tells the rest", "the next turn has no room", "there is more to tell"],
)
def test_more_comes_back_of_an_answer_that_was_stopped(
    before: int, length: int, taken_in: int, rung: Rung | None, *, asks_pruner: bool | None
) -> None:
    """As much as has room; the pruning agent is asked only for what no summary tells yet."""
    reply = {"role": "assistant", "content": "a" * length}
    stopped = replace(planner(chat(before)).manager.history.stopped("a" * length), taken_in=taken_in)
    history = stopped.followed_by(reply)
    made, world = planner([]), World(rung=rung)
    made.manager.history = history
    expected: Message = {"role": "user", "content": "?"}
    outcome, is_news = world.run(made.ahead(lambda: expected, expected, None, is_full=False))
    if rung is None and asks_pruner is not None:
        assert (outcome, is_news, made.manager.history) == (None, False, history)
        return
    assert is_news
    assert made.manager.history.messages[-1] == reply
    climbs = [effect for effect in world.seen if isinstance(effect, Climb)]
    assert [effect.decision.asks_pruner for effect in climbs] == ([] if asks_pruner is None else [asks_pruner])
    [kept] = [effect for effect in world.seen if isinstance(effect, Keep)]
    assert (kept.done is not None) is (asks_pruner is not None)


@dataclass
class Results:
    """Whole results of tools: `pruned` halves each long one once, and a view has as many characters as it may."""

    is_let_go: bool = False

    def pruned(
        self, messages: Sequence[Message], *, must_shrink: bool, at_any_gain: bool = False
    ) -> list[Message] | None:
        """Shorten each result of more than 1,000 characters but the last message."""
        shorter = [
            {**message, "content": "[stub]"} if message["role"] == "tool" and len(text_of(message)) > 1000 else message
            for message in messages[:-2]
        ]
        return [*shorter, *messages[-2:]] if must_shrink and shorter != [*messages[:-2]] else None

    def shorter(self, text: str, tokens: int) -> str | None:
        """Return the beginning of a result."""
        return text[:tokens]

    def whole_bytes(self, shown: str) -> int | None:
        """Return nothing: what came in was whole."""
        return None

    def let_go(self) -> None:
        """Note that the results are dropped."""
        self.is_let_go = True


def read(text: str, *more: Message) -> list[Message]:
    """Return a conversation in which a tool was called and returned a text."""
    call = {"id": "a", "type": "function", "function": {"name": "read_note", "arguments": "{}"}}
    asked: list[Message] = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    return [*asked, {"role": "tool", "tool_call_id": "a", "content": text}, *more]


def with_results(messages: Sequence[Message], **fields: Any) -> tuple[Planner, Results]:
    """Return the planner of a conversation whose results can be read again."""
    made, results = planner(messages, **fields), Results()
    made.shortener.outputs = results
    return made, results


def test_old_results_go_before_anything_is_summarised() -> None:
    """Where that is enough, no pruning agent is asked, the person is told, and the shorter history is kept."""
    made, results = with_results(read("r" * 3000, *chat(700)))
    world = World()
    assert world.run(made.first_decision()) == Send()
    assert world.did == ["TakeResults", "Note", "Keep", "Tell"]
    assert results.is_let_go
    (kept,) = (effect for effect in world.seen if isinstance(effect, Keep))
    assert kept.written.rung == "pruned"
    assert kept.written.before > TRIGGER > kept.written.after


def test_results_are_shortened_ahead_of_time_where_that_is_enough() -> None:
    """Then the conversation is kept so, and read again."""
    made, _ = with_results(read("r" * 3000, *chat(700)))
    world, question = World(), {"role": "user", "content": "?"}
    outcome, is_news = world.run(made.ahead(lambda: question, question, None, is_full=False))
    assert (outcome, is_news, world.did) == (None, True, ["Keep"])
    assert "[stub]" in map(text_of, made.manager.history.messages)


def test_a_new_result_that_is_too_large_is_shown_in_part() -> None:
    """It is told with its sizes; a smaller one comes in whole."""
    made, _ = with_results(read("r" * 9000))
    world = World()
    world.run(made.first_decision())
    (shown,) = (text_of(message) for message in made.manager.history.messages if message["role"] == "tool")
    assert 0 < len(shown) < WINDOW
    assert [effect.kind for effect in world.seen if type(effect).__name__ == "Tell"] == ["results cut"]
    made, _ = with_results(read("r" * 900))
    world = World()
    assert world.run(made.first_decision()) == Send()
    assert world.did == ["TakeResults"]


def test_the_target_grows_by_a_tool_that_is_offered() -> None:
    """Where nothing could be compacted away there is nothing to find, and the tool is taken back."""
    rungs: tuple[Rung | None, ...] = ("plan", None)
    for rung in rungs:
        world = World(rung=rung, tool=100)
        world.run(planner(chat(3600)).shrink(BEFORE_REQUEST, Compact(2000)))
        assert next(effect for effect in world.seen if isinstance(effect, Climb)).decision.target == 2100
        assert world.is_offered is (rung == "plan")


@pytest.mark.parametrize("failure", [RuntimeError("disk"), asyncio.CancelledError()], ids=["failure", "cancelled"])
@pytest.mark.parametrize("at", [Count, Ask.PINS, Flush, Offer, Climb])
@pytest.mark.parametrize("purpose", PURPOSES.values(), ids=PURPOSES)
def test_what_fails_or_is_cancelled_leaves_no_trace(purpose: Purpose, at: type | Ask, failure: BaseException) -> None:
    """A compaction is whole or not at all: until its outcome is there, the history is what it was."""
    made, world = planner(chat(3600)), World()
    before = made.manager.history.messages
    world.fails_at, world.failure = at, failure
    expected: Message | None = {"role": "user", "content": "?"} if purpose.foresees else None
    if at is Flush and (not purpose.is_kept or purpose.foresees):
        return
    with pytest.raises(type(failure)):
        world.run(made.shrink(purpose, Compact(2000), expected))
    assert made.manager.history.messages == before
    assert "Keep" not in world.did


def test_a_count_that_fails_drops_the_new_results() -> None:
    """Whatever happens while results come in, their wholes are not held for ever."""
    made, results = with_results(read("r" * 900))
    world = World(fails_at=TakeResults)
    with pytest.raises(RuntimeError):
        world.run(made.first_decision())
    assert results.is_let_go


def test_what_could_be_freed() -> None:
    """It is what is not fixed, pinned or not: the person may take a pin back."""
    assert World().run(planner(chat(2000)).could_be_freed()) == size(chat(2000)) - 40
    assert World().run(planner(chat(40)).could_be_freed()) == 0


def test_nothing_is_noted_of_a_preview_that_frees_nothing() -> None:
    """Only what was to be kept counts as a failure."""
    world = World(rung=None)
    world.run(planner(chat(1600)).preview(asks_pruner=True))
    assert not any(isinstance(effect, Note) for effect in world.seen)


def with_result(length: int) -> list[Message]:
    """Return a conversation that fills half of the window, and the result of a client's tool of that length."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        *chat(WINDOW // 2),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "".join(f"{line:09}\n" for line in range(length // 10))},
    ]


def test_results_of_a_clients_tools_have_no_cliff() -> None:
    """What a compaction can free is freed first: a larger result is shown in as many words as one that just fits."""
    shown: list[int] = []
    for length in range(500, 8000, 100):
        made = planner(with_result(length))
        decision = World().run(made.first_decision())
        shown.append(len(text_of(made.manager.history.messages[-1])))
        assert shown[-1] >= length // 10 * 10 or isinstance(decision, Compact), length
        assert shown[-1] >= max(shown) - LONGEST_NOTE
    assert shown[-1] >= WINDOW // 3


def reads(count: int, length: int) -> list[Message]:
    """Return a request, and calls that have read so many files of this length."""
    messages: list[Message] = [{"role": "user", "content": "Go."}]
    for number in range(count):
        called = {"id": f"c{number}", "function": {"name": "read", "arguments": f'{{"path": "f{number}"}}'}}
        result = f"{number} " + "r" * (length - 2)
        messages.append({"role": "assistant", "content": "", "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return messages


MASKABLE = ClientTools({}, lambda text: "abcdefghijkm", len, Engine(100, 10))
SLOW = replace(MASKABLE, engine=Engine(1, 1000))


def test_masks_before_a_compaction() -> None:
    """Where that costs less, old results of the client's tools are masked and kept whole: the prompt can be sent."""
    messages, world = reads(5, 700), World(tools=MASKABLE)
    chosen = planner(messages)
    assert isinstance(world.run(chosen.next_decision(BEFORE_REQUEST)), Send)
    now = [text_of(message) for message in chosen.manager.history.messages]
    assert [is_stub(text) for text in now[2::2]] == [True, True, True, True, False]
    kept = [effect.text for effect in world.seen if isinstance(effect, KeepText)]
    assert kept == [text_of(message) for message in messages[2:-2:2]]
    [choice] = [effect for effect in world.seen if isinstance(effect, Chosen)]
    assert choice.action.way == "mask"
    assert "mask takes" in choice.reason
    assert "plan takes" in choice.reason


@pytest.mark.parametrize(
    ("messages", "tools", "did"),
    [
        (reads(5, 700), None, []),  # nobody knows what its results are
        (chat(3000), MASKABLE, []),  # there is none
        ([*reads(1, 900), *chat(2400)], SLOW, ["Chosen"]),  # one mask has all that follows it read anew
        ([*chat(2900), *reads(1, 350), *chat(100)], MASKABLE, []),  # it would not be enough
    ],
)
def test_a_compaction_and_no_masks(messages: list[Message], tools: ClientTools | None, did: list[str]) -> None:
    """Where masks cannot be had, cost more or are not enough, the history stays as it is until it is compacted."""
    world, chosen = World(tools=tools), planner(messages)
    assert isinstance(world.run(chosen.next_decision(BEFORE_REQUEST)), Compact)
    assert world.did == did
    assert chosen.manager.history.messages == messages


def test_a_compaction_that_a_client_wants() -> None:
    """A compaction that the client asks for is made, though masks would do."""
    chosen, world = planner(reads(5, 450), at=2000), World(tools=MASKABLE)
    assert isinstance(world.run(chosen.next_decision(BEFORE_REQUEST)), Compact)
    assert world.did == []
