"""Other people's yardsticks, played through a running elbowroom."""

import json
from pathlib import Path
from typing import Any

import pytest
import yardsticks

FILLING = (
    "We went down to the shore and talked about nothing much, and the evening was long and mild and rather quiet. "
)


def turn(speaker: str, text: str) -> dict[str, str]:
    """Return a turn as LoCoMo writes it."""
    return {"speaker": speaker, "dia_id": "D1:1", "text": text}


def chat(turns: int) -> dict[str, Any]:
    """Return a chat of two people with four questions, of which one is not answered in it."""
    said = [turn("Ann", f"Walk {at}. {FILLING * 3}") for at in range(turns)]
    said = [each for ann in said for each in (ann, turn("Bo", f"Yes. {FILLING * 3}"))]
    last = [turn("Ann", "I have sold the violet kayak for 300."), turn("Bo", "To Clara?"), turn("Ann", "Yes, to her.")]
    return {
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_1_date_time": "1 May",
            "session_1": said,
            "session_2_date_time": "2 May",
            "session_2": last,
        },
        "qa": [
            {"question": "What did she sell?", "answer": "Violet kayak", "category": 1},
            {"question": "For how much?", "answer": 300, "category": 2},
            {"question": "Which walk was called Zanzibar?", "answer": "the Zanzibar walk", "category": 3},
            {"question": "What did she buy?", "adversarial_answer": "a boat", "category": 5},
        ],
    }


@pytest.mark.slow
def test_locomo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions count whose answer's words all stand in the last prompt; those without an answer are left out."""
    monkeypatch.setattr(yardsticks, "LOCOMO_WINDOW", 1536)
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([chat(12)]), encoding="utf-8")
    _, _, *rows = yardsticks.locomo_table(path, ["garbage"])
    cells = [[cell.strip() for cell in row.strip("|\n").split("|")] for row in rows]
    assert [row[:3] for row in cells] == [
        ["garbage", "66.7", "3"],
        ["*last messages only*", "66.7", "3"],
        ["*the middle cut out*", "66.7", "3"],
    ]
    sizes = [int(row[3].replace(",", "")) for row in cells]
    assert max(sizes) < 1536
    assert all(int(row[4].removesuffix(" %")) < 60 for row in cells)
