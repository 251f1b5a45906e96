"""Pruning by rules: what it may touch, when it acts, and that it only ever goes one way."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elbowroom.context.outputs.stubs import is_soft_trimmed, is_stub, ref_of
from elbowroom.context.outputs.tiers import TierLimits, pruned, tool_budget
from elbowroom.context.templates.repair import repair
from elbowroom.context.transcript import Message, calls_of, is_json_object, text_of
from elbowroom.settings.model import ToolOutputSettings

LIMITS = TierLimits(budget=2000, batch_turns=1)
GO_ON: Message = {"role": "user", "content": "Go on."}
TOOLS = ("read_file", "search_notes", "run_tests", "write_note", "route")


def size(text: str) -> int:
    """Return the tokens of a text, four characters each."""
    return (len(text) + 3) // 4


def ref(message: Message) -> str | None:
    """Return where a result is kept: each one is."""
    return f"ref{message['tool_call_id']}"


def used(call_id: str, text: Any, tool: str = "read_file", said: str = "", **arguments: Any) -> list[Message]:
    """Return a call and its result."""
    function = {"name": tool, "arguments": json.dumps(arguments or {"path": f"{call_id}.md"})}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": said, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
    ]


def text(length: int, name: str = "text") -> str:
    """Return a text of so many characters."""
    return (f"{name}: a line of it\n" * (length // 15 + 1))[:length]


def chat(*lengths: int) -> list[Message]:
    """Return a conversation of one call after another, with results of these lengths; the last one is consumed."""
    steps = [used(str(number), text(length)) for number, length in enumerate(lengths)]
    return [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u" * 9000},
        *(message for step in steps for message in step),
        {"role": "assistant", "content": "a" * 9000},
        GO_ON,
    ]


def prune(messages: Sequence[Message], limits: TierLimits = LIMITS, **options: Any) -> list[Message] | None:
    """Prune with every result kept and nothing declared."""
    return pruned(messages, limits, {}, ref, size, **options)


def results(messages: Sequence[Message]) -> list[str]:
    """Return the texts of all results."""
    return [text_of(message) for message in messages if message["role"] == "tool"]


def test_nothing_below_the_budget() -> None:
    """C31: while tool history fits its budget, nothing is touched, however old it is."""
    assert prune(chat(*[500] * 15)) is None
    assert prune([]) is None
    assert prune([{"role": "user", "content": text(99_999)}]) is None


def test_over_the_budget_old_results_become_stubs() -> None:
    """The newest ones up to the low mark stay word for word, the older ones say what was read; texts stay."""
    before = chat(*[1000] * 9)
    after = prune(before)
    assert after is not None
    told = results(after)
    assert [is_stub(each) for each in told] == [True] * 6 + [False] * 3
    assert told[0].startswith("[tool output trimmed; ref=ref0; read 0.md (read_file); 1,000 characters: text: a line")
    assert told[6:] == results(before)[6:]
    assert [message for message in after if message["role"] != "tool"] == [
        message for message in before if message["role"] != "tool"
    ]
    assert sum(map(size, told[6:])) <= LIMITS.low_mark


def test_what_is_not_consumed_is_never_touched() -> None:
    """C32: a result that has just come in stays whole, however large, alone or with others of one message."""
    wide = [{"id": name, "type": "function", "function": {"name": "get", "arguments": "{}"}} for name in "xyz"]
    fresh: list[Message] = [
        {"role": "assistant", "content": None, "tool_calls": wide},
        *({"role": "tool", "tool_call_id": name, "content": text(30_000, name)} for name in "xyz"),
    ]
    begun: Message = {"role": "assistant", "content": "They say "}
    for behind in ([], [GO_ON], [begun], [begun, begun]):
        after = prune([*chat(*[1000] * 9), *fresh, *behind], must_shrink=True)
        assert after is not None
        assert results(after)[-3:] == results(fresh)
    assert prune([*chat(100), *fresh]) is None


def test_it_waits_while_a_large_result_is_not_consumed() -> None:
    """Where the newest result fills the low mark, one pruning behind it does more than one before it."""
    before = chat(*[1000] * 6)
    large = used("x", text(5000))
    assert prune([*before, *large]) is None
    assert prune([*before, *large, {"role": "assistant", "content": "Read."}, GO_ON]) is not None
    assert prune([*before, *used("x", text(30_000))]) is not None


def test_queries_go_first() -> None:
    """Above the threshold results of queries go before older reads do."""
    tools = ("read_file", "search") * 4
    steps = [used(str(at), text(4000 if tool == "search" else 1000), tool) for at, tool in enumerate(tools)]
    before = [*(message for step in steps for message in step), {"role": "assistant", "content": "a"}, GO_ON]
    after = prune(before, TierLimits(4500, batch_turns=1, recent_calls_to_keep=1, keep_last_turns=1))
    assert after is not None
    assert [is_stub(each) for each in results(after)] == [True, True, True, True, False, True, False, False]


def test_long_results_are_trimmed_softly() -> None:
    """Those over 4,000 characters keep beginning and end, where that is enough; those over 8 turns old go at once."""
    before = chat(1000, *[400] * 8, *[12_000] * 3, 3000, 400)
    after = prune(before, TierLimits(10_000, batch_turns=1, recent_calls_to_keep=2))
    assert after is not None
    told = results(after)
    assert is_stub(told[0])
    assert [is_soft_trimmed(each) for each in told[9:12]] == [True] * 3
    assert told[12:] == results(before)[12:]


def test_threshold_only_switches_tiers() -> None:
    """Below `truncation_threshold` a full budget still makes room, from the oldest on and no further than needed."""
    before = chat(*[1000] * 9)
    few = TierLimits(2000, batch_turns=1, clear_after_turns=1, truncation_threshold=10_000)
    told = results(prune(before, few) or [])
    assert [is_stub(each) for each in told] == [True] * 6 + [False] * 3


def test_errors_stay_word_for_word() -> None:
    """A bare error stays as it is, one in an envelope keeps its words; a very long one keeps beginning and end."""
    own = "Error: cannot\n  do it " + "x" * 300
    part = {"type": "text", "text": own, "annotations": None}
    wrapped = json.dumps({"_meta": None, "content": [part] * 1, "isError": True, "structuredContent": {"r": "y" * 100}})
    huge = "Traceback (most recent call last):\n" + text(9000)
    before = [*used("a", own), *used("b", wrapped), *used("c", huge), *chat(*[1000] * 9)[2:]]
    after = prune(before, must_shrink=True)
    assert after is not None
    bare, enveloped, trimmed = results(after)[:3]
    assert bare == own
    assert enveloped == f"[tool output trimmed; ref=refb; read_file failed]\n{own}"
    assert is_soft_trimmed(trimmed)
    assert trimmed.startswith(huge[:1500])


def test_what_cannot_be_read_back_stays() -> None:
    """Without a ref the text is all there is: neither result nor arguments are touched."""
    before = [*used("a", text(20_000), content="y" * 9000), *chat(*[3000] * 4)[2:]]
    after = pruned(before, LIMITS, {}, lambda message: None, size, must_shrink=True)
    assert after is None
    mixed = pruned(before, LIMITS, {}, lambda message: None if message["tool_call_id"] == "a" else "r", size)
    assert mixed is not None
    assert mixed[:2] == before[:2]


def test_histories_that_are_not_sound() -> None:
    """Calls without a result, results without a call, arguments that are no text are passed over."""
    orphan: Message = {"role": "tool", "tool_call_id": "none", "content": text(5000)}
    odd: Message = {"role": "assistant", "tool_calls": [{"id": "o"}, {"id": "p", "function": {"arguments": {"a": 1}}}]}
    answer: Message = {"role": "tool", "tool_call_id": "p", "content": text(5000)}
    nameless: Message = {"role": "assistant", "tool_calls": [{"id": "n", "function": {"arguments": "{}"}}]}
    back: Message = {"role": "tool", "tool_call_id": "n", "content": text(600)}
    before = [
        orphan,
        used("x", "")[0],
        {"role": "user", "content": "Hm"},
        odd,
        answer,
        orphan,
        nameless,
        back,
        *chat(*[1000] * 9),
    ]
    after = prune(before)
    assert after is not None
    assert after[:6] == before[:6]
    assert text_of(after[7]).startswith("[tool output trimmed; ref=refn; unknown_tool; 600 characters")
    assert sum(map(is_stub, results(after))) == 7


def test_images_stay() -> None:
    """Only the text of a result becomes a stub; its image is passed over."""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    before = [*used("i", [{"type": "text", "text": text(3000)}, image]), *used("j", [image]), *chat(*[1000] * 9)[2:]]
    after = prune(before)
    assert after is not None
    assert is_stub(text_of(after[1]))
    assert after[1]["content"][1] == image
    assert after[3] is before[3]


def test_long_arguments_go_with_their_result() -> None:
    """They become a JSON object that says what was written and how much."""
    before = [*used("w", "ok", "write_note", path="a.md", content=text(9000)), *chat(*[1000] * 5)[2:]]
    after = prune(before)
    assert after is not None
    arguments = calls_of(after[0])[0]["function"]["arguments"]
    assert is_json_object(arguments)
    assert len(arguments) <= 500
    assert json.loads(arguments)["path"] == "a.md"
    assert after[1] is before[1]


def test_declared_kinds() -> None:
    """What is declared of a tool is what its stub says."""
    after = pruned(chat(*[1000] * 9), LIMITS, {"read_file": "execute"}, ref, size)
    assert after is not None
    assert "; ran 0.md (read_file);" in results(after)[0]


def test_pressure_does_not_wait_for_a_whole_batch() -> None:
    """At the trigger all but the protected calls go at once, where that is worth a change of the prefix."""
    before, patient = chat(*[1000] * 10), TierLimits(2000, batch_turns=20)
    assert prune(before, patient) is None
    after = prune(before, patient, must_shrink=True)
    assert after is not None
    assert [is_stub(each) for each in results(after)] == [True] * 7 + [False] * 3
    assert prune(after, patient, must_shrink=True) is None
    assert prune(chat(*[600] * 7), patient, must_shrink=True) is None


def test_what_a_compaction_makes_worth_it() -> None:
    """Where the prefix changes anyway, everything goes that may go, however little it is."""
    before = chat(*[600] * 7)
    after = pruned(before, LIMITS, {}, lambda message: "a" * 12, len, must_shrink=True, at_any_gain=True)
    assert after is not None
    assert is_stub(results(after)[0])


def test_a_stub_does_not_end_the_walk() -> None:
    """C33: what has been pruned is passed over, and what lies before and behind it is still found."""
    once = prune(chat(*[1000] * 9))
    assert once is not None
    further = [*used("x", text(5000)), *once[2:], *chat(*[1200] * 6)[2:]]
    again = prune(repair(further))
    assert again is not None
    assert is_stub(results(again)[0])
    assert results(again)[1:7] == results(once)[:6]
    assert is_stub(results(again)[9])


class Loop:
    """A run of one call after another, with results and arguments of random sizes; pruned before each step."""

    def __init__(self, seed: int, window: int) -> None:
        self.chance = random.Random(seed)
        fixed = window // 5
        self.limits = TierLimits.of(ToolOutputSettings(), window, fixed)
        self.messages: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Do it."}]
        self.changes = 0

    def step(self, number: int) -> None:
        """Let the model call once or twice, and prune."""
        longest = self.limits.budget  # characters: a quarter of the budget
        calls, answers = [], []
        for at in range(self.chance.choice((1, 1, 1, 1, 2))):
            name = self.chance.choice(TOOLS)
            written = text(self.chance.randint(1, longest)) if name == "write_note" else ""
            result = text(self.chance.randint(1, longest // (2 if written or at else 1)))
            if self.chance.random() < 0.15:
                result = f"Error: {result[:200]}"
            arguments = json.dumps({"path": f"{number}.md", "content": written} if written else {"query": str(number)})
            call_id = f"c{number}x{at}"
            calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
            answers.append({"role": "tool", "tool_call_id": call_id, "content": result})
        self.messages += [{"role": "assistant", "content": "", "tool_calls": calls}, *answers]
        after = prune(self.messages, self.limits)
        if after is not None:
            assert_is_pruned(self.messages, after)
            assert prune(self.messages, self.limits) == after
            assert prune(after, self.limits) is None
            self.changes += 1
            self.messages = after


def assert_is_pruned(before: Sequence[Message], after: Sequence[Message]) -> None:
    """Check what holds for every pruning."""
    assert repair(after) == list(after)
    assert len(before) == len(after)
    last = max(at for at, message in enumerate(before) if message["role"] == "assistant")
    assert list(before[last:]) == list(after[last:])
    for old, new in zip(before, after, strict=True):
        assert shell(old) == shell(new)
        assert len(text_of(new)) <= len(text_of(old))
        if is_stub(text_of(old)) or text_of(old).startswith("Error"):
            assert new == old
        if old["role"] == "tool" and text_of(old) != text_of(new):
            assert ref_of(text_of(new)) == ref(old)


def shell(message: Message) -> Mapping[str, Any]:
    """Return a message without what may become shorter."""
    if message["role"] == "tool":
        return {**message, "content": None}
    calls = [{**call, "function": call["function"]["name"]} for call in calls_of(message)]
    return {**message, "tool_calls": calls}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("window", [4096, 8192, 16384, 32768])
def test_prefix_changes_rarely(window: int, seeds: range) -> None:
    """C37: in 100 steps of one call with results up to a quarter of the budget the prefix changes 20 times at most."""
    for seed in seeds:
        loop = Loop(seed, window)
        for number in range(100):
            loop.step(number)
        assert 0 < loop.changes <= 20


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(TOOLS), st.integers(0, 9000)), max_size=25), st.integers(1, 6000), st.booleans()
)
def test_any_history(steps: list[tuple[str, int]], budget: int, must_shrink: bool) -> None:
    """Whatever sizes and budgets: sound, one way, the same for the same, and settled after a few rounds."""
    made = [used(str(at), text(length), name, said=f"Step {at}") for at, (name, length) in enumerate(steps)]
    messages = [message for step in made for message in step]
    kept = json.dumps(messages)
    for _ in range(4):
        after = prune(messages, TierLimits(budget), must_shrink=must_shrink)
        if after is None:
            break
        assert_is_pruned(messages, after)
        messages = after
    else:
        pytest.fail("it goes on pruning what it has pruned")
    assert kept == json.dumps([message for step in made for message in step])


def test_long_history_asks_little() -> None:
    """Of 500 messages nearly all of which are stubs, only what can still be shortened is measured."""
    before = chat(*[1000] * 250)
    after = prune(before)
    assert after is not None
    asked: list[str] = []

    def counting(measured: str) -> int:
        asked.append(measured)
        return size(measured)

    assert pruned(after, LIMITS, {}, ref, counting) is None
    assert len(asked) <= 4


@pytest.mark.parametrize(
    ("window", "fixed", "budget"),
    [
        (8192, 1792, 1920),
        (32_768, 8192, 7372),
        (100_000, 10_000, 25_000),
        (400_000, 10_000, 60_000),
        (60_000, 1000, 17_700),
        (8192, 8192, 512),
        (8192, 9000, 512),
    ],
)
def test_budget(window: int, fixed: int, budget: int) -> None:
    """A quarter of the window within bounds, 30 % of what is free where that is less, and never nothing."""
    assert tool_budget(window, fixed, ToolOutputSettings()) == budget


def test_budget_that_is_set() -> None:
    """What a person sets holds as far as there is so much room."""
    assert tool_budget(32_768, 8000, ToolOutputSettings(context_budget_tokens=12_000)) == 12_000
    assert tool_budget(8192, 4192, ToolOutputSettings(context_budget_tokens=12_000)) == 4000
    assert TierLimits.of(ToolOutputSettings(keep_last_turns=7), 8192, 1792) == TierLimits(1920, keep_last_turns=7)


LARGE = TierLimits.of(ToolOutputSettings(), 131_072, 30_000)


def test_newest_results_stay_up_to_the_protected_tokens_in_a_large_window() -> None:
    """At 131,072 the newest 40,000 tokens stay, whatever their age, and older ones go when that frees 20,000."""
    thousand = chat(*[4000] * 80)
    for must_shrink in (False, True):
        after = prune(thousand, LARGE, must_shrink=must_shrink)
        assert after is not None
        results = [message for message in after if message["role"] == "tool"]
        whole = [len(message["content"]) == 4000 for message in results]
        assert whole == [False] * 40 + [True] * 40


@pytest.mark.parametrize(("results", "is_pruned"), [(55, False), (59, False), (62, True)])
def test_large_window_is_pruned_only_where_the_minimum_comes_free(results: int, is_pruned: bool) -> None:
    """Less than `minimum_tokens` beside the protected ones is not worth reading the prompt anew."""
    for must_shrink in (False, True):
        assert (prune(chat(*[4000] * results), LARGE, must_shrink=must_shrink) is not None) == is_pruned
    freed = prune(chat(*[4000] * results), LARGE, must_shrink=True, at_any_gain=True)
    assert freed is not None  # goes along with a compaction


def test_protected_tokens_and_the_minimum_are_settings() -> None:
    """Other numbers hold where there is room for them; in a small window, and with 0, the shares hold."""
    own = TierLimits.of(ToolOutputSettings(protect_tokens=10_000, minimum_tokens=5000), 32_768, 6000)
    assert (own.low_mark, own.budget, own.least_gain(must_shrink=False)) == (10_000, 15_000, 5000)
    for settings_of_it, window in ((ToolOutputSettings(), 65_536), (ToolOutputSettings(protect_tokens=0), 131_072)):
        shares = TierLimits.of(settings_of_it, window, 6000)
        assert shares.low_mark == shares.budget * 3 // 8
        assert shares.budget == tool_budget(window, 6000, settings_of_it)
    asked = ToolOutputSettings(context_budget_tokens=100_000)
    assert TierLimits.of(asked, 8192, 2000).low_mark == (8192 - 2000) * 3 // 8
    assert TierLimits.of(asked, 200_000, 2000).low_mark == 40_000
