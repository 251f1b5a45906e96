"""Encodes an answer for clients of Anthropic's Messages API: as one object, and as the events of a stream."""

import secrets
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal

from elbowroom.agents.answer import BETWEEN_STEPS, Answer, AnswerEvent, Compacted, Notice, ToolCall
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.context.compaction import Seal
from elbowroom.context.conversation import StepUsage
from elbowroom.context.outputs import AppliedEdit, ClearThoughts
from elbowroom.context.transcript import object_in
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.server.encode import to_json, tokens_of, told_of
from elbowroom.server.messages.blocks import signature_of, tool_use_id_of
from elbowroom.server.messages.body import Thinking
from elbowroom.server.messages.management import CLEAR_THINKING, CLEAR_TOOL_USES, Wanted
from elbowroom.settings.model import Notices

Kind = Literal["text", "thinking"]
PING: Final = 'event: ping\ndata: {"type":"ping"}\n\n'
STOP_REASONS: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Anthropic's reasons, by the finish_reason of a chat."""
BESIDE: Final[Mapping[Kind, Mapping[str, Any]]] = {"text": {"citations": None}, "thinking": {"signature": ""}}
"""What a block has besides its text when it begins."""
DIRECT: Final = {"type": "direct"}
"""Who has called a tool: the model itself, and no program that runs at Anthropic."""
UNENDED: Final[Mapping[str, Any]] = {
    "stop_reason": None,
    "stop_sequence": None,
    "stop_details": None,
    "container": None,
}
"""How a message has ended that has not, and that ran nothing at Anthropic."""
NOT_HERE: Final[Mapping[str, Any]] = {
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
    "inference_geo": None,
}
"""What Anthropic's servers do and charge besides, and a local model does not."""
WITHOUT_SUMMARY: Final = "The earlier messages are left out; the newest are kept word for word."


class MessageEncoder:
    """Encodes one answer as blocks of text, thoughts and calls; `thinking` chooses what is shown of thoughts.

    `notices` chooses how the person learns what happens beside the answer: as comments of the stream, which clients
    pass over, or as lines of the text. `wanted` is what the client wants of its context; `seal` makes compactions of
    which it wants to be told. `blocks` holds those that have ended, as the whole answer shows them.
    """

    def __init__(
        self,
        model: str,
        thinking: Thinking,
        notices: Notices,
        wanted: Wanted,
        seal: Seal | None,
    ) -> None:
        self._thinking = thinking
        self._notices = notices
        self._wanted = wanted
        self._seal = seal
        self._compactions: list[StepUsage] = []
        self._is_full = False
        self._open: Kind | None = None
        self._said: list[str] = []
        self._before_words = ""
        self._turn: TurnRecorder | None = None
        self._has_begun = False
        self._has_pinged = False
        self.blocks: list[dict[str, Any]] = []
        self._head: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    @property
    def message_id(self) -> str:
        """Return the id of the message."""
        return str(self._head["id"])

    def began(self, turn: TurnRecorder) -> None:
        """Take the turn that answers, which knows how many tokens its prompt has before the first word."""
        self._turn = turn

    def tell(self, diagnosis: dict[str, Any] | None) -> None:
        """Let the message say what the request has changed since an earlier one."""
        self._head["diagnostics"] = diagnosis

    def events(self, events: Sequence[AnswerEvent]) -> bytes:
        """Return the frames for these events; none where the client is not to see them."""
        return "".join(map(self._event, events)).encode("ascii")

    def end(self, answer: Answer) -> bytes:
        """Return the last frames: the end of the open block, the stop reason with the usage, and the end."""
        closing = self._close()
        delta = {**UNENDED, "stop_reason": self._stop_reason(answer), "stop_sequence": answer.stop_sequence}
        last = self._frame("message_delta", {"delta": delta, "usage": self._usage(answer), **self._managed(answer)})
        return (self._beginning() + closing + last + self._frame("message_stop", {})).encode("ascii")

    def failure(self, error: ElbowroomError) -> bytes:
        """Return the last frame of a stream that has failed."""
        return f"{self._beginning()}event: error\ndata: {to_json(error.as_anthropic())}\n\n".encode("ascii")

    def keep_alive(self) -> bytes:
        """Return a frame that fills a silence."""
        return PING.encode("ascii")

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the whole answer as one message; calls that were not handed out are never to be run."""
        self._close()
        handed_out = {tool_use_id_of(call.id) for call in answer.tool_calls}
        content = [block for block in self.blocks if block["type"] != "tool_use" or block["id"] in handed_out]
        ended = {**UNENDED, "stop_reason": self._stop_reason(answer), "stop_sequence": answer.stop_sequence}
        return {**self._head, "content": content, **ended, "usage": self._usage(answer), **self._managed(answer)}

    def _stop_reason(self, answer: Answer) -> str:
        """Return why the answer has ended, in Anthropic's words."""
        if self._compactions and not (answer.text or answer.reasoning or answer.tool_calls):
            return "compaction"
        if answer.stop_sequence is not None and not answer.tool_calls:
            return "stop_sequence"
        reason = STOP_REASONS[answer.finish_reason]
        return "model_context_window_exceeded" if self._is_full and reason == "max_tokens" else reason

    def _usage(self, answer: Answer) -> dict[str, Any]:
        """Return what was read and written; for a client that wants compactions, also of each request by itself.

        The sums are then those of all requests for the answer, without what compactions took.
        """
        if self._wanted.compaction is None:
            return usage_of(answer.usage)
        replies = [_counts_of(usage) for usage in answer.usages]
        sums = {name: sum(reply[name] for reply in replies) for name in _counts_of(None)}
        compactions = [{"type": "compaction", **_usage_of_step(used)} for used in self._compactions]
        messages = [{"type": "message", **reply} for reply in replies]
        return {**usage_of(answer.usage), **sums, "iterations": [*compactions, *messages]}

    def _managed(self, answer: Answer) -> dict[str, Any]:
        """Return what a client that manages the context is told at the end: the edits that were applied."""
        if not self._wanted.is_told:
            return {}
        return {"context_management": {"applied_edits": [_applied(edit) for edit in answer.edits]}}

    def _beginning(self) -> str:
        """Return the first event, with the prompt as it was counted; what the engine says of it is told at the end."""
        if self._has_begun:
            return ""
        self._has_begun = True
        usage = usage_of({"prompt_tokens": self._turn.prompt} if self._turn is not None else None)
        return self._frame("message_start", {"message": {**self._head, "content": [], **UNENDED, "usage": usage}})

    def _event(self, event: AnswerEvent) -> str:
        match event:
            case TextDelta():
                return self._grow("text", event.text)
            case ReasoningDelta():
                return "" if self._thinking == "off" else self._think(event.text)
            case ToolCall():
                return self._close() + self._call(event)
            case Notice():
                return self._notice(event)
            case Compacted():
                return self._close() + self._compaction(event)

    def _compaction(self, done: Compacted) -> str:
        """Return the frames of the block that stands for all before it; without content where nothing was shortened."""
        self._compactions.append(done.used)
        sealed = content = None
        if self._seal is not None and done.after < done.before:
            sealed, content = self._seal.sealed(done.key, done.messages), done.summary or WITHOUT_SUMMARY
        index, block = len(self.blocks), {"type": "compaction", "content": content, "encrypted_content": sealed}
        self.blocks.append(block)
        empty = {"type": "compaction", "content": None, "encrypted_content": None}
        return (
            self._start(index, empty)
            + self._frame("content_block_delta", {"index": index, "delta": {**block, "type": "compaction_delta"}})
            + self._frame("content_block_stop", {"index": index})
        )

    def _notice(self, notice: Notice) -> str:
        self._is_full = self._is_full or notice.kind == "cut"
        line, beside = told_of(notice, self._notices)
        return self._grow("text", line) if line else beside

    def _grow(self, kind: Kind, text: str) -> str:
        opening = "" if self._open == kind else self._close() + self._begin(kind)
        self._said.append(text)
        return f"{opening}{self._before_words}{encode_basestring_ascii(text)}}}}}\n\n"

    def _think(self, text: str) -> str:
        """Return the frames of thoughts; where these are not to be shown, only the beginning of their block."""
        if self._open != "thinking":
            text = text.removeprefix(BETWEEN_STEPS)  # what parts it from earlier thoughts is the block's beginning
        if self._thinking == "shown":
            return self._grow("thinking", text)
        opening = "" if self._open == "thinking" else self._close() + self._begin("thinking")
        self._said.append(text)
        return opening

    def _begin(self, kind: Kind) -> str:
        self._open = kind
        index, block = len(self.blocks), {"type": kind, kind: "", **BESIDE[kind]}
        frame = self._start(index, block)
        self._before_words = (
            f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{index},'
            f'"delta":{{"type":"{kind}_delta","{kind}":'
        )
        ping, self._has_pinged = "" if self._has_pinged else PING, True
        return frame + ping

    def _close(self) -> str:
        """Return the frames that end the open block, if there is one."""
        if self._open is None:
            return ""
        index, whole, frames = len(self.blocks), "".join(self._said), ""
        block: dict[str, Any] = {"type": self._open, self._open: whole, **BESIDE[self._open]}
        if self._open == "thinking":
            block = self._thought(whole)
            delta = {"type": "signature_delta", "signature": block["signature"]}
            frames = self._frame("content_block_delta", {"index": index, "delta": delta})
        self.blocks.append(block)
        self._open, self._said = None, []
        return frames + self._frame("content_block_stop", {"index": index})

    def _thought(self, whole: str) -> dict[str, Any]:
        is_shown = self._thinking == "shown"
        signature = signature_of("" if is_shown else whole)
        return {"type": "thinking", "thinking": whole if is_shown else "", "signature": signature}

    def _call(self, call: ToolCall) -> str:
        index = len(self.blocks)
        block = {"type": "tool_use", "id": tool_use_id_of(call.id), "name": call.name, "caller": DIRECT}
        # What is no object stands in one, which the client's tool refuses in words that the model can read.
        given, wrapped = object_in(call.arguments), {"arguments": call.arguments}
        arguments, given = (call.arguments, given) if given is not None else (to_json(wrapped), wrapped)
        delta = {"type": "input_json_delta", "partial_json": arguments}
        self.blocks.append({**block, "input": given})
        return (
            self._start(index, {**block, "input": {}})
            + self._frame("content_block_delta", {"index": index, "delta": delta})
            + self._frame("content_block_stop", {"index": index})
        )

    def _start(self, index: int, block: Mapping[str, Any]) -> str:
        """Return the frame that begins a block, after the beginning of the message."""
        return self._beginning() + self._frame("content_block_start", {"index": index, "content_block": block})

    def _frame(self, kind: str, fields: Mapping[str, Any]) -> str:
        return f"event: {kind}\ndata: {to_json({'type': kind, **fields})}\n\n"


def _applied(done: AppliedEdit) -> dict[str, Any]:
    if isinstance(done.edit, ClearThoughts):
        counted = {"type": CLEAR_THINKING, "cleared_thinking_turns": done.cleared}
    else:
        counted = {"type": CLEAR_TOOL_USES, "cleared_tool_uses": done.cleared}
    return {**counted, "cleared_input_tokens": done.tokens}


def usage_of(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a chat's usage in Anthropic's form; how many tokens were thoughts is known where the engine tells."""
    details = (usage or {}).get("completion_tokens_details")
    is_told = isinstance(details, Mapping) and "reasoning_tokens" in details
    thoughts = {"thinking_tokens": tokens_of(details, "reasoning_tokens")} if is_told else None
    found = {**_counts_of(usage), **NOT_HERE, "output_tokens_details": thoughts}
    return {**found, "elbowroom": usage["elbowroom"]} if usage and "elbowroom" in usage else found


def _counts_of(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the tokens of a chat's usage, those that came from the engine's cache apart."""
    read, written = tokens_of(usage, "prompt_tokens"), tokens_of(usage, "completion_tokens")
    cached = min(read, tokens_of((usage or {}).get("prompt_tokens_details"), "cached_tokens"))
    return {
        "input_tokens": read - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
    }


def _usage_of_step(used: StepUsage) -> dict[str, int]:
    return {
        "input_tokens": used.input,
        "cache_creation_input_tokens": used.cache_creation,
        "cache_read_input_tokens": used.cache_read,
        "output_tokens": used.output,
    }
