"""The `openai` package."""

import json
from typing import Any

from library_runner import Heard, Request, run
from openai import OpenAI


def client_of(base: str) -> OpenAI:
    """Return a client that asks once."""
    return OpenAI(base_url=base, api_key="none", max_retries=0)


def stream(base: str, request: Request, heard: Heard) -> None:
    """Stream one answer."""
    options = {**request, "stream": True, "stream_options": {"include_usage": True}}
    for chunk in client_of(base).chat.completions.create(**options):
        heard.chunks += 1
        if chunk.choices:
            heard.take(chunk.choices[0].delta.content)
            heard.finish = chunk.choices[0].finish_reason or heard.finish
        heard.usage = chunk.usage.model_dump() if chunk.usage else heard.usage


def whole(base: str, request: Request, heard: Heard) -> None:
    """Ask for one answer in one piece."""
    answer = client_of(base).chat.completions.create(**request)
    heard.take(answer.choices[0].message.content)
    heard.finish = answer.choices[0].finish_reason
    heard.usage = answer.usage.model_dump() if answer.usage else None


def tools(base: str, request: Request, heard: Heard) -> None:
    """Run the loop of a program with a tool, over streams that the library puts together."""
    messages: list[Any] = list(request["messages"])
    while True:
        asked = {**request, "messages": messages}
        with client_of(base).chat.completions.stream(**asked) as events:
            for event in events:
                if event.type == "chunk":
                    heard.chunks += 1
                if event.type == "content.delta":
                    heard.take(event.delta)
            said = events.get_final_completion().choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return
        for call in said.tool_calls:
            told = heard.called(json.loads(call.function.arguments)["path"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told})


def stop(base: str, request: Request, heard: Heard) -> None:
    """Leave a stream after its first words."""
    with client_of(base).chat.completions.create(**request, stream=True) as chunks:
        for chunk in chunks:
            heard.take(chunk.choices[0].delta.content)
            if heard.text:
                return


run({"stream": stream, "whole": whole, "tools": tools, "stop": stop})
