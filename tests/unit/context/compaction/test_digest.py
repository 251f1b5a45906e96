"""The summary that code makes: readable, bounded by what fits, the same for the same conversation."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.compaction.digest import digest
from elbowroom.context.transcript import Group, Transcript


def call(name: str, arguments: Any, call_id: str = "a") -> dict[str, Any]:
    """Return a message that calls one tool."""
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def groups(*messages: dict[str, Any]) -> tuple[Group, ...]:
    """Return the groups of these messages."""
    return Transcript.of(messages).groups


def chat(turns: int, words: int = 0) -> tuple[Group, ...]:
    """Return a conversation of so many questions and answers, the answers so much longer."""
    messages = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn}"})
        messages.append({"role": "assistant", "content": f"Answer {turn}" + " and so on" * words})
    return groups(*messages)


def test_one_line_for_what_each_said_and_did() -> None:
    """Words, calls with their arguments, and results with their size and beginning."""
    told = digest(
        groups(
            {"role": "user", "content": "Read\n  a.md"},
            {**call("read", '{"path": "a.md"}'), "content": "I will."},
            {"role": "tool", "tool_call_id": "a", "content": "# Title\ntext"},
            {"role": "assistant", "content": [{"type": "text", "text": "It has a title."}]},
            call("write", {"path": "ä.md"}),
        ),
        len,
        10**9,
    )
    assert told.splitlines() == [
        "- The user said: Read a.md",
        "- The assistant said: I will.",
        '- It used read {"path": "a.md"}: 12 characters, beginning \'# Title text\'',
        "- The assistant said: It has a title.",
        '- It used write {"path": "ä.md"}: no result',
    ]


def test_all_results_of_a_wide_call_are_told() -> None:
    """Each call is told with its own result, in the order of the calls."""
    calls = [{"id": each, "function": {"name": each, "arguments": ""}} for each in ("f", "g")]
    told = digest(
        groups(
            {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "g", "content": "two"},
            {"role": "tool", "tool_call_id": "f", "content": ""},
        ),
        len,
        10**9,
    )
    assert told.splitlines() == ["- It used f: nothing", "- It used g: 3 characters, beginning 'two'"]


def test_other_messages() -> None:
    """Images are named, system messages told as such, empty messages left out."""
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    told = digest(
        groups(
            {"role": "user", "content": [image]},
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": ""},
        ),
        len,
        10**9,
    )
    lines = ["- The user said: [image]", "- The system said: Be brief."]
    assert told.splitlines() == ["(1 step is not listed.)", *lines]


def test_long_texts_are_cut() -> None:
    """Every line is bounded, however long the message, and says that it goes on."""
    long = "word " * 100_000
    told = digest(
        groups(
            {"role": "user", "content": long},
            {**call("f", long), "content": long},
            {"role": "tool", "tool_call_id": "a", "content": long},
        ),
        len,
        10**9,
    )
    assert len(told.splitlines()) == 3
    assert all(len(line) < 350 and "…" in line for line in told.splitlines())


def test_newest_steps_stay_and_the_users_words_go_back_further() -> None:
    """C28: what does not fit is the old work; what the user wanted is told as far back as there is room."""
    told = digest(chat(10, words=20), len, 610).splitlines()
    answers = [line[len("- The assistant said: Answer ")] for line in told if "assistant" in line]
    questions = [line[len("- The user said: Question ")] for line in told if "user" in line]
    assert answers == ["8", "9"]
    assert questions == ["6", "7", "8", "9"]
    assert told[0] == "(14 steps are not listed.)"
    assert [line.split()[-1] for line in told[-2:]] == ["9", "…"]


def test_nothing_fits() -> None:
    """Then there is no digest at all, rather than one that breaks the bound."""
    assert digest(chat(3), len, 0) == ""
    assert digest((), len, 10**9) == ""


@given(st.integers(0, 30), st.integers(0, 1500))
def test_digest_is_bounded_and_deterministic(turns: int, most: int) -> None:
    """Whatever fits is the bound, the same conversation gives the same text, and more room never tells less."""
    told = digest(chat(turns), len, most)
    assert len(told) <= most
    assert told == digest(chat(turns), len, most)
    assert len(told.splitlines()) <= len(digest(chat(turns), len, most + 100).splitlines())


def steps(number: int, said: str = "") -> list[dict[str, Any]]:
    """Return so many steps of an agent that reads one file each."""
    messages = []
    for at in range(number):
        messages.append({**call("read", f'{{"path": "{at}.md"}}'), "content": said and f"{said} {at}"})
        messages.append({"role": "tool", "tool_call_id": "a", "content": f"# Title {at}"})
    return messages


def test_calls_in_a_row_are_summed_up() -> None:
    """Calls of neighbouring groups stand in one line, below what was said along with them; others begin a new one."""
    told = digest(
        groups(
            *steps(2, "I read"), {"role": "user", "content": "More"}, *steps(20), {"role": "user", "content": "Stop"}
        ),
        len,
        10**9,
    )
    assert told.splitlines() == [
        "- The assistant said: I read 0",
        "- The assistant said: I read 1",
        "- It read 2 files: 0.md, 1.md",
        "- The user said: More",
        f"- It read 20 files: {', '.join(f'{at}.md' for at in range(8, 20))}, …",
        "- The user said: Stop",
    ]


def test_long_work_leaves_the_users_words_their_room() -> None:
    """What was done is bounded by itself, what was said with it goes first, and the user's words stay."""
    told = digest(groups({"role": "user", "content": "Begin"}, *steps(300, "I read")), len, 300, for_calls=80)
    lines = told.splitlines()
    assert lines[0] == "- The user said: Begin"
    assert lines[-1].startswith("- It read 300 files: ")
    assert lines[-2] == "- The assistant said: I read 299"
    assert len(told) <= 300


def test_errors_of_calls_in_a_row() -> None:
    """They stand below the line, word for word."""
    failed = [*steps(1), call("run", "{}"), {"role": "tool", "tool_call_id": "a", "content": "Error: no\nmore"}]
    assert digest(groups(*failed), len, 10**9).splitlines() == [
        "- It read 1 file: 0.md; ran 1 command; 1 of these failed",
        "    run failed: Error: no",
        "    more",
    ]


def test_calls_are_told_by_their_declared_kinds() -> None:
    """What the settings or a tool say of its kind counts more than its name, in as many tokens as are set."""
    messages: list[dict[str, Any]] = []
    for number in range(3):
        messages.append(call("glance", f'{{"path": "{number}.md"}}', str(number)))
        messages.append({"role": "tool", "tool_call_id": str(number), "content": "calm"})
    assert "3 other calls" in digest(groups(*messages), len, 1000)
    assert "read 3 files: 0.md, 1.md, 2.md" in digest(groups(*messages), len, 1000, kinds={"glance": "read"})
    assert digest(groups(*messages), len, 1000, for_calls=0) == ""
