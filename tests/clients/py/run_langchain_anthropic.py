"""LangChain's `langchain-anthropic`."""

from langchain_anthropic import ChatAnthropic
from library_runner import Heard, Request, read_blocks, run


def managed(base: str, request: Request, heard: Heard) -> None:
    """Stream one answer whose history the server manages."""
    fields = {name: request[name] for name in ("model", "max_tokens", "context_management", "betas")}
    model = ChatAnthropic(base_url=base.removesuffix("/v1"), api_key="none", max_retries=0, **fields)
    read_blocks(model.stream(request["messages"]), heard)


if __name__ == "__main__":
    run({"managed": managed})
