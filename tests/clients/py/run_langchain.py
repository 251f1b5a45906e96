"""LangChain's `langchain-openai`."""

from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage, convert_to_messages
from langchain_openai import ChatOpenAI
from library_runner import Heard, Request, read_blocks, run


def model_of(base: str, request: Request) -> ChatOpenAI:
    """Return a model that asks once."""
    return ChatOpenAI(model=request["model"], base_url=base, api_key="none", max_retries=0, stream_usage=True)


def read(chunks: Any, heard: Heard) -> Any:
    """Read a stream to its end and return the whole message."""
    whole: Any = None
    for chunk in chunks:
        heard.chunks += 1
        heard.take(chunk.content)
        whole = chunk if whole is None else whole + chunk
    close(whole, heard)
    return whole


def close(message: Any, heard: Heard) -> None:
    """Take how an answer ended."""
    heard.finish = message.response_metadata.get("finish_reason")
    heard.usage = message.usage_metadata


def stream(base: str, request: Request, heard: Heard) -> None:
    """Stream one answer."""
    read(model_of(base, request).stream(request["messages"]), heard)


def whole(base: str, request: Request, heard: Heard) -> None:
    """Ask for one answer in one piece."""
    answer = model_of(base, request).invoke(request["messages"])
    heard.take(answer.content)
    close(answer, heard)


def tools(base: str, request: Request, heard: Heard) -> None:
    """Run the loop of a program with a tool."""
    model = model_of(base, request).bind_tools(request["tools"])
    messages: list[BaseMessage] = convert_to_messages(request["messages"])
    while True:
        answer = read(model.stream(messages), heard)
        messages.append(answer)
        if not answer.tool_calls:
            return
        for call in answer.tool_calls:
            messages.append(ToolMessage(heard.called(call["args"]["path"]), tool_call_id=call["id"]))  # noqa: PERF401


def managed(base: str, request: Request, heard: Heard) -> None:
    """Stream one answer by responses, whose history the server manages."""
    fields = {name: request[name] for name in ("model", "context_management")}
    model = ChatOpenAI(base_url=base, api_key="none", max_retries=0, use_responses_api=True, **fields)
    read_blocks(model.stream(request["messages"]), heard)


def stop(base: str, request: Request, heard: Heard) -> None:
    """Leave a stream after its first words."""
    chunks = model_of(base, request).stream(request["messages"])
    for chunk in chunks:
        heard.take(chunk.content)
        if heard.text:
            break
    chunks.close()


run({"stream": stream, "whole": whole, "tools": tools, "managed": managed, "stop": stop})
