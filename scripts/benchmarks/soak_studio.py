"""The simulated LM Studio of the soak: it says words that nobody says twice, and fails now and then."""

import json
import random
import re
from collections import Counter
from typing import Any, Final

from elbowroom.demo import Cut, Error, Pause, Reply, Script, SimulatedLMStudio, SimulatedModel, Text, ToolCall, wording

Body = dict[str, Any]
MODEL: Final = "soak-model"
WINDOW: Final = 8_192
PIECES_A_SECOND: Final = 400.0
READ: Final = "vault_read"
NOTES: Final = 12
ORDER: Final = "Answer with one JSON object and nothing else"
WORDS: Final = (30, 90)
FAULTS: Final = (
    ("none", 88),
    ("cut", 4),
    ("status 500", 3),
    ("overflow in words", 2),
    ("overflow refused", 1),
    ("pause", 2),
)
GROUP: Final = re.compile(r"^(\d+) \|", re.MULTILINE)


class Studio:
    """A simulated LM Studio with one model; `faults` counts what it did wrong, `too_long` prompts over its window."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.faults: Counter[str] = Counter()
        self.too_long = self.prompts = 0
        self._rng = rng
        self._said = 0
        model = SimulatedModel(MODEL, loaded_context_length=WINDOW, max_context_length=WINDOW, parallel=8)
        self.simulated = SimulatedLMStudio([model], on_request=self._answer, tokens_per_second=PIECES_A_SECOND)

    def forget(self) -> None:
        """Count what arrived, and let go of it; for a run of any length."""
        finished = [request for request in self.simulated.requests if request.finished_at is not None]
        for request in finished:
            if request.counted_tokens is not None:
                self.prompts += 1
                self.too_long += not request.fitted
            self.simulated.requests.remove(request)
        self.simulated.journal.disconnects.clear()
        self.simulated.rpc_calls.clear()

    def _answer(self, body: Body) -> Script:
        last = body["messages"][-1]
        if last["role"] == "user" and ORDER in json.dumps(last):
            return Script(Text(plan(json.dumps(last)), whole=True))
        (fault,) = self._rng.choices([name for name, _ in FAULTS], [weight for _, weight in FAULTS])
        self.faults[fault] += 1
        wants_tool = any(tool["function"]["name"] == READ for tool in body.get("tools") or ())
        if wants_tool and last["role"] == "user" and fault == "none":
            note = f"note {self._rng.randrange(NOTES)}.md"
            return Script(self._words(8), ToolCall(READ, {"path": note}))
        return self._failing(fault)

    def _failing(self, fault: str) -> Script:
        said = self._words(self._rng.randint(*WORDS))
        match fault:
            case "cut":
                return Script(said, Cut())
            case "status 500":
                return Script(Reply(500, {"error": "The model has crashed."}))
            case "overflow in words":
                return Script(said, Error(wording("E", WINDOW, WINDOW, "qwen2")))
            case "overflow refused":
                return Script(Reply(400, {"error": wording("A", WINDOW, WINDOW, "qwen2")}))
            case "pause":
                return Script(said, Pause(3.0), self._words(5))
            case _:
                return Script(said)

    def _words(self, count: int) -> str:
        """Return so many words that are said nowhere else in the run."""
        self._said += 1
        return "".join(f"{self.name}{self._said}.{number} " for number in range(count))


def plan(order: str) -> str:
    """Return what a pruning agent answers: a summary, and the last group kept."""
    groups = GROUP.findall(order.replace("\\n", "\n"))
    kept = [int(groups[-1])] if groups else []
    return json.dumps({"retain": "", "summary": f"{len(groups)} earlier messages were exchanged.", "keep": kept})
