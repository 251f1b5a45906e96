"""A conversation's keys: the same whatever clients change between turns, others for anything else that is said."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ledger_chats import ANSWER, ASK, RETRY, THANKS, call, chain_of, spoken, system
from random_histories import WORD, Json, always_the_same, histories

from elbowroom.context.ledger import Chain, is_system
from elbowroom.context.seam import notice_line, without_notices

if TYPE_CHECKING:
    from collections.abc import Sequence

KEYS: Final = (
    "eec74f62e7cdbb161414d7fea81481a5",
    "479a7f8eb07a5632594765caaa698a64",
    "b36f0db43d8bd9e5c08440c11c0aac88",
    "a2498b19f1f20737b4757f998990a955",
    "f3e48e22492898adaee39a90a1920dbf",
)
"""Of the history below, as the first version found them."""


def test_keys_cover_messages_and_the_system_messages_before_them() -> None:
    """Each message that is not the system's has a key and the place behind it."""
    chain = chain_of([system(), ASK, system("Today is Monday."), ANSWER, {"role": "developer", "content": "Short."}])
    assert chain.ends == (2, 4)
    assert len(set(chain.keys)) == 2
    assert chain.seed not in chain.keys


def test_nothing_said_yet() -> None:
    """An empty history, or one of system messages alone, has no keys; a first message follows the seed."""
    empty = chain_of([])
    assert (empty.keys, empty.ends) == ((), ())
    assert chain_of([system()]) == empty
    assert empty.followed_by(ASK) == empty.continued_by([], ASK) == chain_of([ASK]).keys[0]


def test_keys_do_not_change_between_versions() -> None:
    """Kept entries are found by later versions; who changes what counts has to change `canonical.VERSION` too."""
    looking = {"role": "assistant", "content": "", "tool_calls": [call(arguments='{"b": 1.0, "a": [null, "ü"]}')]}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = {"role": "user", "content": [{"type": "text", "text": "Look:"}, picture]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Nothing."}
    assert chain_of([ASK, ANSWER, parts, looking, result]).keys == KEYS


@given(histories())
@always_the_same
def test_chain_grows_with_the_conversation(history: list[Json]) -> None:
    """Every chain of a beginning is the beginning of the chain, and `followed_by` tells what comes next."""
    whole = chain_of(history)
    for end in range(len(history)):
        begun = chain_of(history[:end])
        assert begun.keys == whole.keys[: len(begun.keys)]
        if not is_system(history[end]):
            assert begun.followed_by(history[end]) == whole.keys[len(begun.keys)]


@given(histories(), st.data())
@always_the_same
def test_any_other_word_makes_other_keys(history: list[Json], data: st.DataObject) -> None:
    """C42: from the first message that says something else on every key is another; those before stay."""
    written = json.dumps(history)
    words = sorted(set(WORD.findall(written)))
    assume(words)
    word = data.draw(st.sampled_from(words))
    edited = json.loads(written.replace(f"{word}", f"other{word}"))
    changed = [at for at, (old, new) in enumerate(zip(spoken(history), spoken(edited), strict=True)) if old != new]
    old, new = chain_of(history), chain_of(edited)
    first = changed[0] if changed else len(old.keys)
    assert old.keys[:first] == new.keys[:first]
    assert not set(old.keys[first:]) & set(new.keys[first:])
    assert old.ends == new.ends


@given(histories(), st.data())
@always_the_same
def test_another_order_or_role_makes_other_keys(history: list[Json], data: st.DataObject) -> None:
    """Two messages that change places, or one said by somebody else, change every key from there on."""
    texts = [message for message in history if message["role"] in ("user", "assistant") and message["content"]]
    assume(len(texts) > 1)
    at = data.draw(st.integers(0, len(texts) - 2))
    swapped = [*texts[:at], texts[at + 1], texts[at], *texts[at + 2 :]]
    other = {"user": "assistant", "assistant": "user"}[texts[at]["role"]]
    by_other = [*texts[:at], {**texts[at], "role": other}, *texts[at + 1 :]]
    keys = chain_of(texts).keys
    for changed in (chain_of(swapped).keys, chain_of(by_other).keys):
        assert changed[:at] == keys[:at]
        assert not set(changed[at:]) & set(keys)


def sent_back(history: Sequence[Json], rename: str) -> list[Json]:
    """Return a history as another client would send it: other ids, order of keys, spaces, reasoning, parts."""
    returned = copy.deepcopy(list(history))
    for message in returned:
        content = message["content"]
        if message["role"] == "assistant":
            message["reasoning_content"] = rename
            if isinstance(content, str):
                content = f"\n {content} \n"
        message["content"] = [{"text": content, "type": "text"}] if isinstance(content, str) else content
        for called in message.get("tool_calls", ()):
            called["function"]["arguments"] = reordered(called["function"]["arguments"])
            if called.get("id"):
                called["id"] = rename + called["id"]
        if message.get("tool_call_id"):
            message["tool_call_id"] = rename + message["tool_call_id"]
    return [dict(reversed(message.items())) for message in returned]


def reordered(arguments: str) -> str:
    """Write arguments anew, keys in another order; those that are no JSON stay."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    if "NaN" in arguments or not isinstance(value, dict):
        return arguments
    return json.dumps(dict(reversed(value.items())), indent=1)


@given(histories(), st.sampled_from(["x", "call_", "\ud83d"]))
@always_the_same
def test_what_clients_change_makes_no_other_keys(history: list[Json], rename: str) -> None:
    """C38, C42: ids, reasoning, the order of keys, and white space around answers never matter."""
    assert chain_of(sent_back(history, rename)) == chain_of(history)


@given(histories())
@always_the_same
def test_system_messages_are_outside(history: list[Json]) -> None:
    """C42: a date in the system prompt, or a system message put in anywhere, changes no key."""
    dated = [{**message, "content": "Today is Monday."} if is_system(message) else message for message in history]
    injected = [each for message in history for each in (system("Today is Tuesday."), message)]
    assert chain_of(history).keys == chain_of(dated).keys == chain_of(injected).keys


def test_every_retry_is_a_turn() -> None:
    """C41: the same words said three times are three places in the chain, and so are two questions in a row."""
    keys = chain_of([ASK, RETRY, RETRY, RETRY]).keys
    assert len(set(keys)) == 4
    joined = {"role": "user", "content": "retryretry"}
    assert not set(chain_of([ASK, joined]).keys[1:]) & set(keys)


def test_texts_cannot_move_between_messages() -> None:
    """What is said in one message never looks like two, whatever signs it holds."""
    one = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    several = ["ab", "aub", "a\nb", "ub", '["a","b"]', "a\0b"]
    keys = {chain_of([{"role": "user", "content": text}]).keys[-1] for text in several}
    assert len(keys) == len(several)
    assert chain_of(one).keys[-1] not in keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ada", "coder"), ("ben", "coder")),
        (("ada", "coder"), ("ada", "writer")),
        (("ada", "coder"), ("coder", "ada")),
        (("ada", "coder"), ("adac", "oder")),
        (("ada", ""), ("", "ada")),
        (('a","b', "c"), ("a", 'b","c')),
        (("\ud83d", "coder"), ("\ud83e", "coder")),
    ],
)
def test_owners_and_agents_share_no_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    """C43: what one person or agent has said is never found for another, whatever their names are."""
    first, second = Chain.of(*one, [ASK, ANSWER]), Chain.of(*other, [ASK, ANSWER])
    assert not {first.seed, *first.keys} & {second.seed, *second.keys}


def test_raw_models_share_all_keys() -> None:
    """What one raw model has answered is found for another, of any provider; in old stores each has its own keys."""
    one, other, made = (Chain.of("ada", name, [ASK, ANSWER]) for name in ("lmstudio/qwen", "desk/mistral", ""))
    assert one == other
    assert not {made.seed, *made.keys} & {one.seed, *one.keys}
    assert made == Chain.of("ada", "", [ASK, ANSWER], of_one_model=True)
    old = Chain.of("ada", "lmstudio/qwen", [ASK, ANSWER], of_one_model=True)
    assert old.seed == "83570ea99333ef67fc9cff38cd5446e0"
    assert not {old.seed, *old.keys} & {one.seed, *one.keys}
    assert Chain.of("ada", "coder", [ASK], of_one_model=True) == Chain.of("ada", "coder", [ASK])


def test_results_count_by_the_call_they_answer() -> None:
    """Two results that change places are the same; results that answer each other's calls are not."""
    calls = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}
    first, second = ({"role": "tool", "tool_call_id": call_id, "content": call_id} for call_id in "ab")
    crossed = [{**first, "tool_call_id": "b"}, {**second, "tool_call_id": "a"}]
    assert chain_of([calls, first, second]).keys[-1] != chain_of([calls, *crossed]).keys[-1]
    renamed = {**calls, "tool_calls": [call("x"), call("y")]}
    answers = [{**first, "tool_call_id": "x"}, {**second, "tool_call_id": "y"}]
    assert chain_of([calls, first, second]) == chain_of([renamed, *answers])
    assert chain_of([calls, first]).followed_by(second) == chain_of([renamed, *answers]).keys[-1]


def test_results_count_by_the_message_they_answer() -> None:
    """A late result that answers an earlier message's call is another than one for the call just made."""
    calls = [{"role": "assistant", "content": None, "tool_calls": [call(call_id)]} for call_id in "ab"]
    results = [{"role": "tool", "tool_call_id": call_id, "content": "Done."} for call_id in "ab"]
    chain = chain_of(calls)
    assert chain.followed_by(results[0]) != chain.followed_by(results[1])


def test_results_of_calls_with_one_id_are_told_apart() -> None:
    """Where an engine gives all calls one id, results answer them in order, as they do where each has its own."""
    calls = [{"role": "assistant", "content": None, "tool_calls": [call(a), call(b)]} for a, b in ("aa", "xy")]
    results = [[{"role": "tool", "tool_call_id": each, "content": "Done."} for each in ids] for ids in ("aa", "xy")]
    assert chain_of([calls[0], *results[0]]) == chain_of([calls[1], *results[1]])


def test_asking_what_follows_changes_nothing() -> None:
    """`followed_by` may be asked for several messages, as when an answer is made anew; none counts as said."""
    calls = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("a")]}
    chain = chain_of([ASK, calls])
    results = [{"role": "tool", "tool_call_id": "a", "content": text} for text in "xyx"]
    keys = [chain.followed_by(result) for result in results]
    assert keys[0] == keys[2] != keys[1]
    assert keys[1] == chain_of([ASK, calls, results[1]]).keys[-1]


CALLED: Final = [call("call_x")]
COMES_BACK: Final[dict[str, tuple[Json, Json]]] = {
    "a text, stripped": ({"content": "Boats do.\n\n"}, {"content": "Boats do."}),
    "a text that was stopped, not stripped": ({"content": "Boats do "}, {"content": "Boats do "}),
    "reasoning that does not come back": ({"content": "Boats.", "reasoning_content": "Hm."}, {"content": "Boats."}),
    "reasoning that does": (
        {"content": "Boats.", "reasoning_content": "Hm."},
        {"content": "Boats.", "reasoning_content": "Hm. "},
    ),
    "opaque reasoning": ({"content": "Boats."}, {"content": "Boats.", "reasoning_details": [{"data": "x"}]}),
    "a quote": ({"content": "> [!NOTE]\n> Boats."}, {"content": "> [!NOTE]\n> Boats."}),
    "details and comments": (
        {"content": "<details>a</details><!-- b -->"},
        {"content": "<details>a</details><!-- b -->"},
    ),
    "a notice in the text": ({"content": "Boats."}, {"content": f"{notice_line('Compacted.')}Boats."}),
    "a notice within the text": ({"content": "Boats.\n\nShips."}, {"content": f"Boats.{notice_line('Hi')}\n\nShips."}),
    "a tool call": (
        {"content": "Let me look. ", "tool_calls": CALLED},
        {"content": "Let me look. ", "tool_calls": [call("call_x")]},
    ),
    "a tool call without text": (
        {"content": None, "tool_calls": CALLED, "reasoning_content": "Hm."},
        {"content": "", "tool_calls": CALLED},
    ),
    "the text up to an error": ({"content": "Boats do"}, {"content": "Boats do"}),
}


@pytest.mark.parametrize(("sent", "back"), COMES_BACK.values(), ids=COMES_BACK.keys())
def test_answer_is_known_when_it_comes_back(sent: Json, back: Json) -> None:
    """The key that was kept for an answer is the one that the next turn's history has behind that answer."""
    kept = chain_of([system(), ASK]).followed_by({"role": "assistant", **sent})
    returned = without_notices([system("Today is Tuesday."), ASK, {"role": "assistant", **back}, THANKS])
    assert chain_of(returned).keys[1] == kept


def test_edited_answer_is_another() -> None:
    """An answer that the person has edited is not the one that was given; what was said before it is known."""
    given_, edited = chain_of([ASK, ANSWER]), chain_of([ASK, {**ANSWER, "content": "Ships do."}])
    assert given_.keys[0] == edited.keys[0]
    assert given_.keys[1] != edited.keys[1]


def test_answer_that_never_came_is_no_message() -> None:
    """After an error or a stop before the first token two questions stand in a row, and are two."""
    assert chain_of([ASK, THANKS]).keys[1] == chain_of([ASK]).followed_by(THANKS)
    assert len(chain_of([ASK, THANKS]).keys) == 2


@pytest.mark.parametrize(
    ("begun", "more", "whole"),
    [
        ("Boats do", " float.", "Boats do float."),
        ("Boats.", "Ships.\n", "Boats.Ships."),
        ("", "Boats.", "Boats."),
        ([{"type": "text", "text": "Boats "}], "do.", "Boats do."),
        (None, "Boats.", "Boats."),
        ("Boats.", None, "Boats."),
    ],
)
def test_continued_answer_is_one_message(begun: Any, more: Any, whole: str) -> None:
    """A client that lets the last answer be continued joins both texts without a separator."""
    history = [system(), ASK, {"role": "assistant", "content": begun}, system("Go on.")]
    kept = chain_of(history).continued_by(history, {"role": "assistant", "content": more})
    assert kept == chain_of([ASK, {"role": "assistant", "content": whole}]).keys[-1]


def test_continued_answer_may_call() -> None:
    """Calls that come with the new text belong to the joined message."""
    history = [ASK, {"role": "assistant", "content": "Let me"}]
    more = {"role": "assistant", "content": " look.", "tool_calls": CALLED}
    whole = {"role": "assistant", "content": "Let me look.", "tool_calls": CALLED}
    assert chain_of(history).continued_by(history, more) == chain_of([ASK, whole]).keys[-1]


def test_only_an_answer_is_continued() -> None:
    """Behind a question, a result or calls a new message stands by itself."""
    calls = {"role": "assistant", "content": "", "tool_calls": CALLED}
    result = {"role": "tool", "tool_call_id": "call_x", "content": "Boats."}
    for history in ([ASK], [ASK, calls], [ASK, calls, result]):
        chain = chain_of(history)
        assert chain.continued_by(history, ANSWER) == chain.followed_by(ANSWER) == chain_of([*history, ANSWER]).keys[-1]
