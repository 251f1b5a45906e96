"""A simulated LM Studio: `elbowroom demo` shows elbowroom with it, and the tests drive elbowroom against it.

    async with SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)]) as studio:
        studio.enqueue("Hello!", Script("Let me see. ", ToolCall("read_note", {"path": "a.md"})))
        ...                                     # talk to studio.base_url + "/v1/chat/completions"
        assert studio.chats[0].fitted           # what arrived, whole, and whether it fitted the window
        assert not studio.disconnects           # who left, when it was noticed, and in which phase

It answers as LM Studio's HTTP routes are reported to answer. Nothing in it is random.

- Models: `load`, `unload`, `reload` and `crash` act at once, `SimulatedModel` says what a model is.
- Answers: `enqueue(script, when=..., repeat=...)`, then `on_request(body)`, then the default answer. A
  `Script` is a row of steps: str or `Text`, `Reasoning`, `ToolCall`, `Raw`, `Pause`, `WaitFor`, `Error`,
  `Cut`; or it is one `Reply`.
- Waiting: `await studio.wait_until(lambda: studio.disconnects)`.
- Edges of the window: `studio.overflow = Overflow(...)`.
- Speed: `tokens_per_second`, `prefill_tokens_per_second`, `SimulatedModel.load_seconds`.
- LM Studio that comes up later: `await studio.stop()`, `await studio.start()`: the port stays.
"""

from elbowroom.demo.journal import Disconnect, Phase, RecordedRequest
from elbowroom.demo.models import SimulatedModel, demo_models
from elbowroom.demo.overflow import Overflow, wording
from elbowroom.demo.residency import Instance
from elbowroom.demo.rpc import RpcCall
from elbowroom.demo.script import Cut, Error, Pause, Raw, Reasoning, Reply, Script, Text, ToolCall, WaitFor
from elbowroom.demo.studio import SimulatedLMStudio, demo_studio
from elbowroom.demo.tokenizer import SimulatedTokenizer, Tokenizer

__all__ = [
    "Cut",
    "Disconnect",
    "Error",
    "Instance",
    "Overflow",
    "Pause",
    "Phase",
    "Raw",
    "Reasoning",
    "RecordedRequest",
    "Reply",
    "RpcCall",
    "Script",
    "SimulatedLMStudio",
    "SimulatedModel",
    "SimulatedTokenizer",
    "Text",
    "Tokenizer",
    "ToolCall",
    "WaitFor",
    "demo_models",
    "demo_studio",
    "wording",
]
