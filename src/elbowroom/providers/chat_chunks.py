"""OpenAI chat completion chunks, in every dialect met, turned into stream events."""

import json
from typing import Any

from elbowroom.errors import EmptyReply, StreamCut, UpstreamError
from elbowroom.providers.events import (
    Finished,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from elbowroom.providers.failures import Source, error_in, failure_of, not_json
from elbowroom.providers.overflow import Overflow
from elbowroom.providers.sse import ServerSentEvent
from elbowroom.providers.upstream_json import parse_upstream_json

DONE = b"[DONE]"


class ChunkReader:
    """Reads one streamed answer; remembers what was seen, so that the end can be judged.

    `model` is the model that the upstream says has answered, None before the first chunk.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.model: str | None = None
        self.done = False
        self.has_output = False
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] | None = None

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return what one server-sent event says.

        Raises the error that the event carries, or UpstreamError where it is no chunk at all.
        """
        if event.data.strip() == DONE:
            self.done = True
            return []
        try:
            chunk = parse_upstream_json(event.data)
        except ValueError:
            if event.name == "error":
                raise failure_of(event.data.decode("utf-8", "replace"), self._source) from None
            raise not_json(event.data, self._source) from None
        if (error := error_in(chunk)) is not None:
            raise failure_of(error, self._source)
        if event.name == "error":
            raise failure_of(chunk, self._source)
        if not isinstance(chunk, dict):
            raise UpstreamError(f"{self._source.name} sent something that is not a chat chunk.")
        return self._read_chunk(chunk, "delta")

    def read_whole(self, completion: dict[str, Any]) -> list[StreamEvent]:
        """Return what an answer says that came in one piece, from an upstream that does not stream."""
        self.done = True
        return self._read_chunk(completion, "message")

    def judge_end(self) -> None:
        """Raise StreamCut or EmptyReply where the answer that has ended was none."""
        if self.finish_reason is None:
            raise StreamCut(
                f"{self._source.name} ended the answer without saying that it was finished; it may be incomplete. "
                "Its log tells why: a crash, an unloaded model, or a full memory."
            )
        if self.finish_reason == "error":
            raise UpstreamError(f"{self._source.name} ended the answer with an error; its log tells which.")
        if not self.has_output and self.finish_reason != "length":
            raise EmptyReply(
                f"{self._source.name} finished without a word. With a prompt near the model's context length this "
                "means that it did not fit: shorten the conversation or load the model with a larger context."
            )

    def prompt_reached(self, window: int) -> Overflow | None:
        """Return the overflow that an empty answer near the window stands for."""
        prompt = self.usage.get("prompt_tokens") if self.usage else None
        if isinstance(prompt, int) and prompt >= 0.95 * window:
            return Overflow(window, prompt)
        return None

    def _read_chunk(self, chunk: dict[str, Any], part: str) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self.model is None and isinstance(chunk.get("model"), str):
            self.model = chunk["model"]
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            choice = choices[0]
            if error := choice.get("error"):
                raise failure_of(error, self._source)
            if isinstance(delta := choice.get(part), dict):
                self._read_delta(delta, choice.get("logprobs"), events)
            if isinstance(reason := choice.get("finish_reason"), str) and reason:
                self.finish_reason = reason
                events.append(Finished(reason))
        if isinstance(usage := chunk.get("usage"), dict) and usage:
            self.usage = usage
            events.append(UsageReport(usage))
        return events

    def _read_delta(self, delta: dict[str, Any], logprobs: Any, events: list[StreamEvent]) -> None:
        if isinstance(thought := delta.get("reasoning_content"), str) and thought:
            events.append(ReasoningDelta(thought, "reasoning_content"))
        elif isinstance(thought := delta.get("reasoning"), str) and thought:
            events.append(ReasoningDelta(thought, "reasoning"))
        text = delta.get("content")
        if isinstance(text, str) and text:
            events.append(TextDelta(text, logprobs))
        if tool_calls := delta.get("tool_calls"):
            events.extend(_tool_call_deltas(tool_calls))
        if events:
            self.has_output = True


def _tool_call_deltas(tool_calls: Any) -> list[ToolCallDelta]:
    deltas = []
    for position, call in enumerate(tool_calls if isinstance(tool_calls, list) else []):
        if not isinstance(call, dict):
            continue
        function = call["function"] if isinstance(call.get("function"), dict) else {}
        index = call.get("index")
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        deltas.append(
            ToolCallDelta(
                index if isinstance(index, int) else position,
                name if isinstance(name, str) and name else None,
                arguments if isinstance(arguments, str) else "",
            )
        )
    return deltas
