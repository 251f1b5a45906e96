"""`elbowroom doctor` finds planted problems, says how to mend each, and finds nothing where nothing is wrong."""

import asyncio
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from command_line import run, running
from examined import AGENT, examined, only_problem, problems
from fake_upstream import fake_upstream
from hanging_folders import hanging
from mcp_sample import plain_server, program
from serving import serve, settings_for

from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel
from elbowroom.doctor.examination import CHECKS, as_text, clean
from elbowroom.doctor.subject import Finding, Subject, is_healthy
from elbowroom.elsewhere import look
from elbowroom.logs.redaction import Redactor
from elbowroom.settings.doubts import NEW_TOKEN
from elbowroom.store import only_process

KEY = "sk-lm-abcdefgh:12345678901234567890"
WRONG_KEY = "sk-lm-hgfedcba:09876543210987654321"
TINY = SimulatedModel("tiny", loaded_context_length=16_384)


@pytest.fixture
async def studio() -> AsyncIterator[SimulatedLMStudio]:
    """Run a healthy LM Studio with one loaded model."""
    async with SimulatedLMStudio([TINY]) as studio:
        yield studio


@pytest.mark.slow
async def test_a_healthy_set_up_has_no_finding(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Everything that was looked at is ok; without a probe no model is asked, with one for a single token."""
    assert problems(await examined(tmp_path, settings_for(studio.base_url, agents=AGENT))) == []
    assert not studio.chats
    (tmp_path / "notes").mkdir()
    more = f'[vault]\npath = "{tmp_path / "notes"}"\n' + plain_server("sample", tmp_path / "journal")
    agents = AGENT + 'tools = ["vault"]\nmcp = ["sample"]\ninstructions = "Be brief."\n' + more
    findings = await examined(tmp_path, settings_for(studio.base_url, agents=agents), probes=True)
    assert problems(findings) == []
    checked = {found.check for found in findings}
    assert checked == {
        "settings",
        "data folder",
        "port",
        "clients",
        "lmstudio",
        "windows",
        "overflow",
        "agents",
        "counting",
        "mcp",
        "vault",
    }
    assert [chat.body["max_tokens"] for chat in studio.chats] == [1]


async def test_a_healthy_set_up_ends_with_0(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """The program says that nothing is wrong, and leaves no file behind."""
    path = tmp_path / "mine.toml"
    path.write_text(settings_for(studio.base_url, agents=AGENT), encoding="utf-8")
    async with running(tmp_path, "doctor", "--config", str(path)) as doctor:
        assert await doctor.ended() == 0
    assert doctor.said.rstrip().endswith("Nothing is wrong.")
    assert os.listdir(tmp_path) == ["mine.toml"]


async def test_a_running_server_is_recognised(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """The port is then its own, and its database is no matter."""
    text = settings_for(studio.base_url, agents=AGENT)
    async with serve(tmp_path, text) as served:
        findings = await examined(tmp_path, text.replace("port = 0", f"port = {served.port}"))
    assert problems(findings) == []
    assert any("is running at" in found.what for found in findings)


async def test_broken_settings(tmp_path: Path) -> None:
    """Each wrong line is told with its key; the machine is looked at all the same."""
    found = await examined(tmp_path, "[server]\nport = 'many'\nhost = 5\n", {"HTTP_PROXY": "http://proxy:3128"})
    assert [one.check for one in found] == ["settings", "settings", "proxy"]
    assert found[0].severity == "fail"
    assert "server.port" in found[0].what + found[1].what
    assert "config check" in found[1].remedy


async def test_a_token_that_is_missing(tmp_path: Path) -> None:
    """One finding has all of the command that makes one."""
    (found,) = [one for one in await examined(tmp_path, "[server]\nhost = '0.0.0.0'\n") if one.check == "settings"]
    assert f'export ELBOWROOM_TOKEN="$({NEW_TOKEN})"' in found.what


async def test_a_port_of_each_start_s_own(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """No address with port 0 is told: nothing is ever there."""
    findings = await examined(tmp_path, settings_for(studio.base_url, agents=AGENT))
    assert any("the address that each start prints" in found.what for found in findings)
    assert not any(":0" in found.what for found in findings)


async def test_an_unknown_key(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """What is meant is named."""
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url, server="tokn = 'x'")))
    assert (found.severity, found.check) == ("warn", "settings")
    assert "did you mean token?" in found.what
    assert "docs/settings.md" in found.remedy


async def test_a_value_that_is_left_out(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """A wrong value has to be corrected: nobody is told to leave it as it is."""
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url, server="max_waiting = -1")))
    assert (found.severity, found.check) == ("fail", "settings")
    assert found.remedy == "Correct it in the settings file, or on the page."


async def test_a_data_folder_that_is_a_file(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Nothing can be kept there."""
    (tmp_path / "data").write_text("no folder", encoding="utf-8")
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert (found.severity, found.check) == ("fail", "data folder")
    assert "ELBOWROOM_DATA_DIR" in found.remedy


async def test_a_damaged_database(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """How to rescue what can be read is told; nothing is changed."""
    database = tmp_path / "data" / "elbowroom.db"
    database.parent.mkdir()
    database.write_bytes(b"this was a database" * 500)
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert (found.severity, found.where) == ("fail", str(database))
    assert "damaged" in found.what
    assert ".recover" in found.remedy
    assert [path.name for path in database.parent.iterdir()] == ["elbowroom.db"]


async def test_a_database_of_a_newer_version(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """It is not damaged, only newer."""
    (tmp_path / "data").mkdir()
    with sqlite3.connect(tmp_path / "data" / "elbowroom.db") as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (9999)")
    connection.close()
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert "newer elbowroom" in found.what
    assert "Update elbowroom" in found.remedy


async def test_a_sound_database_is_left_as_it_is(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """One of a server that has ended, with nothing beside it afterwards."""
    text = settings_for(studio.base_url, agents=AGENT)
    (tmp_path / "data").mkdir()
    async with serve(tmp_path, text, environ={"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}) as served:
        await served.chat("writer")
    before = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    findings = await examined(tmp_path, text)
    assert problems(findings) == []
    assert any("its database is sound" in found.what for found in findings)
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()} == before


async def test_a_server_with_other_settings(studio: SimulatedLMStudio, tmp_path: Path, unused_tcp_port: int) -> None:
    """One that has the data folder and listens elsewhere would keep the next one from starting."""
    text = settings_for(studio.base_url).replace("port = 0", f"port = {unused_tcp_port}")
    with only_process(tmp_path / "data" / "elbowroom.db"):
        found = only_problem(await examined(tmp_path, text))
    assert (found.severity, found.check) == ("warn", "port")
    assert "running with this data folder" in found.what


async def test_a_port_that_another_program_has(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """The next port is proposed."""
    text = settings_for(studio.base_url).replace("port = 0", f"port = {studio.port}")
    found = only_problem(await examined(tmp_path, text))
    assert (found.severity, found.check) == ("fail", "port")
    assert f"server.port = {studio.port + 1}" in found.remedy


@pytest.mark.slow
async def test_an_address_that_is_not_this_machine_s(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Nothing can listen at an address for documentation."""
    server = 'host = "192.0.2.7"\ntoken = "env:DOOR"'
    text = settings_for(studio.base_url, server=server).replace("port = 0", "port = 2345")
    found = only_problem(await examined(tmp_path, text, {"DOOR": "sesame-open"}))
    assert (found.severity, found.check) == ("fail", "port")
    assert "192.0.2.7 is no address of this machine" in found.what
    assert "127.0.0.1" in found.remedy


async def test_lm_studio_on_another_port(studio: SimulatedLMStudio, tmp_path: Path, unused_tcp_port: int) -> None:
    """The port that LM Studio has published is what base_url is to be."""
    (tmp_path / "home" / ".internal").mkdir(parents=True)
    (tmp_path / "home" / ".internal" / "http-server.json").write_text(
        json.dumps({"port": studio.port}), encoding="utf-8"
    )
    text = settings_for(f"http://127.0.0.1:{unused_tcp_port}", provider=f'home = "{tmp_path / "home"}"')
    found = only_problem(await examined(tmp_path, text))
    assert (found.severity, found.check) == ("fail", "lmstudio")
    assert f"base_url = '{studio.base_url}'" in found.remedy


async def test_lm_studio_with_its_server_off(tmp_path: Path, unused_tcp_port: int) -> None:
    """The program is open, which its internal port tells: its server has to be switched on."""
    async with SimulatedLMStudio([TINY], http_server=False) as app:
        text = settings_for(f"http://127.0.0.1:{unused_tcp_port}")
        found = only_problem(await examined(tmp_path, text, internal_ports=(app.port,)))
    assert "its server is switched off" in found.remedy
    assert "lms server start" in found.remedy


async def test_lm_studio_that_is_not_there(tmp_path: Path, unused_tcp_port: int) -> None:
    """It is to be started."""
    found = only_problem(await examined(tmp_path, settings_for(f"http://127.0.0.1:{unused_tcp_port}")))
    assert "Nobody listens there" in found.what
    assert "lms server start" in found.remedy


async def test_something_that_answers_everything_with_status_200(tmp_path: Path) -> None:
    """'Unexpected endpoint' is told apart from an LM Studio that works."""

    async def unexpected(request: web.Request) -> web.Response:
        return web.json_response({"error": f"Unexpected endpoint or method. (GET {request.path})"})

    paths = ("/lmstudio-greeting", "/api/v1/models", "/api/v0/models", "/v1/models", "/health", "/")
    async with fake_upstream(dict.fromkeys(paths, unexpected)) as upstream:
        found = only_problem(await examined(tmp_path, settings_for(upstream.url)))
    assert "Unexpected endpoint" in found.what
    assert "update it and restart its server" in found.remedy


@pytest.mark.long
async def test_an_address_that_leads_to_elbowroom_itself(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """It would ask itself for ever."""
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        found = problems(await examined(tmp_path, settings_for(served.url)))[0]
    assert "leads to an elbowroom" in found.what


@pytest.mark.parametrize(("key", "words"), [("", "elbowroom has none"), (WRONG_KEY, "refuses the API token")])
async def test_a_token_that_lm_studio_asks_for(tmp_path: Path, key: str, words: str) -> None:
    """One that is missing is told from one that is wrong."""
    async with SimulatedLMStudio([TINY], api_token=KEY) as studio:
        found = only_problem(await examined(tmp_path, settings_for(studio.base_url), {"LM_API_TOKEN": key}))
    assert (found.severity, found.check) == ("fail", "lmstudio")
    assert words in found.what
    assert "Developer page" in found.remedy


async def test_no_model_and_no_loading_on_request(tmp_path: Path) -> None:
    """Just-in-time loading is off, which the lists tell."""
    async with SimulatedLMStudio([SimulatedModel("tiny")], just_in_time=False) as studio:
        found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert "just-in-time loading is off" in found.what
    assert "lms load tiny" in found.remedy


async def test_no_model_that_loads_on_request(tmp_path: Path) -> None:
    """That works, and is no finding; how to choose the window is told."""
    async with SimulatedLMStudio([SimulatedModel("tiny")]) as studio:
        findings = await examined(tmp_path, settings_for(studio.base_url))
    assert problems(findings) == []
    assert any("No model is loaded" in found.what for found in findings)


async def test_a_small_window(tmp_path: Path) -> None:
    """4096 tokens are told with what to load the model with; a model that cannot have more is left in peace."""
    models = [
        SimulatedModel("tiny", loaded_context_length=4096),
        SimulatedModel("old", loaded_context_length=2048, max_context_length=2048),
    ]
    async with SimulatedLMStudio(models) as studio:
        found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert (found.severity, found.check, found.where) == ("warn", "windows", "lmstudio/tiny")
    assert "4,096 tokens of 32,768" in found.what
    assert "--context-length 16384" in found.remedy


async def test_tools_that_fill_the_window(tmp_path: Path) -> None:
    """What instructions and tools take of each prompt is counted by the model's own counter."""
    async with SimulatedLMStudio(
        [SimulatedModel("tiny", loaded_context_length=2048, max_context_length=2048)]
    ) as studio:
        (tmp_path / "notes").mkdir()
        agents = AGENT + f'tools = ["vault"]\n[vault]\npath = "{tmp_path / "notes"}"\n'
        found = only_problem(await examined(tmp_path, settings_for(studio.base_url, agents=agents)))
    assert (found.check, found.where) == ("agents", "agent writer")
    assert re.search(r"5 tools take [\d,]+ of the 2,048 tokens", found.what)
    assert "fewer tools" in found.remedy


async def test_a_window_that_nobody_tells(tmp_path: Path) -> None:
    """A managed provider without windows would refuse every chat."""

    async def listing(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    async with fake_upstream({"/v1/models": listing}) as upstream:
        text = settings_for(upstream.url, kind="openai", provider="manage_context = true")
        found = only_problem(await examined(tmp_path, text))
    assert (found.severity, found.check) == ("fail", "windows")
    assert "manage_context = false" in found.remedy


async def test_duplicates_of_a_model(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Which one to unload is told."""
    studio.load("tiny", 8192)
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert (found.severity, found.check) == ("warn", "duplicates")
    assert "loaded 2 times" in found.what
    assert "lms unload tiny:2" in found.remedy


async def test_a_policy_that_loses_the_instructions(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """rollingWindow is a warning; the two others are not."""
    studio.overflow = Overflow(policy="rollingWindow")
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url)))
    assert (found.severity, found.check) == ("warn", "overflow")
    assert "stop at limit" in found.remedy
    studio.overflow = Overflow(policy="stopAtLimit")
    assert problems(await examined(tmp_path, settings_for(studio.base_url))) == []


@pytest.mark.parametrize(
    ("usage", "severity", "words"),
    [
        (None, "warn", "does not report"),
        ({"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}, "fail", "is not true"),
        (
            {"prompt_tokens": 500, "completion_tokens": 1, "total_tokens": 501},
            "warn",
            "500 tokens where elbowroom counts",
        ),
    ],
)
async def test_an_engine_that_reports_other_counts(
    studio: SimulatedLMStudio, tmp_path: Path, usage: dict[str, int] | None, severity: str, words: str
) -> None:
    """A probe compares the engine's count with ours: none, one that cannot be, one that differs."""
    studio.enqueue(Script("Hi", usage=usage))
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url), probes=True))
    assert (found.check, found.severity) == ("counting", severity)
    assert words in found.what
    assert found.remedy


async def test_a_model_that_can_only_be_estimated(tmp_path: Path) -> None:
    """With neither file nor websocket: how far it may be off is told, and that a file helps."""
    async with SimulatedLMStudio([TINY], rpc=False) as studio:
        text = settings_for(studio.base_url, provider=f'home = "{tmp_path / "none"}"')
        found = only_problem(await examined(tmp_path, text))
    assert (found.severity, found.check) == ("warn", "counting")
    assert "%" in found.what
    assert "model_files" in found.remedy


async def test_a_file_of_a_model_that_is_not_there(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """A name in model_files that leads nowhere is told."""
    text = settings_for(studio.base_url, provider='model_files = { other = "/no/such.gguf" }')
    found = only_problem(await examined(tmp_path, text))
    assert (found.severity, found.check, found.where) == ("warn", "counting", "/no/such.gguf")


async def test_an_agent_whose_model_is_not_there(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """The nearest name is proposed."""
    agents = AGENT.replace('"tiny"', '"tiny-7b"')
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url, agents=agents)))
    assert (found.severity, found.check, found.where) == ("fail", "agents", "agent writer")
    assert "Did you mean 'tiny'?" in found.remedy


PRUNER = '[[agents]]\nid = "pruner"\nmodel = "{model}"\n[compaction]\npruning_agent = "pruner"\n'


async def test_a_pruning_agent_without_its_model(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Both that the agent cannot work and who prunes instead is told."""
    text = settings_for(studio.base_url, agents=AGENT + PRUNER.format(model="gone"))
    findings = problems(await examined(tmp_path, text))
    assert "each conversation's own model does it" in next(one.what for one in findings if one.check == "pruning agent")


async def test_a_pruning_agent_that_pushes_the_chat_out(tmp_path: Path) -> None:
    """One whose model is loaded for each compaction is slow; so is one with a much smaller window."""
    async with SimulatedLMStudio([TINY, SimulatedModel("small")]) as studio:
        text = settings_for(studio.base_url, agents=AGENT + PRUNER.format(model="small"))
        found = only_problem(await examined(tmp_path, text))
        assert (found.severity, found.check) == ("warn", "pruning agent")
        assert "is not loaded" in found.what
        studio.load("small", 4096)
        narrow = next(one for one in problems(await examined(tmp_path, text)) if one.check == "pruning agent")
        assert "in several parts" in narrow.what
        assert "16,384" in narrow.remedy


OWN = '[[agents]]\nid = "pruner"\nmodel = "{model}"\n[[models]]\nid = "{id}"\npruning_agent = "pruner"\n'


@pytest.mark.parametrize(
    ("model", "names", "asked", "told"),
    [
        ("gone", "tiny", AGENT, "each conversation's own model does it"),
        ("small", "tiny", AGENT, "unload the model of tiny, writer"),
        ("small", "lmstudio/ti*", "", "unload the model of tiny"),
        ("narrow", "tiny", AGENT, "in several parts"),
        ("small", "other*", AGENT, None),
        ("tiny", "tiny", AGENT, None),
    ],
)
async def test_pruning_agents_of_single_models(
    tmp_path: Path, model: str, names: str, asked: str, told: str | None
) -> None:
    """They are judged for the models and agents whose conversations they prune, and for no others."""
    narrow = SimulatedModel("narrow", loaded_context_length=4096)
    async with SimulatedLMStudio([TINY, SimulatedModel("small"), narrow]) as studio:
        text = settings_for(studio.base_url, agents=asked + OWN.format(model=model, id=names))
        found = [one for one in problems(await examined(tmp_path, text)) if one.check == "pruning agent"]
        assert [(one.where, told in one.what) for one in found if told] == (
            [(f"models: {names}", True)] if told else []
        )
        assert told or not found
        assert all("its pruning_agent = 'same'" in one.remedy for one in found if one.severity == "warn")


async def test_an_mcp_server_that_does_not_start(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Who goes without its tools is told; what was given to it in secret is not."""
    broken = program("files", [sys.executable, "-c", "raise SystemExit(3)"], 'env = { FILES_TOKEN = "planted-sesame" }')
    agents = AGENT + 'mcp = ["files"]\n' + broken.replace("command", "connect_timeout = 10\ncommand", 1)
    findings = await examined(tmp_path, settings_for(studio.base_url, agents=agents))
    found = next(one for one in findings if one.check == "mcp")
    assert found.severity == "fail"
    assert "without its tools until then: writer" in found.what
    assert "command" in found.remedy
    assert "planted-sesame" not in str(findings)


@pytest.mark.slow
async def test_a_tool_that_an_mcp_server_does_not_have(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """What it has is listed; a name that models cannot call is found as the server writes it."""
    agents = (
        AGENT
        + 'mcp = ["sample/no_such", "sample/echo", "sample/odd.name/ü"]\n'
        + plain_server("sample", tmp_path / "journal")
    )
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url, agents=agents)))
    assert "has no tool 'no_such'" in found.what
    assert "echo" in found.remedy


async def test_a_vault_that_is_not_there(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """The path is told, once."""
    agents = f'[vault]\npath = "{tmp_path / "no notes"}"\n'
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url, agents=agents)))
    assert (found.severity, found.check) == ("fail", "vault")
    assert "Correct the path" in found.remedy


@pytest.mark.slow
async def test_a_vault_that_hangs(studio: SimulatedLMStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by its name, and everything else is looked at as ever."""
    monkeypatch.setattr("elbowroom.doctor.agents.look", partial(look, seconds=0.2))
    agents = f'{AGENT}tools = ["vault"]\n[vault]\npath = "{tmp_path / "notes"}"\n'
    with hanging(tmp_path / "notes") as looked:
        findings = await examined(tmp_path, settings_for(studio.base_url, agents=agents))
    found = only_problem(findings)
    assert (found.severity, found.check) == ("fail", "vault")
    assert f"{tmp_path / 'notes'} does not answer" in found.what
    assert {"settings", "lmstudio", "agents", "counting"} <= {one.check for one in findings}
    assert looked == {"elsewhere"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
async def test_pipes_among_the_notes(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Nothing waits for them, be one the vault itself."""
    (tmp_path / "notes").mkdir()
    for pipe in (tmp_path / "notes" / "pipe.md", tmp_path / "pipe"):
        os.mkfifo(pipe)
    async with asyncio.timeout(10):
        for path, told in (("notes", []), ("pipe", ["It is a file, no folder."])):
            agents = f'{AGENT}tools = ["vault"]\n[vault]\npath = "{tmp_path / path}"\n'
            findings = await examined(tmp_path, settings_for(studio.base_url, agents=agents))
            assert [one.what for one in problems(findings)] == told


async def test_containers_that_cannot_reach_it(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Names of other machines while only this one is listened to: a host and a token are needed."""
    server = 'allowed_hosts = ["elbowroom.lan"]'
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url, server=server)))
    assert (found.severity, found.check) == ("warn", "clients")
    assert "--host 0.0.0.0" in found.remedy
    assert "ELBOWROOM_TOKEN" in found.remedy


async def test_a_proxy_that_catches_this_machine(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Its password is not shown; NO_PROXY mends it."""
    proxy = {"HTTP_PROXY": "http://me:planted-sesame@proxy:3128"}
    found = only_problem(await examined(tmp_path, settings_for(studio.base_url), proxy))
    assert found.check == "proxy"
    assert "NO_PROXY=localhost,127.0.0.1" in found.remedy
    assert "planted-sesame" not in str(found)
    mended = {**proxy, "no_proxy": "localhost,127.0.0.1"}
    assert problems(await examined(tmp_path, settings_for(studio.base_url), mended)) == []


async def test_a_clock_that_is_wrong(tmp_path: Path) -> None:
    """An hour between this machine and the provider is told."""

    async def greeting(request: web.Request) -> web.Response:
        return web.json_response({"lmstudio": True}, headers={"Date": formatdate(time.time() - 3600, usegmt=True)})

    async def listing(request: web.Request) -> web.Response:
        return web.json_response({"models": [{"type": "llm", "key": "tiny", "loaded_instances": []}]})

    async with fake_upstream({"/lmstudio-greeting": greeting, "/api/v1/models": listing}) as upstream:
        found = only_problem(await examined(tmp_path, settings_for(upstream.url)))
    assert (found.severity, found.check) == ("warn", "clock")
    assert "60 minutes ahead" in found.what


async def test_a_check_that_hangs_or_fails_is_a_finding(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """The others are not held up by it, and its error is not quoted."""

    async def break_down(subject: Subject) -> list[Finding]:
        raise ValueError("planted-sesame")

    async def wait(subject: Subject) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    checks = {"settings": CHECKS["settings"], "hanging": wait, "broken": break_down}
    findings = await examined(tmp_path, settings_for(studio.base_url), checks=checks, seconds=0.2)
    expected = [("ok", "settings"), ("warn", "hanging"), ("fail", "broken")]
    assert [(one.severity, one.check) for one in findings] == expected
    assert "planted-sesame" not in str(findings)


async def test_many_problems_at_once(tmp_path: Path) -> None:
    """The program itself finds each of a dozen problems in one set-up, and says how to mend every one."""
    models = [SimulatedModel("tiny", loaded_context_length=4096), SimulatedModel("other")]
    async with SimulatedLMStudio(models, overflow=Overflow(policy="rollingWindow")) as studio:
        studio.load("tiny", 4096)
        path = tmp_path / "mine.toml"
        path.write_text(PROBLEMS.format(url=studio.base_url, port=studio.port), encoding="utf-8")
        (tmp_path / "data").write_text("no folder", encoding="utf-8")
        variables = {"ELBOWROOM_DATA_DIR": str(tmp_path / "data"), "http_proxy": "http://proxy:3128"}
        async with running(tmp_path, "doctor", "--json", "--config", str(path), variables=variables) as doctor:
            assert await doctor.ended() == 1
    found = [one for one in json.loads(doctor.said)["findings"] if one["severity"] != "ok"]
    assert [(one["check"], one["where"]) for one in found] == [
        ("settings", str(path)),
        ("data folder", str(tmp_path / "data")),
        ("port", f"server.host = '127.0.0.1', server.port = {studio.port}"),
        ("clients", "server.host"),
        ("windows", "lmstudio/tiny"),
        ("duplicates", "lmstudio/tiny"),
        ("overflow", "tiny"),
        ("agents", "agent writer"),
        ("pruning agent", "compaction.model or compaction.pruning_agent"),
        ("counting", "/no/such.gguf"),
        ("mcp", "mcp_servers[0]: files"),
        ("vault", "vault.path = '/no/such/vault'"),
        ("proxy", "environment variable http_proxy"),
    ]
    assert all(one["what"] and one["remedy"] for one in found)


PROBLEMS = """\
[server]
port = {port}
allowed_hosts = ["elbowroom.lan"]
tokn = "x"
[[providers]]
id = "lmstudio"
kind = "lmstudio"
base_url = "{url}"
model_files = {{ other = "/no/such.gguf" }}
[[agents]]
id = "writer"
model = "tny"
[[agents]]
id = "reader"
model = "tiny"
[[agents]]
id = "pruner"
model = "other"
[compaction]
pruning_agent = "pruner"
[[mcp_servers]]
name = "files"
command = ["no-such-program"]
[vault]
path = "/no/such/vault"
"""


def test_the_command_prints_and_ends_with_what_it_found(tmp_path: Path, unused_tcp_port: int) -> None:
    """Exit code 1 with a problem; JSON with all that was found; no secret in either."""
    path = tmp_path / "mine.toml"
    secret = "planted-sesame-77"
    path.write_text(settings_for(f"http://127.0.0.1:{unused_tcp_port}", server=f'token = "{secret}"'), "utf-8")
    said = run(tmp_path, "doctor", "--config", str(path), ELBOWROOM_DATA_DIR=str(tmp_path / "data"))
    assert (said.returncode, said.stderr) == (1, "")
    assert re.search("^FAIL  lmstudio", said.stdout, re.MULTILINE)
    assert said.stdout.rstrip().splitlines()[-1] == "1 problem and 1 warning."
    told = run(tmp_path, "doctor", "--config", str(path), "--json", ELBOWROOM_DATA_DIR=str(tmp_path / "data"))
    table = json.loads(told.stdout)
    assert (told.returncode, table["healthy"]) == (1, False)
    assert {"severity", "check", "what", "where", "remedy"} == table["findings"][0].keys()
    assert secret not in said.stdout + told.stdout


def test_the_report_is_aligned_and_clean() -> None:
    """Marks and checks stand in columns; nothing that a server has said moves the cursor or shows a key."""
    findings = clean(
        [
            Finding("ok", "port", "Free."),
            Finding("fail", "lmstudio", f"It says \x1b[2J {KEY}", "base_url", "Mend it. " * 20),
        ],
        Redactor(),
    )
    lines = as_text(findings, 80).splitlines()
    assert lines[0] == "ok    port      Free."
    assert lines[1].startswith("FAIL  lmstudio  base_url: It says \\x1b[2J ********")
    assert lines[2].startswith(" " * 16 + "-> Mend it.")
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1] == "1 problem."
    assert not is_healthy(findings)
