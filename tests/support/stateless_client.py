"""A chat program as most are: it keeps the history itself and sends all of it with every request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

if TYPE_CHECKING:
    from long_conversations import Conversation, Exchange

Message = dict[str, Any]


def openai_client(url: str) -> AsyncOpenAI:
    """Return the `openai` client for a server at this address, which asks once and waits patiently."""
    http = DefaultAsyncHttpxClient(trust_env=False, verify=False)  # no proxy of this machine, and no certificates
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http, timeout=120)


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request brought: text, complete tool calls, and how it ended."""

    text: str
    calls: tuple[Message, ...]
    finish_reason: str | None


@dataclass(slots=True)
class StatelessClient:
    """Talks through a conversation; every other request is streamed. `fields` go into each request."""

    api: AsyncOpenAI
    model: str
    conversation: Conversation
    fields: dict[str, Any] = field(default_factory=dict)
    history: list[Message] = field(default_factory=list)
    requests: int = 0

    def __post_init__(self) -> None:
        self.history.append({"role": "system", "content": self.conversation.system})

    async def exchange(self, exchange: Exchange) -> Reply:
        """Send the user's message, run the tools that the assistant calls, and return its final reply."""
        self.history.append({"role": "user", "content": exchange.user})
        results = {call.arguments_text: call.result for calls in exchange.rounds for call in calls}
        while True:
            reply = await self.ask()
            said: Message = {"role": "assistant", "content": reply.text or None}
            self.history.append({**said, "tool_calls": list(reply.calls)} if reply.calls else said)
            if not reply.calls:
                return reply
            for call in reply.calls:
                result = results[call["function"]["arguments"]]
                self.history.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def take_in(self, exchange: Exchange, **beside_calls: Any) -> None:
        """Put a user's message into the history, and calls with their results as if the model had made them.

        `beside_calls` are further fields of the messages with the calls.
        """
        self.history.append({"role": "user", "content": exchange.user})
        for number, calls in enumerate(exchange.rounds):
            made = [
                {
                    "id": f"call{exchange.number:03d}{number}{place}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_text},
                }
                for place, call in enumerate(calls)
            ]
            self.history.append({"role": "assistant", "content": None, "tool_calls": made, **beside_calls})
            self.history += [
                {"role": "tool", "tool_call_id": one["id"], "content": call.result}
                for one, call in zip(made, calls, strict=True)
            ]

    async def ask(self) -> Reply:
        """Send the whole history."""
        self.requests += 1
        # Beside what the library looks through: with a long history that takes longer than all the rest of a request.
        sent: dict[str, Any] = {"messages": self.history}
        if self.conversation.tools:
            sent["tools"] = list(self.conversation.tools)
        body = {
            "model": self.model,
            "messages": (),
            **self.fields,
            "extra_body": sent | self.fields.get("extra_body", {}),
        }
        return await (self._streamed(body) if self.requests % 2 else self._whole(body))

    async def _whole(self, body: dict[str, Any]) -> Reply:
        choice = (await self.api.chat.completions.create(**body)).choices[0]
        calls = tuple(call.model_dump(include={"id", "type", "function"}) for call in choice.message.tool_calls or ())
        return Reply(choice.message.content or "", calls, choice.finish_reason)

    async def _streamed(self, body: dict[str, Any]) -> Reply:
        text, finish = "", None
        calls: dict[int, Message] = {}
        async for chunk in await self.api.chat.completions.create(**body, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                for delta in choice.delta.tool_calls or ():
                    call = calls.setdefault(delta.index, _no_call())
                    call["id"] += delta.id or ""
                    if delta.function:
                        call["function"]["name"] += delta.function.name or ""
                        call["function"]["arguments"] += delta.function.arguments or ""
        return Reply(text, tuple(calls.values()), finish)


def _no_call() -> Message:
    return {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
