"""What stays in the prompt of a long session that is compacted: what failed long ago, and the newest turns."""

import json
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, function_spec
from patient_counting import wait_for_counts
from request_checks import assert_fits
from small_window import small_window, turns_of

Message = dict[str, Any]
WINDOW = 8192
FAILED: dict[str, tuple[str, tuple[str, ...]]] = {
    "a test": (
        "collected 41 items\n" + "tests/test_tide.py::test_ok PASSED\n" * 40 + "___ test_tide ___\n"
        "tests/test_tide.py:88: AssertionError: high water at 03:12, not 04:12\n"
        "FAILED tests/test_tide.py::test_tide\n1 failed, 40 passed in 3.1s\nExit code: 1",
        ("test_tide", "tests/test_tide.py:88", "high water at 03:12, not 04:12"),
    ),
    "a build": (
        "[ 1%] Building harbour.o\n" * 60 + "src/harbour.c:41:9: error: 'quay' undeclared\nmake: *** [all] Error 2",
        ("src/harbour.c:41:9", "'quay' undeclared"),
    ),
    "a command": (
        "fetching crossings\n" * 50 + 'psql: error: database "ferries" does not exist\nExit code: 2',
        ("database", "ferries", "does not exist"),
    ),
}


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def step(number: int, command: str, result: str) -> list[Message]:
    """Return a call of the client's shell, and what it printed."""
    function = {"name": "shell", "arguments": json.dumps({"command": command})}
    call = {"id": f"call{number:05}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


@pytest.mark.parametrize("kind", FAILED)
async def test_what_failed_long_ago_is_still_read(tmp_path: Path, kind: str) -> None:
    """Whatever makes room in the window, the model reads the lines that say what failed, and where."""
    output, said = FAILED[kind]
    messages = [{"role": "user", "content": "Mend the timetable."}, *step(0, "make check", output)]
    for number in range(1, 40):
        log = "".join(f"crossing {number * 100 + line} was calm, the boat half full\n" for line in range(40))
        messages += step(number, f"cat log{number}.txt", log)
    messages += [{"role": "assistant", "content": "The logs say nothing."}, {"role": "user", "content": "And now?"}]
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        body = {"model": RAW_MODEL, "messages": messages, "tools": [function_spec("shell")]}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 200, await response.text()
        turn = turns_of(studio)[-1]
        assert_fits(turn)
        prompt = json.dumps(turn.body["messages"], ensure_ascii=False)
        assert len(prompt) < len(json.dumps(messages)) // 2
        assert [word for word in said if word not in prompt.replace('\\"', '"')] == []


@pytest.mark.parametrize(("turns", "newest"), [(None, 3), (1, 1), (2, 3), (4, 7)])
async def test_the_newest_turns_stay_word_for_word(tmp_path: Path, turns: int | None, newest: int) -> None:
    """As many as are set, though messages are full of paths and rules; by default the last three messages."""
    messages = []
    for number in range(30):
        rules = " ".join(f"Never touch /srv/ferry/{number}/{each}.toml without asking." for each in range(12))
        messages += [
            {"role": "user", "content": f"Rule {number}: {rules}"},
            {"role": "assistant", "content": f"Noted {number}. " * 9},
        ]
    messages.append({"role": "user", "content": "Which file may I touch?"})
    settings = f"retain_last_turns = {turns}" if turns else ""
    async with small_window(tmp_path, window=WINDOW, compaction=settings) as (served, studio):
        async with served.http.post(served.chat_url, json={"model": RAW_MODEL, "messages": messages}) as response:
            assert response.status == 200, await response.text()
        turn = turns_of(studio)[-1]
        assert_fits(turn)
        sent = turn.body["messages"]
        assert sent[-newest:] == messages[-newest:]
        assert len(sent) < len(messages) // 2
