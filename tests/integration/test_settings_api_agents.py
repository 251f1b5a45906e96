"""`/api/agents`, `/api/providers` and `/api/tools`; and that changes count for the next request and disturb none."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chatting import AGENT, MODEL, chat_body, eventually
from fake_upstream import byte_server, fake_upstream, says
from patient_counting import wait_for_counts
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, parse_frames, serve, settings_for, text_of
from settings_calls import NOBODY, WRITER, ask, change, in_file
from small_window import history

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel
from elbowroom.demo.script import WaitFor
from elbowroom.settings.references import TOOLS

OTHER = "llama-3.2-3b-instruct"
CRITIC = '[[agents]]\nid = "critic"\nmodel = "tiny"\nagent_tools = ["writer"]\n'


async def ids(served: Served) -> list[str]:
    """Return the ids of the agents that are listed."""
    _, answer = await ask(served, "GET", "/api/agents")
    return [agent["id"] for agent in answer["data"]]


async def test_an_agent_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    """It is added, listed as a model, changed, switched off, and removed; other agents stay as they are written."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        before = served.settings.read_text(encoding="utf-8")
        new = {
            "id": "critic",
            "model": "tiny",
            "instructions": "Be\nshort.",
            "sampling": {"temperature": 0.2, "top_p": None},
        }
        status, agent = await ask(served, "POST", "/api/agents", new)
        assert status == 201
        assert (agent["max_turns"], agent["sampling"]["temperature"], agent["sampling"]["seed"]) == (50, 0.2, None)
        assert await ids(served) == ["writer", "critic"]
        _, models = await ask(served, "GET", "/v1/models")
        assert [model["id"] for model in models["data"]] == ["writer", "critic"]
        status, agent = await ask(served, "PATCH", "/api/agents/critic", {"enabled": False, "sampling": {"seed": 1}})
        assert (status, agent["enabled"], agent["sampling"]["seed"]) == (200, False, 1)
        _, models = await ask(served, "GET", "/v1/models")
        assert [model["id"] for model in models["data"]] == ["writer"]
        status, agent = await ask(served, "PATCH", "/api/agents/critic", {"id": "judge"})
        assert (status, agent["id"], await ids(served)) == (200, "judge", ["writer", "judge"])
        assert (await ask(served, "DELETE", "/api/agents/judge"))[0] == 204
        assert served.settings.read_text(encoding="utf-8").strip() == before.strip()


FULL = r"""
[[agents]]
id = "full"
name = "Ünder"
model = "tiny"
instructions = "One\r\nTwo \"quoted\" \\ \u0001"
tools = ["tool_output_cache"]
max_turns = 7
sampling = { temperature = 0.5, stop = ["a", "b"], grammar = "5" }
vault = { include = ["Garden"] }
"""


async def test_an_agent_goes_into_a_file_and_comes_back(tmp_path: Path) -> None:
    """Its file has what differs from the usual, as a settings file would have it, and makes the same again."""
    async with serve(tmp_path, settings_for(NOBODY, agents=FULL)) as served:
        [given] = in_file(served)["agents"]
        async with served.http.get(f"{served.url}/api/agents/full/toml") as response:
            assert response.content_disposition is not None
            assert (response.status, response.content_disposition.filename) == (200, "full.toml")
            text = await response.text()
        status, read = await ask(served, "POST", "/api/agents/toml", {"toml": text})
        assert (status, {**read, "vault": {"include": read["vault"]["include"]}}) == (200, given)
        before = (await ask(served, "GET", "/api/agents"))[1]["data"][0]
        assert (await ask(served, "DELETE", "/api/agents/full"))[0] == 204
        assert await ask(served, "POST", "/api/agents", read) == (201, before)
        assert (await ask(served, "GET", "/api/agents/none/toml"))[0] == 404


@pytest.mark.parametrize(
    "text", ["", "no toml", "[[agents]]\n[[agents]]\n", "agents = [1]", "[server]\nport = 1", None]
)
async def test_a_file_without_one_agent_is_refused_in_words(tmp_path: Path, text: str | None) -> None:
    """Nothing else is taken for an agent."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        status, answer = await ask(served, "POST", "/api/agents/toml", {"toml": text})
        assert (status, answer["error"]["param"]) == (400, "toml")


async def test_a_model_that_no_provider_has_is_warned_of_with_the_nearest(tmp_path: Path) -> None:
    """Before the agent is made, when it is made, and in the list; one whose model is there has no problem."""
    async with SimulatedLMStudio() as studio, serve(tmp_path, settings_for(studio.base_url, agents=WRITER)) as served:
        wrong = {"model": "qwen2.5-7b-instrukt", "provider": "lmstudio"}
        _, checked = await ask(served, "POST", "/api/agents/check", wrong)
        assert checked["problem"].startswith(
            "The provider 'lmstudio' has no model 'qwen2.5-7b-instrukt' (did you mean qwen2.5-7b-instruct?). It has: "
        )
        assert await ids(served) == ["writer"]
        _, made = await ask(served, "POST", "/api/agents", {**wrong, "id": "critic"})
        assert made["problem"] == checked["problem"]
        _, listed = await ask(served, "GET", "/api/agents")
        assert listed["data"][1]["problem"] == checked["problem"]
        _, changed = await ask(served, "PATCH", "/api/agents/critic", {"model": MODEL})
        assert changed["problem"] is None


async def test_a_model_that_only_makes_embeddings_is_warned_of(tmp_path: Path) -> None:
    """It is there, and every chat with the agent would be refused."""
    async with SimulatedLMStudio() as studio, serve(tmp_path, settings_for(studio.base_url)) as served:
        wrong = {"model": "text-embedding-nomic-embed-text-v1.5"}
        _, checked = await ask(served, "POST", "/api/agents/check", wrong)
        assert checked["problem"].startswith(f"The model {wrong['model']!r} only makes embeddings, it cannot chat. ")
        assert wrong["model"] not in checked["problem"].partition("Choose another one: ")[2]


async def test_an_agent_whose_window_nobody_tells_says_so_in_the_list(tmp_path: Path) -> None:
    """With what to do about it, before anybody chats with it."""

    async def listing(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    agents = '[[agents]]\nid = "critic"\nprovider = "openai"\nmodel = "tiny"\n'
    async with fake_upstream({"/v1/models": listing}) as upstream:
        settings = settings_for(upstream.url, kind="openai", provider="manage_context = true", agents=agents)
        async with serve(tmp_path, settings) as served:
            _, listed = await ask(served, "GET", "/api/agents")
            assert listed["data"][0]["problem"].startswith("The window of 'tiny' is not known: ")
            assert "manage_context = false" in listed["data"][0]["problem"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "param"),
    [
        ("POST", "/api/agents", {"id": "writer", "model": "m"}, 409, "agent_exists", "id"),
        ("POST", "/api/agents", {"model": "m"}, 422, "invalid_settings", "id"),
        ("POST", "/api/agents", {"id": 5, "model": "m"}, 422, "invalid_settings", "id"),
        ("POST", "/api/agents", {"id": "a b", "model": "m"}, 422, "invalid_settings", "id"),
        ("POST", "/api/agents", {"id": "new"}, 422, "invalid_settings", "model"),
        ("POST", "/api/agents", {"id": "new", "model": "m", "modle": 1}, 422, "invalid_settings", "modle"),
        ("POST", "/api/agents", {"id": "new", "model": "m", "handoffs": ["x"]}, 422, "invalid_settings", "handoffs"),
        ("PATCH", "/api/agents/writer", {"model": None}, 422, "invalid_settings", "model"),
        ("PATCH", "/api/agents/writer", {"sampling": {"top_p": 2}}, 422, "invalid_settings", "sampling.top_p"),
        ("PATCH", "/api/agents/writer", {"id": None}, 422, "invalid_settings", "id"),
        ("PATCH", "/api/agents/writer", {"id": "x"}, 422, "invalid_settings", "agents[1].agent_tools"),
        ("PATCH", "/api/agents/writer", {"id": "critic"}, 422, "invalid_settings", "agents[1].id"),
        ("PATCH", "/api/agents/nobody", {"model": "m"}, 404, "agent_not_found", None),
        ("DELETE", "/api/agents/nobody", None, 404, "agent_not_found", None),
        ("DELETE", "/api/agents/writer", None, 409, "agent_in_use", "id"),
        ("DELETE", "/api/agents/critic", None, 409, "agent_in_use", "id"),
    ],
)
async def test_what_agents_cannot_be(
    tmp_path: Path, method: str, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    """Each refusal has its status and code, with paths as seen from the agent; nothing has changed then."""
    text = settings_for(NOBODY, agents=f'{WRITER}{CRITIC}[compaction]\npruning_agent = "critic"\n')
    async with serve(tmp_path, text) as served:
        found, answer = await ask(served, method, path, body)
        assert (found, answer["error"]["code"], answer["error"]["param"]) == (status, code, param)
        assert served.settings.read_text(encoding="utf-8") == text
        if status == 422:
            assert answer["fields"][0]["path"] == param
            assert answer["fields"][0]["message"].startswith(str(param))


async def test_who_needs_an_agent_is_named(tmp_path: Path) -> None:
    """An agent that others offer, or that prunes, can be removed when it is no longer needed."""
    text = settings_for(NOBODY, agents=f'{WRITER}{CRITIC}[compaction]\npruning_agent = "writer"\n')
    async with serve(tmp_path, text) as served:
        _, answer = await ask(served, "DELETE", "/api/agents/writer")
        assert "needed by compaction.pruning_agent and agent_tools of the agent 'critic'." in answer["error"]["message"]
        await change(served, {"compaction": {"pruning_agent": "same"}, "agents": {"critic": {"agent_tools": []}}})
        assert (await ask(served, "DELETE", "/api/agents/writer"))[0] == 204
        assert [agent["id"] for agent in in_file(served)["agents"]] == ["critic"]


async def test_the_same_agent_twice_at_once(tmp_path: Path) -> None:
    """Of two who add an agent of the same id at the same time, one is told that it is taken."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        bodies = [{"id": "a", "model": f"m{number}"} for number in range(4)]
        answers = await asyncio.gather(*(ask(served, "POST", "/api/agents", body) for body in bodies))
        assert sorted(status for status, _ in answers) == [201, 409, 409, 409]


async def test_the_tools_that_agents_may_have(tmp_path: Path) -> None:
    """All names that `tools` takes are there, each with what it does."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        _, answer = await ask(served, "GET", "/api/tools")
    assert [tool["name"] for tool in answer["data"]] == list(TOOLS)
    assert all(tool["description"].endswith(".") for tool in answer["data"])


@pytest.mark.slow
async def test_providers_are_asked_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that answer, are down, hang, talk nonsense: each has its row, and none holds up the others."""
    monkeypatch.setattr("elbowroom.server.settings.PROBE_SECONDS", 0.5)

    async def silent(*_: object) -> None:
        await asyncio.sleep(600)

    vllm = says({"data": [{"id": "m", "max_model_len": 4096}, {"id": "n"}]})
    models = [SimulatedModel("tiny", loaded_context_length=2048), SimulatedModel("big", max_context_length=8192)]
    async with (
        SimulatedLMStudio(models) as studio,
        fake_upstream({"/v1/models": vllm, "/api/tags": says("<html>")}) as upstream,
        byte_server(silent) as port,
    ):
        rows = [
            ("openai", f"{upstream.url}/v1"),
            ("ollama", upstream.url),
            *(("openai", f"http://127.0.0.1:{port}/{number}") for number in range(3)),
            ("lmstudio", NOBODY),
        ]
        tables = [
            f'[[providers]]\nid = "p{number}"\nkind = "{kind}"\nbase_url = "{url}"\n'
            for number, (kind, url) in enumerate(rows)
        ]
        async with serve(tmp_path, settings_for(studio.base_url, agents="".join(tables))) as served:
            async with asyncio.timeout(30):
                status, answer = await ask(served, "GET", "/api/providers")
    assert status == 200
    states = {row["id"]: row for row in answer["data"]}
    assert [row["reachable"] for row in answer["data"]] == [True, True, False, False, False, False, False]
    tiny, big = states["lmstudio"]["models"]
    assert (tiny["id"], tiny["state"], tiny["window"]) == ("tiny", "loaded", 2048)
    assert "loaded instance" in tiny["window_source"]
    assert (big["state"], big["window"], big["max_window"], big["window_source"]) == ("not-loaded", None, 8192, None)
    served_model, untold = states["p0"]["models"]
    assert (served_model["state"], served_model["window"]) == ("loaded", 4096), "a server that says no more runs it"
    assert served_model["window_source"] == "what the server says of itself"
    assert (untold["state"], untold["window"]) == (None, None)
    assert "within 0.5 seconds" in states["p2"]["error"]
    assert NOBODY in states["p5"]["error"]
    assert states["p5"] == {"id": "p5", "kind": "lmstudio", "base_url": NOBODY, "reachable": False,
                            "error": states["p5"]["error"], "models": []}  # fmt: skip


async def test_providers_without_their_key(tmp_path: Path) -> None:
    """A key that can no longer be read is said in the row, not a failure of the whole."""
    (tmp_path / "key").write_text("k", encoding="utf-8")
    (tmp_path / "settings.toml").touch()
    async with serve(tmp_path, settings_for(NOBODY, provider='api_key = "file:key"')) as served:
        (tmp_path / "key").unlink()
        status, answer = await ask(served, "GET", "/api/providers")
    assert status == 200
    assert answer["data"][0]["reachable"] is False
    assert "cannot be read" in answer["data"][0]["error"]


@pytest.mark.slow
async def test_the_next_compaction_is_the_new_pruning_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pruning agent that is chosen while the server runs writes the summary of the next request that needs one."""
    wait_for_counts(monkeypatch)
    models = [SimulatedModel(MODEL, loaded_context_length=1000), SimulatedModel(OTHER, loaded_context_length=4000)]

    def says_plan(body: dict[str, Any]) -> Script | str:
        return valid_plan(body) if is_prune_order(body) else "The ninth pier."

    async with SimulatedLMStudio(models, on_request=says_plan) as studio:
        settings = settings_for(studio.base_url, agents=f"{AGENT}[compaction]\nbackground = false\n")
        async with serve(tmp_path, settings) as served:

            async def pruned_by(exchanges: int) -> set[str]:
                before = len(studio.chats)
                body = {"model": "writer", "messages": history(exchanges)}
                status, answer = await ask(served, "POST", "/v1/chat/completions", body)
                assert status == 200, answer
                return {chat.body["model"] for chat in studio.chats[before:] if is_prune_order(chat.body)}

            assert await pruned_by(12) == {MODEL}
            assert (await ask(served, "POST", "/api/agents", {"id": "pruner", "model": OTHER}))[0] == 201
            assert (await change(served, {"compaction": {"pruning_agent": "pruner"}}))[0] == 200
            assert await pruned_by(30) == {OTHER}
            assert (await change(served, {"compaction": {"pruning_agent": "same"}}))[0] == 200
            assert await pruned_by(50) == {MODEL}


async def test_running_answers_go_on(tmp_path: Path) -> None:
    """An answer that is being streamed ends as it would have, whatever is changed or removed meanwhile."""
    proceed = asyncio.Event()
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8000)]) as studio:
        studio.enqueue(Script("Once upon ", WaitFor(proceed), "a time."))
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT)) as served:
            body = {**chat_body(), "stream": True}
            async with served.http.post(served.chat_url, json=body) as response:
                stream = await response.content.readuntil(b"Once")
                moved = {"providers": {"lmstudio": {"base_url": NOBODY, "api_key": "k"}}, "server": {"token": "t"}}
                assert (await change(served, moved))[0] == 200
                served.http.headers["Authorization"] = "Bearer t"
                assert (await ask(served, "DELETE", "/api/agents/writer"))[0] == 204
                proceed.set()
                stream += await response.content.read()
            assert text_of(parse_frames(stream)) == "Once upon a time."
            assert parse_frames(stream)[-1] == "[DONE]"
            await eventually(lambda: studio.open_requests == 0, "a request is left open upstream")
            status, answer = await ask(served, "POST", "/v1/chat/completions", chat_body())
            assert (status, answer["error"]["code"]) == (503, "upstream_unreachable")
