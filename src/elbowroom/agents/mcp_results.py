"""What an MCP server answers to a call, as the result of a tool: text, and whole what is no text."""

import base64
import binascii
import json
from collections.abc import Iterator

from mcp import types

from elbowroom.agents.own_tool import Media, ToolResult

NOTHING = "(The tool returned nothing.)"
UNKNOWN_FORM = "application/octet-stream"


def as_tool_result(result: types.CallToolResult) -> ToolResult:
    """Return the result with its texts joined, a line for each part that is none, and those parts as media."""
    texts: list[str] = []
    media: list[Media] = []
    for part in _parts(result.content):
        match part:
            case str():
                texts.append(part)
            case Media():
                texts.append(f"[{part.mime_type}, {len(part.data)} bytes]")
                media.append(part)
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolResult("\n".join(texts) or NOTHING, is_error=bool(result.is_error), media=tuple(media))


def _parts(content: list[types.ContentBlock]) -> Iterator[str | Media]:
    for block in content:
        match block:
            case types.TextContent(text=text):
                yield text
            case types.ImageContent() | types.AudioContent():
                yield _decoded(block.data, block.mime_type)
            case types.ResourceLink():
                yield _told_link(block)
            case types.EmbeddedResource():
                yield f"[{block.resource.uri}]"
                yield _contents(block.resource)


def _contents(resource: types.TextResourceContents | types.BlobResourceContents) -> str | Media:
    if isinstance(resource, types.TextResourceContents):
        return resource.text
    return _decoded(resource.blob, resource.mime_type or UNKNOWN_FORM)


def _decoded(data: str, mime_type: str) -> str | Media:
    try:
        return Media(mime_type, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[{mime_type}, not readable: it is not base64]"


def _told_link(link: types.ResourceLink) -> str:
    named = f"{link.title or link.name}: " if link.title or link.name else ""
    about = f" ({link.description})" if link.description else ""
    return f"[{named}{link.uri}{about}]"
