"""Finds the windows that servers run their models with: each kind of server tells them in a form of its own.

The window is what one request may fill. What a model was trained for is none, and neither is a memory that several
requests share.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final
from urllib.parse import quote

from elbowroom.caches import Recent
from elbowroom.errors import ElbowroomError
from elbowroom.providers.lmstudio import windows_in_list
from elbowroom.providers.upstream import Upstream

Row = Mapping[str, Any]
NUM_CTX: Final = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)
MOST_SHOWN: Final = 64
"""Models of an Ollama whose settings are asked for and kept."""
SLOTS_WITHIN: Final = 1.0
"""Seconds in which a server tells its slots; they are not needed, and chats wait for them."""
NOT_ASKED_FOR: Final = 60.0
"""Seconds for which a model whose slots were not told is not asked for them."""


def size(value: Any) -> int | None:
    """Return a number of tokens; None for everything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def window_in_row(row: Row) -> int | None:
    """Return the window that a row of `/v1/models` tells: vLLM's and SGLang's, or llama.cpp's, which is one slot's.

    An elbowroom marks those that its models only had when they were loaded last.
    """
    if row.get("window_is") == "if_loaded":
        return None
    return size(row.get("max_model_len")) or size(_part(row, "meta").get("n_ctx"))


class Windows:
    """Asks a server by whichever form it knows, and first by the one that it has known before."""

    def __init__(self, upstream: Upstream, root: str) -> None:
        self._upstream = upstream
        self._root = root
        self._shown = Recent[tuple[str, Any], int | None]("ollama_windows", MOST_SHOWN)
        self._ways = (self._llama_cpp, self._tabby, self._ollama, self._lm_studio)
        self._known: int | None = None
        self._silent = Recent[str, float]("silent_about_slots", MOST_SHOWN)

    async def of(self, rows: Sequence[Row]) -> dict[str, int]:
        """Return the windows of these rows of `/v1/models` by id, as far as the server tells them."""
        found = {row["id"]: window for row in rows if (window := window_in_row(row)) is not None}
        silent = [row for row in rows if row["id"] not in found]
        if silent and self._known is not None:
            found |= await self._ways[self._known](silent)
            silent = [row for row in silent if row["id"] not in found]
        if silent and not found:
            told = await asyncio.gather(*(way(silent) for way in self._ways))
            self._known = next((number for number, windows in enumerate(told) if windows), None)
            found = told[self._known] if self._known is not None else {}
        return found

    async def _llama_cpp(self, rows: Sequence[Row]) -> dict[str, int]:
        """Ask for the window of one slot."""
        props = await self._props(_props_paths(rows))
        told = {name: _part(answer, "default_generation_settings") for name, answer in props.items()}
        return {name: window for name, part in told.items() if (window := size(part.get("n_ctx"))) is not None}

    async def slots(self, rows: Sequence[Row]) -> dict[str, int]:
        """Return how many requests llama.cpp reads side by side for each loaded model, each with its own cache."""
        now = asyncio.get_running_loop().time()
        paths = _props_paths(rows)
        asked = {name: path for name, path in paths.items() if now - (self._silent.get(name) or -inf) >= NOT_ASKED_FOR}
        told = await self._props(asked, within=SLOTS_WITHIN)
        for name in asked.keys() - told.keys():
            self._silent.put(name, now)
        return {name: slots for name, props in told.items() if (slots := size(props.get("total_slots"))) is not None}

    async def _props(self, paths: Mapping[str, str], within: float | None = None) -> dict[str, Row]:
        """Return llama.cpp's `/props` of models, as far as it answers within so many seconds."""
        answers = await asyncio.gather(*(self._ask("GET", path, within=within) for path in paths.values()))
        return {name: answer for name, answer in zip(paths, answers, strict=True) if isinstance(answer, dict)}

    async def _tabby(self, rows: Sequence[Row]) -> dict[str, int]:
        """Ask TabbyAPI for its one loaded model; `cache_size` is what all requests share."""
        answer = await self._ask("GET", "v1/model")
        window = size(_part(answer, "parameters").get("max_seq_len"))
        name = answer.get("id") if isinstance(answer, dict) else None
        return {row["id"]: window for row in rows if window is not None and row["id"] == name}

    async def _ollama(self, rows: Sequence[Row]) -> dict[str, int]:
        """Ask Ollama what runs, and with which windows models are set up."""
        answer = await self._ask("GET", "api/ps")
        listed = answer.get("models") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            return {}
        running = [row for row in listed if isinstance(row, dict) and isinstance(row.get("name"), str)]
        return await self.of_ollama(rows, {row["name"]: size(row.get("context_length")) for row in running})

    async def of_ollama(self, rows: Sequence[Row], running: Mapping[Any, int | None]) -> dict[str, int]:
        """Return the windows of an Ollama's models: a model's own `num_ctx`, else that with which it runs."""
        found = {}
        for row in rows[:MOST_SHOWN]:
            both = [window for window in (running.get(row["id"]), await self._set_up(row)) if window is not None]
            if both:
                found[row["id"]] = min(both)
        return found

    async def _set_up(self, row: Row) -> int | None:
        """Return the `num_ctx` that a model of Ollama sets, at most what it was trained for; None where it sets none.

        With it each request is answered that names none itself, as requests to OpenAI's routes do not.
        """
        key = row["id"], row.get("created") or row.get("modified_at")
        if key not in self._shown:
            self._shown.put(key, _num_ctx(await self._ask("POST", "api/show", {"model": row["id"]})))
        return self._shown.get(key)

    async def _lm_studio(self, rows: Sequence[Row]) -> dict[str, int]:
        """Ask LM Studio for its own lists, of which older versions have the second alone."""
        names = {row["id"] for row in rows}
        for path in ("api/v1/models", "api/v0/models"):
            if windows := windows_in_list(await self._ask("GET", path)):
                return {name: window for name, window in windows.items() if name in names}
        return {}

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, within: float | None = None
    ) -> Any:
        """Return the answer of a route, None where the server does not have it or does not answer, in time."""
        try:
            async with asyncio.timeout(within):
                return await self._upstream.ask(method, f"{self._root}/{path}", body)
        except (ElbowroomError, TimeoutError):
            return None


def _props_paths(rows: Sequence[Row]) -> dict[str, str]:
    """Return where llama.cpp tells of loaded models; it is asked by name where the server has several to load."""
    if any(isinstance(row.get("status"), dict) for row in rows):
        loaded = [row["id"] for row in rows if _part(row, "status").get("value") == "loaded"]
        return {name: f"props?model={quote(name, safe='')}&autoload=false" for name in loaded}
    return {rows[0]["id"]: "props"} if len(rows) == 1 else {}


def _part(value: Any, name: str) -> Row:
    part = value.get(name) if isinstance(value, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _num_ctx(shown: Any) -> int | None:
    parameters = shown.get("parameters") if isinstance(shown, dict) else None
    set_up = NUM_CTX.findall(parameters) if isinstance(parameters, str) else []
    if not set_up:
        return None
    facts = _part(shown, "model_info")
    trained = size(facts.get(f"{facts.get('general.architecture')}.context_length"))
    return min(int(set_up[-1][:12]), trained or int(set_up[-1][:12])) or None
