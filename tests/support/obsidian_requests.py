"""Chat requests exactly as Obsidian's plugins send them: path, headers and body, from their public sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from chatting import function_spec

DESKTOP: Final = "app://obsidian.md"
IOS: Final = "capacitor://localhost"
ANDROID: Final = "http://localhost"
SAFE_FOR_PAGES: Final = frozenset({"accept", "accept-language", "user-agent", "origin"})
"""Headers that need no permission; so do those that begin with `sec-`."""
ELECTRON: Final = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) obsidian/1.13.4 "
    "Chrome/146.0.0.0 Electron/43.1.0 Safari/537.36",
    "Accept-Language": "en-US",
}
STAINLESS: Final = {
    "x-stainless-arch": "unknown",
    "x-stainless-lang": "js",
    "x-stainless-os": "Unknown",
    "x-stainless-package-version": "6.49.0",
    "x-stainless-retry-count": "0",
    "x-stainless-runtime": "browser:chrome",
    "x-stainless-runtime-version": "146.0.0",
    "x-stainless-timeout": "600",
}
SYSTEM: Final = {"role": "system", "content": "You are Obsidian Copilot."}
QUESTION: Final = {"role": "user", "content": "What did I note about the ferry?"}
LOOKUP: Final = function_spec("lookup", hypotheticals={"type": "array", "items": {"type": "string"}})


@dataclass(frozen=True, slots=True)
class PluginRequest:
    """One request; `headers` are those on the wire but for what every HTTP client adds itself."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def origin(self) -> str | None:
        """The web view's origin; None where the request goes out past it."""
        return self.headers.get("Origin")

    @property
    def preflight(self) -> dict[str, str]:
        """The headers of the OPTIONS request that a web view sends before."""
        asked = sorted(
            name.lower()
            for name in self.headers
            if name.lower() not in SAFE_FOR_PAGES and not name.lower().startswith("sec-")
        )
        return {
            **ELECTRON,
            "Origin": self.headers["Origin"],
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": ",".join([*asked, "content-type"]),
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "cors",
        }


def in_web_view(*, origin: str = DESKTOP, key: str | None = None, **headers: str) -> dict[str, str]:
    """Return the headers of `fetch` or XMLHttpRequest; `key` is sent as a bearer, empty too, None sends none."""
    bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
    site = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    return {**ELECTRON, **site, **bearer, **headers}


def past_web_view(*, key: str | None = None, **headers: str) -> dict[str, str]:
    """Return the headers of `requestUrl` or Electron's own `net`, which know no origin."""
    bearer = {} if key is None else {"Authorization": f"Bearer {key}"}
    return {**ELECTRON, "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "no-cors", **bearer, **headers}


def body(**fields: Any) -> dict[str, Any]:
    """Return a body with a system message and a question."""
    return {"model": "writer", "messages": [SYSTEM, QUESTION], **fields}


COPILOT: Final = {**STAINLESS, "dangerously-allow-browser": "true", "Accept": "application/json"}
COMPOSER: Final = {**STAINLESS, "Accept": "application/json"}
TEXT_GENERATOR: Final = {"HTTP-Referer": DESKTOP, "X-Title": "obsidian-text-generator", **STAINLESS}
USAGE: Final = {"stream_options": {"include_usage": True}}
ROUTE: Final = "/v1/chat/completions"
BMO_BODY: Final = body(stream=True, temperature=None, max_tokens=4096)
"""An empty temperature field is no number, which JSON writes as null."""
TEXT_GENERATOR_BODY: Final = body(
    temperature=0.7, top_p=1, frequency_penalty=0, presence_penalty=0.5, max_tokens=400, n=1, stream=False, stop=""
)
SMART_CONNECTIONS_BODY: Final = {
    "messages": [
        SYSTEM,
        {"role": "user", "content": [{"type": "text", "text": "Ferry?"}, {"type": "text", "text": 'Use "lookup".'}]},
    ],
    "model": "writer",
    "temperature": 0.3,
    "stream": True,
    "tools": [LOOKUP],
    "tool_choice": "required",
}
REQUESTS: Final[Mapping[str, PluginRequest]] = {
    "Copilot without a key": PluginRequest(ROUTE, in_web_view(**COPILOT), body(stream=True)),
    "Copilot with tools": PluginRequest(
        ROUTE, in_web_view(key="default-key", **COPILOT), body(stream=True, tools=[LOOKUP])
    ),
    "Copilot's CORS mode": PluginRequest(ROUTE, past_web_view(**COPILOT), body(stream=True)),
    "Copilot's LM Studio provider without responses": PluginRequest(
        ROUTE, in_web_view(key="default-key", **COPILOT), body(stream=True, **USAGE)
    ),
    "Copilot's ping": PluginRequest(
        ROUTE, in_web_view(key="default-key", **COPILOT), body(stream=False, max_tokens=30)
    ),
    "Smart Composer": PluginRequest(ROUTE, in_web_view(key="", **COMPOSER), body(stream=True, **USAGE)),
    "Smart Composer with /v1 typed": PluginRequest(
        "/v1/v1/chat/completions", in_web_view(key="", **COMPOSER), body(stream=True, **USAGE)
    ),
    "Smart Composer with MCP tools": PluginRequest(
        ROUTE,
        in_web_view(key="none", **COMPOSER),
        body(stream=True, tools=[LOOKUP], tool_choice="auto", **USAGE),
    ),
    "Smart Composer without x-stainless": PluginRequest(
        ROUTE, in_web_view(key="", Accept="application/json"), body(stream=True, temperature=0, top_p=1, **USAGE)
    ),
    "Smart Composer without /v1 typed": PluginRequest(
        "/chat/completions", in_web_view(key="", **COMPOSER), body(stream=True, **USAGE)
    ),
    "AI Providers on a computer": PluginRequest(
        ROUTE, past_web_view(key="placeholder-key", Accept="application/json"), body(stream=True)
    ),
    "AI Providers with native fetch": PluginRequest(
        ROUTE, in_web_view(key="placeholder-key", Accept="application/json"), body(stream=True, tools=[LOOKUP])
    ),
    "Local GPT": PluginRequest(
        ROUTE, past_web_view(key="placeholder-key", Accept="application/json"), body(stream=True, temperature=0.2)
    ),
    "Smart Connections": PluginRequest(ROUTE, in_web_view(key="no api key required"), SMART_CONNECTIONS_BODY),
    "Smart Connections on iOS": PluginRequest(
        ROUTE, in_web_view(origin=IOS, key="no api key required"), body(stream=True, temperature=0.3)
    ),
    "Smart Connections without streaming": PluginRequest(
        ROUTE, past_web_view(key="no api key required"), body(stream=False)
    ),
    "Text Generator, custom": PluginRequest(ROUTE, in_web_view(key=""), TEXT_GENERATOR_BODY),
    "Text Generator, custom, past CORS": PluginRequest(ROUTE, past_web_view(key="undefined"), TEXT_GENERATOR_BODY),
    "Text Generator, OpenAI Chat": PluginRequest(
        ROUTE,
        in_web_view(key="none", **TEXT_GENERATOR),
        body(stream=True, temperature=0.7, frequency_penalty=0, presence_penalty=0.5, n=1, max_tokens=400),
    ),
    "Text Generator, full address as the base": PluginRequest(
        "/v1/chat/completions/chat/completions", in_web_view(key="none", **TEXT_GENERATOR), body(stream=True, n=1)
    ),
    "BMO Chatbot": PluginRequest(ROUTE, in_web_view(key=""), BMO_BODY),
    "BMO Chatbot on Android": PluginRequest(ROUTE, in_web_view(origin=ANDROID, key=""), BMO_BODY),
    "BMO Chatbot with a slash typed": PluginRequest("/v1//chat/completions", in_web_view(key=""), BMO_BODY),
    "SystemSculpt": PluginRequest(
        ROUTE, in_web_view(), body(stream=True, tools=[LOOKUP], tool_choice="auto", parallel_tool_calls=False)
    ),
    "SystemSculpt on a phone": PluginRequest(ROUTE, past_web_view(), body(stream=True)),
    "a slash behind the route": PluginRequest("/v1/chat/completions/", in_web_view(), body(stream=True)),
}
