"""LangChain's `langchain-openai`, as one of the runners that runner.mjs describes."""

import json
import sys
from collections.abc import Callable
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage, convert_to_messages
from langchain_openai import ChatOpenAI

Request = dict[str, Any]


class Heard:
    """What the library has handed out so far."""

    def __init__(self) -> None:
        self.text = ""
        self.chunks = 0
        self.calls: list[str] = []
        self.finish: str | None = None
        self.usage: Any = None

    def take(self, delta: Any) -> None:
        """Take a piece of text and say it."""
        if delta:
            self.text += delta
            say({"delta": delta})

    def read(self, chunks: Any) -> Any:
        """Read a stream to its end and return the whole message."""
        whole: Any = None
        for chunk in chunks:
            self.chunks += 1
            self.take(chunk.content)
            whole = chunk if whole is None else whole + chunk
        self.close(whole)
        return whole

    def close(self, message: Any) -> None:
        """Take how an answer ended."""
        self.finish = message.response_metadata.get("finish_reason")
        self.usage = message.usage_metadata


def say(line: Request) -> None:
    """Print one line of JSON."""
    print(json.dumps(line), flush=True)  # noqa: T201  # the test reads it


def stream(model: ChatOpenAI, request: Request, heard: Heard) -> None:
    """Stream one answer."""
    heard.read(model.stream(request["messages"]))


def whole(model: ChatOpenAI, request: Request, heard: Heard) -> None:
    """Ask for one answer in one piece."""
    answer = model.invoke(request["messages"])
    heard.take(answer.content)
    heard.close(answer)


def tools(model: ChatOpenAI, request: Request, heard: Heard) -> None:
    """Run the loop of a program with a tool."""
    bound = model.bind_tools(request["tools"])
    messages: list[BaseMessage] = convert_to_messages(request["messages"])
    while True:
        answer = heard.read(bound.stream(messages))
        messages.append(answer)
        if not answer.tool_calls:
            return
        for call in answer.tool_calls:
            path = call["args"]["path"]
            heard.calls.append(path)
            messages.append(ToolMessage(f"The note at {path} says: pier nine.", tool_call_id=call["id"]))


def stop(model: ChatOpenAI, request: Request, heard: Heard) -> None:
    """Leave a stream after its first words."""
    chunks = model.stream(request["messages"])
    for chunk in chunks:
        heard.take(chunk.content)
        if heard.text:
            break
    chunks.close()  # type: ignore[attr-defined]  # a generator, though it is declared as an iterator


SCENARIOS: dict[str, Callable[[ChatOpenAI, Request, Heard], None]] = {
    "stream": stream,
    "whole": whole,
    "tools": tools,
    "stop": stop,
}


def main() -> None:
    """Run the scenario that the command line names."""
    base, scenario = sys.argv[1:3]
    request = json.load(sys.stdin)
    heard = Heard()
    model = ChatOpenAI(model=request["model"], base_url=base, api_key="none", max_retries=0, stream_usage=True)
    try:
        SCENARIOS[scenario](model, request, heard)
    except Exception as error:  # noqa: BLE001  # what the library raises is what the test asks for
        told = {key: getattr(error, key, None) for key in ("code", "type", "param")}
        status = getattr(error, "status_code", None)
        name = type(error).__name__
        say({"error": {**told, "name": name, "message": str(error), "status": status, "text": heard.text}})
    else:
        say({"end": vars(heard)})


main()
