"""The programs that `elbowroom connect` knows, and what each of them is told: one table for all who tell of them."""

import json
import os
from types import MappingProxyType
from typing import Any, Final

from elbowroom.connect.client import Client, Part

USER_HEADERS: Final = MappingProxyType({"X-Elbowroom-User": "{{USER_ID}}"})
"""What Open WebUI sends besides where several people use it."""
ANSWER_SHARE: Final = 8
MOST_OUTPUT: Final = 16_384
"""An answer may take an eighth of the window, up to this many tokens.

Agents compact by themselves where less than an answer is free. elbowroom keeps a fifth free by default, so that it is
the first to compact.
"""
HELD_BACK: Final = 20_480
"""Tokens by which a client is told more than window and answer, so that it does not compact before elbowroom.

pi keeps 4,096 free, Codex one in ten of what it is told; a long result is shortened after they have counted it.
"""
SAYS_TOKEN: Final = '"cmd", args = ["/c", "echo", "$token"]' if os.name == "nt" else '"echo", args = ["$token"]'
"""The program from which Codex gets the token: only with one does it ask for the list of models."""
WEBUI_HEADERS: Final = MappingProxyType(
    {
        "X-Conversation-Id": "{{CHAT_ID}}",
        "X-Elbowroom-Message-Id": "{{MESSAGE_ID}}",
        "X-Elbowroom-Parent-Id": "{{USER_MESSAGE_PARENT_ID}}",
        "X-Elbowroom-Task": "{{TASK}}",
    }
)
OPEN_WEBUI: Final = Client(
    "open-webui",
    "Open WebUI",
    (
        Part(
            "text",
            "$address/v1",
            about="Admin Panel, Settings, Connections: add an OpenAI API connection with this URL.",
            label="URL for Open WebUI",
        ),
        Part(
            "text",
            "$docker/v1",
            about="In Docker on this computer with this one:",
            label="URL for Open WebUI in Docker",
        ),
        Part(
            "json",
            json.dumps(dict(WEBUI_HEADERS), indent=2),
            about="Edit the connection and paste this as its headers. Chats then keep their gauge, and titles never "
            f"wait in front of them. Where several people use it, add {json.dumps(dict(USER_HEADERS))[1:-1]}.",
            label="headers",
        ),
        Part(
            "sh",
            """DEFAULT_MODEL_METADATA='{"capabilities":{"builtin_tools":false,"usage":true}}'""",
            about="Its built-in tools take 5,000 to 6,400 tokens of every chat. With small windows set "
            'client_tools = "search" in the settings of elbowroom, which tells of them by name, or switch them off: by '
            "`elbowroom connect open-webui --tools off`, in Capabilities of the model, or for all in its environment:",
            label="environment setting",
        ),
    ),
    headers=WEBUI_HEADERS,
)
CLAUDE_CODE: Final = Client(
    "claude-code",
    "Claude Code",
    (
        Part(
            "json",
            """\
{
  "env": {
    "ANTHROPIC_BASE_URL": "$address",
    "ANTHROPIC_AUTH_TOKEN": "$token",
    "ANTHROPIC_MODEL": "$model",
    "ANTHROPIC_DEFAULT_OPUS_MODEL": "$model",
    "ANTHROPIC_DEFAULT_SONNET_MODEL": "$model",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "$model",
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "$window",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "$output",
    "DISABLE_AUTO_COMPACT": "1",
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE": "100000000",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"
  }
}""",
            "~/.claude",
            ("settings.json",),
            "CLAUDE_CONFIG_DIR",
        ),
    ),
    is_written=True,
    then="Start it with: claude. Its own compaction is switched off, since what it keeps free is more than a small "
    "window has; elbowroom compacts in its place.",
    least_window=9_216,
)
CODEX: Final = Client(
    "codex",
    "Codex",
    (
        Part(
            "toml",
            """\
model = "$model"
model_provider = "elbowroom"
model_context_window = $widened
model_auto_compact_token_limit = $widened
web_search = "disabled"

[agents]
enabled = false

[features]
image_generation = false

[model_providers.elbowroom]
name = "elbowroom"
base_url = "$address/v1"
wire_api = "responses"
stream_idle_timeout_ms = 3600000
auth = { command = """
            + SAYS_TOKEN
            + " }",
            "~/.codex",
            ("config.toml",),
            "CODEX_HOME",
        ),
    ),
    is_written=True,
    then="Start it with: codex. The window in its settings is larger than the model's, so that elbowroom compacts "
    "before it.",
    least_window=3_072,
)
OPENCODE: Final = Client(
    "opencode",
    "opencode",
    (
        Part(
            "json",
            """\
{
  "$schema": "https://opencode.ai/config.json",
  "model": "elbowroom/$model",
  "small_model": "elbowroom/$model",
  "provider": {
    "elbowroom": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "elbowroom",
      "options": {"baseURL": "$address/v1", "apiKey": "$token", "timeout": false},
      "models": {
        "$model": {
          "name": "$model",
          "tool_call": true,
          "limit": {"context": $window, "input": $widened, "output": $output}
        }
      }
    }
  }
}""",
            "~/.config",
            ("opencode/opencode.json", "opencode/opencode.jsonc"),
            "XDG_CONFIG_HOME",
        ),
    ),
    is_written=True,
    then="Start it with: opencode.",
    least_window=6_144,
)
PI: Final = Client(
    "pi",
    "pi",
    (
        Part(
            "json",
            """\
{
  "providers": {
    "elbowroom": {
      "baseUrl": "$address/v1",
      "api": "openai-completions",
      "apiKey": "$token",
      "compat": {"sendSessionAffinityHeaders": true},
      "models": [
        {"id": "$model", "contextWindow": $widened, "maxTokens": $output}
      ]
    }
  }
}""",
            "~/.pi/agent",
            ("models.json",),
            "PI_CODING_AGENT_DIR",
        ),
        Part(
            "json",
            """\
{
  "defaultProvider": "elbowroom",
  "defaultModel": "$model",
  "compaction": {"reserveTokens": $output}
}""",
            "~/.pi/agent",
            ("settings.json",),
            "PI_CODING_AGENT_DIR",
        ),
    ),
    is_written=True,
    then="Start it with: pi.",
    least_window=3_072,
)
CRUSH: Final = Client(
    "crush",
    "Crush",
    (
        Part(
            "json",
            """\
{
  "providers": {
    "elbowroom": {
      "name": "elbowroom",
      "type": "openai-compat",
      "base_url": "$address/v1",
      "api_key": "$token",
      "models": [
        {"id": "$model", "name": "$model", "context_window": $window, "default_max_tokens": $output}
      ]
    }
  }
}""",
            "~/.config/crush",
            ("crush.json",),
        ),
    ),
    then="Start it with: crush, and choose the model there.",
)
QWEN_CODE: Final = Client(
    "qwen-code",
    "Qwen Code",
    (
        Part(
            "json",
            """\
{
  "env": {"ELBOWROOM_KEY": "$token"},
  "security": {"auth": {"selectedType": "openai"}},
  "model": {"name": "$model"},
  "modelProviders": {
    "openai": [
      {
        "id": "$model",
        "name": "elbowroom",
        "baseUrl": "$address/v1",
        "envKey": "ELBOWROOM_KEY",
        "generationConfig": {"contextWindowSize": $window, "samplingParams": {"max_tokens": $output}}
      }
    ]
  }
}""",
            "~/.qwen",
            ("settings.json",),
        ),
    ),
    then="Start it with: qwen.",
)
CLINE: Final = Client(
    "cline",
    "Cline",
    (
        Part(
            "text",
            """\
API Provider: OpenAI Compatible
Base URL: $address/v1
API Key: $token
Model ID: $model
Context Window Size: $window
Max Output Tokens: $output""",
            about="In the settings of its extension, the last two under Model Configuration:",
            label="fields of Cline",
        ),
        Part(
            "sh",
            'cline auth --provider openai-compatible --baseurl "$address/v1" --apikey "$token" --modelid "$model"',
            about="In a terminal, for its command line:",
            label="command of Cline",
        ),
    ),
    then="Start it with: cline, or open it in the editor.",
)
CONTINUE: Final = Client(
    "continue",
    "Continue",
    (
        Part(
            "yaml",
            """\
name: elbowroom
version: 1.0.0
schema: v1
models:
  - name: elbowroom
    provider: openai
    model: "$model"
    apiBase: "$address/v1"
    apiKey: "$token"
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: $window
      maxTokens: $output""",
            "~/.continue",
            ("config.yaml",),
        ),
    ),
    then="Where the file has models already, add the last entry to them.",
)
AIDER: Final = Client(
    "aider",
    "aider",
    (
        Part(
            "yaml",
            """\
model: "openai/$model"
openai-api-base: "$address/v1"
openai-api-key: "$token\"""",
            "~",
            (".aider.conf.yml",),
        ),
        Part(
            "json",
            """\
{
  "openai/$model": {
    "litellm_provider": "openai",
    "mode": "chat",
    "max_input_tokens": $window,
    "max_output_tokens": $output,
    "max_tokens": $output,
    "input_cost_per_token": 0,
    "output_cost_per_token": 0
  }
}""",
            "~",
            (".aider.model.metadata.json",),
        ),
    ),
    then="Start it with: aider.",
)
ZED: Final = Client(
    "zed",
    "Zed",
    (
        Part(
            "json",
            """\
{
  "language_models": {
    "openai_compatible": {
      "elbowroom": {
        "api_url": "$address/v1",
        "available_models": [
          {
            "name": "$model",
            "display_name": "$model",
            "max_tokens": $window,
            "max_output_tokens": $output,
            "capabilities": {"tools": true, "images": false}
          }
        ]
      }
    }
  }
}""",
            "~/.config/zed",
            ("settings.json",),
        ),
        Part(
            "sh",
            'export ELBOWROOM_API_KEY="$token"',
            about="Zed takes no key from its settings: enter it in its AI settings, or set this before it starts:",
        ),
    ),
    then="Choose the model in Zed's agent panel.",
)
LM_STUDIO: Final = Client(
    "lm-studio",
    "LM Studio's own chat",
    (
        Part(
            "json",
            """\
{
  "mcpServers": {
    "elbowroom": {"url": "$address/mcp", "headers": {"Authorization": "Bearer $token"}}
  }
}""",
            "~/.lmstudio",
            ("mcp.json",),
        ),
    ),
    is_written=True,
    then="Switch elbowroom on in a chat of LM Studio: Program, in the bar on the right.",
)
"""It talks to its models itself, and searches by MCP what was said with elbowroom; so it is told no model."""
AGENTS: Final = (CLAUDE_CODE, CODEX, OPENCODE, PI, CRUSH, QWEN_CODE, CLINE, CONTINUE, AIDER, ZED)
"""The coding agents, each of which is told a model and its window."""
CLIENTS: Final = {client.id: client for client in (OPEN_WEBUI, LM_STUDIO, *AGENTS)}
"""All of them, by the argument of the command."""


def _plugin(name: str, about: str, path: str = "/v1") -> Client:
    """Return a plugin of Obsidian, which takes an address in a form of its own."""
    part = Part("text", f"$address{path}", about=about, label=f"address for {name}")
    return Client(name.partition(" (")[0].lower().replace(" ", "-"), name, (part,))


PLUGINS: Final = (
    _plugin("Copilot", "Add a custom model, provider “OpenAI format”. With “Enable CORS” answers come in one piece."),
    _plugin("Smart Composer", "Provider “LM Studio”, which adds /v1 by itself. Model IDs are typed by hand.", ""),
    _plugin("Smart Composer, OpenAI compatible", "Provider “OpenAI compatible”."),
    _plugin("AI Providers (for Local GPT)", "Provider “OpenAI”."),
    _plugin("Smart Connections", "Custom API, OpenAI format.", "/v1/chat/completions"),
    _plugin("Text Generator", "“OpenAI Chat” with its own base path. The custom provider does not stream."),
    _plugin("BMO Chatbot", "REST API URL, in its settings."),
    _plugin("SystemSculpt", "Add a custom provider."),
)


def table() -> dict[str, Any]:
    """Return all of it as the page reads it."""
    return {
        "webui": OPEN_WEBUI.as_json(),
        "agents": [client.as_json() for client in AGENTS],
        "plugins": [client.as_json() for client in PLUGINS],
        "share": ANSWER_SHARE,
        "most": MOST_OUTPUT,
        "held": HELD_BACK,
    }
