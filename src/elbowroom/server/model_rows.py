"""One model of a list, as each kind of client reads it: OpenAI's and LM Studio's, Anthropic's, and Codex."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from elbowroom.agents.catalog import CatalogRow
from elbowroom.context.budget import most_reserve

SHOWN_RESULT: Final = 10_000
"""How many tokens of a tool's result Codex keeps at most; of a small window a quarter."""
INSTRUCTIONS: Final = """\
You are a coding agent in the terminal of a user. Work with your tools on the files in the current folder until the \
task is done, and then tell in a few plain sentences what you changed and what you checked.

- Look before you change. Search with `rg`, or `grep` where there is no `rg`; read the parts of files that you need, \
not whole large files; keep the output of commands short.
- Follow what AGENTS.md files in the folder say.
- Make and change files with `apply_patch`. A patch begins with the line `*** Begin Patch` and ends with the line \
`*** End Patch`. Between them stand `*** Add File: <path>` with lines that begin with `+`; `*** Update File: <path>` \
with `@@` and lines that begin with a space (they stay), `-` (they go) or `+` (they come); or `*** Delete File: \
<path>`.
- Change what the task asks for and nothing else, in the style of the code around it. Do not commit, and do not undo \
what others have changed, unless you are asked to.
- After a change run the tests or the program that it concerns. When something fails, read the message and mend the \
cause.
- Before a longer piece of work say in one sentence what you will do. Ask the user only where you cannot go on \
without an answer.
"""
"""What a model is told by Codex, which takes its instructions from the list of models; its own have 17,000 letters."""
CODEX: Final[Mapping[str, Any]] = {
    "description": None,
    "supported_reasoning_levels": [],
    "default_reasoning_level": None,
    "shell_type": "unified_exec",
    "visibility": "list",
    "supported_in_api": True,
    "availability_nux": None,
    "upgrade": None,
    "base_instructions": INSTRUCTIONS,
    "supports_reasoning_summaries": False,
    "supports_reasoning_summary_parameter": False,
    "default_reasoning_summary": "none",
    "support_verbosity": False,
    "default_verbosity": None,
    "apply_patch_tool_type": "freeform",
    "supports_parallel_tool_calls": True,
    "auto_compact_token_limit": None,
    "max_context_window": None,  # with one, it would not take a wider window from its settings
    "experimental_supported_tools": [],
    "tool_mode": "direct",
    "multi_agent_version": "disabled",  # whose tools take 2,300 tokens, for agents that share one model
}
"""What Codex is told of every model."""


def for_openai(row: CatalogRow, created: int) -> dict[str, Any]:
    """Return a row as OpenAI's and LM Studio's clients read it; sizes in tokens, `created` in Unix seconds."""
    described: dict[str, Any] = {
        "id": row.id,
        "object": "model",
        "created": created,
        "owned_by": row.owner,
        "name": row.name,
        **_windows(row),
    }
    if row.info is None:
        return {**described, "state": "unavailable"}
    if row.info.loaded_context is not None:
        described["loaded_context_length"] = row.info.loaded_context
    if row.info.max_context is not None:
        described["max_context_length"] = row.info.max_context
    if row.info.state is not None:
        described["state"] = row.info.state
    if row.info.instances is not None:
        described["loaded_instances"] = [
            {"id": instance, "config": {"context_length": size}} for instance, size in row.info.instances.items()
        ]
    if row.info.capabilities:
        described["capabilities"] = sorted(row.info.capabilities)
    return described


def _windows(row: CatalogRow) -> dict[str, Any]:
    """Return the window under the names by which clients look for it; nothing where nobody knows it.

    What a model was trained for is no window. One that is advertised stands in its place, and by its own name beside
    the context length that is loaded.
    """
    told = _told_window(row)
    if told is None:
        return {}
    names = ("context_length", "context_window", "max_model_len", "max_input_tokens")
    return {
        **dict.fromkeys(names, told),
        "max_output_tokens": most_reserve(row.window or told),
        "meta": {"n_ctx": told},
        "window_is": _kind_of_window(row),
        **({"advertised_window": told} if row.advertised_window else {}),
    }


def _told_window(row: CatalogRow) -> int | None:
    return row.advertised_window or row.window


def _kind_of_window(row: CatalogRow) -> str | None:
    if row.advertised_window:
        return "advertised"
    if row.window is None:
        return None
    return "loaded" if row.is_loaded else "if_loaded"


def for_anthropic(row: CatalogRow, created: int) -> dict[str, Any]:
    """Return a row as Anthropic's clients read it; a size is null while nobody knows it."""
    return {
        "type": "model",
        "id": row.id,
        "display_name": row.name,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        "max_input_tokens": _told_window(row),
        "max_tokens": most_reserve(told) if (told := row.window or row.advertised_window) else None,
        "window_is": _kind_of_window(row),
        "lifecycle": "active",
    }


def for_codex(row: CatalogRow, place: int) -> dict[str, Any]:
    """Return a row as Codex reads it; `place` is where it stands in the list."""
    sees = row.info is not None and (row.info.kind == "vlm" or "vision" in row.info.capabilities)
    shown = min(SHOWN_RESULT, row.window // 4) if row.window else SHOWN_RESULT
    return {
        "slug": row.id,
        "display_name": row.name,
        **CODEX,
        "priority": place,
        "context_window": _told_window(row),
        "truncation_policy": {"mode": "tokens", "limit": shown},
        "input_modalities": ["text", "image"] if sees else ["text"],
    }
