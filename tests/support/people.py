"""A server with a token and people, and what each of them may ask of every route: for docs/develop/reliability.md.

`scripts/people` prints the table, with `--write` it puts it there.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chatting import AGENT, MODEL, RAW_MODEL
from serving import Served, serve, settings_for
from settings_calls import ask

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.server.state import SHARED

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "develop" / "reliability.md"
BEGIN, END = "<!-- people: begin -->", "<!-- people: end -->"
KEY: Final = "the-token-of-the-server"
EMBEDDER: Final = "text-embedding-nomic-embed-text-v1.5"
OWNER: Final = {"Authorization": f"Bearer {KEY}"}
COLUMNS: Final = ("routes", "no token", "member", "other member", "owner", "revoked")
SERVER: Final = """
[memory]
enabled = true
"""
SOMEBODY_ELSES: Final = "somebody else's"
"""What every 404 says of what belongs to another person, or to nobody."""
BODIES: Final[Mapping[str, Any]] = {
    "PATCH /api/settings": {"compaction": {"auto": True}},
    "PUT /v1/conversations/{id}/summary": {"summary": "They spoke."},
    "PATCH /v1/conversations/{id}": {"title": "Another one"},
    "POST /v1/conversations/{id}/queue": {"content": "And this."},
    "POST /v1/conversations/{id}/items": {"items": [{"type": "message", "role": "user", "content": "And this."}]},
}
"""What a route needs to look at all for what it is about; the others get an empty object."""


@asynccontextmanager
async def server_of_people(folder: Path, more: str = "") -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run a server that asks for a token."""
    model = SimulatedModel(MODEL, loaded_context_length=32_768, parallel=8)
    models = [model, SimulatedModel(EMBEDDER, type="embedding")]
    async with SimulatedLMStudio(models) as studio:
        settings = settings_for(studio.base_url, agents=AGENT + SERVER, server=more)
        async with serve(folder, settings, environ={"ELBOWROOM_TOKEN": KEY}) as served:
            yield served, studio


async def token_of(served: Served, name: str, role: str = "member") -> dict[str, str]:
    """Make a token for a person; return the headers with it."""
    status, made = await ask(served, "POST", "/api/users", {"name": name, "role": role}, **OWNER)
    assert status == 201, made
    return {"Authorization": f"Bearer {made['token']}"}


async def say(served: Served, text: str, headers: Mapping[str, str], **fields: Any) -> tuple[int, Any]:
    """Send a chat as somebody."""
    body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": text}], **fields}
    return await ask(served, "POST", "/v1/chat/completions", body, **headers)


async def heard(served: Served, headers: Mapping[str, str]) -> list[str]:
    """Return the titles of somebody's conversations."""
    status, listed = await ask(served, "GET", "/v1/conversations", **headers)
    assert status == 200, listed
    return [row["title"] for row in listed["data"]]


def routes_of(served: Served) -> list[tuple[str, str]]:
    """Return method and path of every route, as the documents write them."""
    found = []
    for route in served.app.router.routes():
        if route.resource is not None and route.method != "HEAD":
            path = route.resource.canonical.replace("/{base}", "/v1/").removesuffix("{end}")
            found.append((route.method, path))
    return found


class Belongings:
    """What a member has, made anew for each route, so that one that deletes it takes it from no other."""

    def __init__(self, served: Served, headers: Mapping[str, str], name: str) -> None:
        self._served, self._headers, self._name = served, headers, name
        self._number = 0

    async def path(self, path: str) -> str:
        """Return the path with the member's own things in it."""
        if "{" not in path:
            return path
        self._number += 1
        store, kept = self._served.app[SHARED].store, {"job_id": "x", "number": "1", "tool": "search_conversations"}
        if path.startswith("/v1/conversations/"):
            kept |= await self._conversation()
        elif path.startswith("/v1/responses/"):
            kept["id"] = (await self._asked("POST", "/v1/responses", {"model": RAW_MODEL, "input": "Hello"}))["id"]
        elif path.startswith("/api/memories/"):
            kept["id"] = (await store.memories.save(self._name, "writer", f"Likes tea {self._number}.", 1.0)).id
        elif path.startswith("/v1/tool_outputs/"):
            kept["ref"] = (await store.tool_outputs.keep(self._name, "read", f"A long list {self._number}.")).id
        elif path.startswith("/api/agents/"):
            kept["id"] = f"agent-{self._number}"
            made = {"id": kept["id"], "model": MODEL}
            assert (await ask(self._served, "POST", "/api/agents", made, **OWNER))[0] == 201
        elif path.startswith("/v1/models/"):
            kept["id"] = RAW_MODEL
        elif path == "/page/{name}":
            kept["name"] = "app.js"
        return re.sub(r"\{(\w+)\}", lambda found: kept.get(found[1], "x"), path)

    async def _conversation(self) -> dict[str, str]:
        name = f"c{self._number}"
        status, answer = await say(self._served, f"Hello {name}", {**self._headers, "X-Conversation-Id": name})
        assert status == 200, answer
        page = await self._asked("GET", f"/v1/conversations/{name}/messages")
        return {"id": name, "message": page["data"][0]["id"], "item": page["data"][0]["id"]}

    async def _asked(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await ask(self._served, method, path, body, **self._headers)
        assert status < 300, answer
        return answer


async def outcomes(folder: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return for every route what it says to each kind of caller: yes, or the status of a refusal."""
    async with server_of_people(folder) as (served, _):
        anna, ben, carl = [await token_of(served, name) for name in ("anna", "ben", "carl")]
        listed = (await ask(served, "GET", "/api/users", **OWNER))[1]["data"]
        [gone] = [row["id"] for row in listed if row["name"] == "carl"]
        assert (await ask(served, "DELETE", f"/api/users/{gone}", **OWNER))[0] == 204
        own, found = Belongings(served, anna, "anna"), {}
        for method, path in routes_of(served):
            body = BODIES.get(f"{method} {path}", {} if method in ("POST", "PUT", "PATCH") else None)
            asked = await own.path(path) + ("?q=hello" if path.endswith("/search") else "")
            said = {
                who: await _outcome(served, method, asked, body, headers)
                for who, headers in (
                    ("no token", {}),
                    ("revoked", carl),
                    ("other member", ben),
                    ("owner", OWNER),
                    ("member", anna),
                )
            }
            found[method, path] = tuple(said[who] for who in COLUMNS[1:])
        return found


async def _outcome(served: Served, method: str, path: str, body: Any, headers: Mapping[str, str]) -> str:
    """Return the status of a refusal, and yes for all that comes after it, such as that the body lacks something."""
    given = {} if body is None else {"json": body}
    async with served.http.request(method, served.url + path, headers=dict(headers), **given) as response:
        text = await response.text()
        if response.status in (401, 403):
            return str(response.status)
        return "404" if response.status == 404 and SOMEBODY_ELSES in text else "yes"


def table(found: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Return the table: a row for all routes that say the same to everybody; … stands for a route and all below it."""
    rows: dict[tuple[str, ...], list[str]] = defaultdict(list)
    shown = ""
    for path, said in sorted((path, tuple(said)) for (_, path), said in found.items()):
        if shown and path.startswith(shown):
            continue
        below = {tuple(other) for (_, each), other in found.items() if f"{each}/".startswith(f"{path}/")}
        is_alone = not any(each.startswith(f"{path}/") for _, each in found)
        shown = f"{path}/" if below == {said} else ""
        name = path if is_alone or not shown else f"{path}…"
        if f"`{name}`" not in rows[said]:
            rows[said].append(f"`{name}`")
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join((", ".join(paths), *said)) for said, paths in sorted(rows.items())]
    return "\n".join(f"| {line} |" for line in lines)


def written(page: str, shown: str) -> str:
    """Return a page with this table in place of the one that it has."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{shown}\n{END}", page, flags=re.DOTALL)


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put it into docs/develop/reliability.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shown = table(asyncio.run(outcomes(Path(folder))))
    if options.write:
        DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), shown), encoding="utf-8")
    else:
        sys.stdout.write(f"{shown}\n")


if __name__ == "__main__":
    main()
