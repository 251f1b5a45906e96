"""`/api/settings`: values with their sources, changes that are checked wholly, and what a person is told."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from serving import serve, settings_for
from settings_calls import NOBODY, WRITER, ask, change, in_file, values


async def test_values_come_with_their_sources(tmp_path: Path) -> None:
    """Each value in force is there with its default filled in, and each says where it comes from."""
    environ = {"ELBOWROOM_COMPACTION__RETAIN_LAST_TURNS": "4"}
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER), environ=environ) as served:
        status, answer = await ask(served, "GET", "/api/settings")
    assert status == 200
    assert answer["path"] == str(served.settings)
    assert answer["values"]["compaction"]["retain_last_turns"] == 4
    assert answer["values"]["agents"][0]["max_turns"] == 50
    assert answer["values"]["server"]["token"] == {"set": False, "from": "env:ELBOWROOM_TOKEN"}
    sources = answer["sources"]
    assert sources["server.port"] == sources["agents[0].model"] == "file"
    assert sources["server.host"] == sources["agents[0].max_turns"] == "default"
    assert sources["compaction.retain_last_turns"] == "environment"
    assert answer["schema"]["properties"].keys() == answer["values"].keys()
    assert answer["restart_needed"] == answer["warnings"] == []


async def test_a_change_is_in_the_file_and_in_force(tmp_path: Path) -> None:
    """A change answers with the new values; the file says it, with everything else as it was."""
    before = settings_for(NOBODY, agents=WRITER).strip() + "\n"
    async with serve(tmp_path, before) as served:
        status, answer = await change(served, {"compaction": {"pruning_agent": "writer", "auto": False}})
        assert status == 200
        assert answer["values"]["compaction"]["pruning_agent"] == "writer"
        assert answer["sources"]["compaction.pruning_agent"] == "file"
        text = served.settings.read_text(encoding="utf-8")
        assert text == f'{before}\n[compaction]\npruning_agent = "writer"\nauto = false\n'
        assert served.settings.with_name("settings.toml.bak").read_text(encoding="utf-8") == before
        await change(served, {"compaction": {"pruning_agent": None}})
        assert in_file(served)["compaction"] == {"auto": False}


@pytest.mark.parametrize(
    ("patch", "path", "said"),
    [
        ({"compaction": {"threshold_ratio": 2}}, "compaction.threshold_ratio",
         "compaction.threshold_ratio = 2 is not accepted; it takes 0.88 or less."),
        ({"compaction": {"pruning_agent": "nobody"}}, "compaction.pruning_agent", "the id of an enabled agent"),
        ({"compaction": {"treshold_ratio": 0.7}}, "compaction.treshold_ratio", "(did you mean threshold_ratio?)"),
        ({"compaktion": {"auto": True}}, "compaktion", "(did you mean compaction?)"),
        ({"port": 1}, "port", "(did you mean server.port?)"),
        ({"server": {"port": True}}, "server.port", "it takes a number, not true or false."),
        ({"server": 5}, "server", "it takes a table headed [server]."),
        ({"agents": 5}, "agents", "it takes tables headed [[agents]]."),
        ({"agents": {"writer": 5}}, "agents", "it takes tables headed [[agents]]."),
        ({"agents": {"writer": {"modl": "x"}}}, "agents[0].modl", "(did you mean model?)"),
        ({"agents": {"writer": {"vault": {"wirte": False}}}}, "agents[0].vault.wirte", "(did you mean write?)"),
        ({"agents": {"new": {}}}, "agents[1].model", "agents[1].model is missing."),
        ({"agents": {"new": {"model": "m", "provider": "x"}}}, "agents[1].provider", "it takes 'lmstudio'"),
        ({"agents": {"new": {"model": "m", "name": "Writer"}}}, "agents[1].name", "agents[0] has the same name"),
        ({"agents": [{"id": ["odd"], "model": "m"}]}, "agents[0].id", "it takes a text in quotes."),
        ({"agents": {"writer": {"sampling": {"odd": [None]}}}}, "agents[0].sampling.odd[0]", "= null is not accepted"),
        ({"agents": {"writer": {"name": "\ud800"}}}, "agents[0].name", "is not valid Unicode."),
        ({"providers": {"x": {"kind": "openai"}}}, "providers[1]", "needs base_url"),
        ({"mcp_servers": {"x": {}}}, "mcp_servers[0]", "needs either command"),
        ({"vault": {"path": "Notes"}}, "vault.path", "the full path of a folder"),
        ({"vault": {"path": "~nobody-here/x"}}, "vault.path", "a home folder that is not known"),
        ({"server": {"host": "0.0.0.0"}}, "server.host", "Give server.token a value first, or together with this."),
    ],
)  # fmt: skip
async def test_what_is_not_accepted_changes_nothing(
    tmp_path: Path, patch: dict[str, Any], path: str, said: str
) -> None:
    """A wrong value is a 422 that names its field and what it takes; file and settings in force stay as they are."""
    text = settings_for(NOBODY, agents=WRITER)
    async with serve(tmp_path, text) as served:
        before = await values(served)
        status, answer = await change(served, {"memory": {"enabled": True}} | patch)
        assert status == 422, answer
        assert (answer["error"]["code"], answer["error"]["type"]) == ("invalid_settings", "invalid_request_error")
        assert answer["error"]["param"] == path == answer["fields"][0]["path"]
        assert said in answer["fields"][0]["message"]
        assert str(tmp_path) not in answer["fields"][0]["message"]
        assert await values(served) == before
        assert served.settings.read_text(encoding="utf-8") == text
        assert not served.settings.with_name("settings.toml.bak").exists()


async def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """Each wrong field has a message of its own."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        wrong = {"compaction": {"auto": 5, "max_restarts": 11}, "vault": {"write": "maybe"}}
        _, answer = await change(served, wrong)
    assert [field["path"] for field in answer["fields"]] == [
        "compaction.auto",
        "compaction.max_restarts",
        "vault.write",
    ]


async def test_what_flags_and_variables_set_is_locked(tmp_path: Path) -> None:
    """A key that the environment sets is a 409 that names the variable; sent back as it is shown, it is no change."""
    environ = {"ELBOWROOM_COMPACTION__AUTO": "false"}
    async with serve(tmp_path, settings_for(NOBODY), environ=environ) as served:
        status, answer = await change(served, {"compaction": {"auto": True, "background": False}})
        assert status == 409
        assert (answer["error"]["code"], answer["error"]["param"]) == ("locked", "compaction.auto")
        assert "environment variable ELBOWROOM_COMPACTION__AUTO" in answer["error"]["message"]
        assert "compaction" not in in_file(served)
        status, answer = await change(served, {"compaction": {"auto": False, "background": False}})
        assert status == 200
        assert answer["locked"] == {"compaction.auto": "environment variable ELBOWROOM_COMPACTION__AUTO"}
        assert in_file(served)["compaction"] == {"background": False}


async def test_the_whole_can_be_sent_back(tmp_path: Path) -> None:
    """All values as they are shown are no change, byte for byte, secrets included."""
    text = settings_for(NOBODY, agents=WRITER, provider='api_key = "sk-1"', server='token = "env:T"')
    text += '[[mcp_servers]]\nname = "m"\nurl = "http://127.0.0.1:9"\nheaders = { X = "env:T", Y = "y" }\n'
    async with serve(tmp_path, text, environ={"T": "sesame"}) as served:
        served.http.headers["Authorization"] = "Bearer sesame"
        status, _ = await change(served, await values(served))
        assert status == 200
        assert served.settings.read_text(encoding="utf-8") == text


async def test_a_new_address_is_tried_out(tmp_path: Path) -> None:
    """A port in use and a host of another machine are refused; a free port is saved and waits for the restart."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as later:
        port = taken.getsockname()[1]
        later.bind(("127.0.0.1", 0))
        free = later.getsockname()[1]
        later.close()
        async with serve(tmp_path, settings_for(NOBODY)) as served:
            status, answer = await change(served, {"server": {"port": port}})
            assert status == 422
            said = f"server.port: port {port} on 127.0.0.1 is in use by another program; choose another one."
            assert answer["fields"] == [{"path": "server.port", "message": said}]
            status, answer = await change(served, {"server": {"host": "192.0.2.1", "token": "t"}})
            assert (status, answer["error"]["param"]) == (422, "server.host")
            assert "is not an address of this machine" in answer["error"]["message"]
            assert in_file(served)["server"] == {"port": 0}
            assert not (tmp_path / "secrets").exists()
            status, answer = await change(served, {"server": {"port": free, "host": "localhost"}})
            assert (status, answer["restart_needed"]) == (200, ["server.host", "server.port"])
            assert in_file(served)["server"] == {"port": free, "host": "localhost"}
            status, answer = await change(
                served, {"server": {"port": 0, "host": None}, "store": {"conversations": False}}
            )
            assert (status, answer["restart_needed"]) == (200, ["store.conversations"])


async def test_changes_at_once_all_count(tmp_path: Path) -> None:
    """Whoever changes settings at the same time loses nothing."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        patches = [{"agents": {f"a{number}": {"model": "m"}}} for number in range(12)]
        answers = await asyncio.gather(*(change(served, patch) for patch in patches))
        assert {status for status, _ in answers} == {200}
        assert {agent["id"] for agent in (await values(served))["agents"]} == {f"a{number}" for number in range(12)}


@pytest.mark.slow
async def test_each_change_is_seen_at_once(tmp_path: Path) -> None:
    """However quickly they follow each other, the next request goes by the last change."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        for turns in [3, 4] * 15:
            await change(served, {"compaction": {"retain_last_turns": turns}})
            assert (await values(served))["compaction"]["retain_last_turns"] == turns


async def test_a_change_by_hand_is_kept(tmp_path: Path) -> None:
    """What was written into the file since the settings were shown is still there after a change."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        await values(served)
        by_hand = served.settings.read_text(encoding="utf-8").replace('"tiny"', '"huge"') + "# by hand\n"
        served.settings.write_text(by_hand, encoding="utf-8")
        status, answer = await change(served, {"agents": {"writer": {"name": "W"}}})
        assert status == 200
        assert (answer["values"]["agents"][0]["model"], answer["values"]["agents"][0]["name"]) == ("huge", "W")
        assert "# by hand\n" in served.settings.read_text(encoding="utf-8")


async def test_a_broken_file_is_left_to_the_person(tmp_path: Path) -> None:
    """A file that is no TOML is not overwritten; what is wrong with it is said, and the settings stay in force."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        served.settings.write_text("[server\n", encoding="utf-8")
        status, answer = await change(served, {"compaction": {"auto": False}})
        assert (status, answer["error"]["code"]) == (409, "settings_file_broken")
        assert f"{served.settings} is not valid TOML" in answer["error"]["message"]
        assert served.settings.read_text(encoding="utf-8") == "[server\n"
        assert [agent["id"] for agent in (await values(served))["agents"]] == ["writer"]


async def test_a_wrong_file_can_be_mended(tmp_path: Path) -> None:
    """A file with a wrong value takes a change that puts it right, and no other."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        served.settings.write_text("[compaction]\nauto = 5\n", encoding="utf-8")
        status, answer = await change(served, {"compaction": {"background": False}})
        assert (status, answer["error"]["param"]) == (422, "compaction.auto")
        status, answer = await change(served, {"compaction": {"auto": False}})
        assert status == 200
        assert answer["values"]["compaction"]["auto"] is False


async def test_a_file_that_has_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """Settings in force from a file that is gone are not replaced by the few that a change has."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        served.settings.unlink()
        status, answer = await change(served, {"memory": {"enabled": True}})
        assert (status, answer["error"]["code"]) == (409, "settings_file_gone")
        assert not served.settings.exists()
        assert [agent["id"] for agent in (await values(served))["agents"]] == ["writer"]


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Where the backup cannot be written, nothing is; the error says which file and what to do."""
    text = settings_for(NOBODY)
    async with serve(tmp_path, text) as served:
        (tmp_path / "settings.toml.bak").mkdir()
        status, answer = await change(served, {"server": {"token": "sesame"}})
        assert (status, answer["error"]["code"]) == (500, "settings_not_saved")
        assert f"{served.settings.resolve()} cannot be written" in answer["error"]["message"]
        assert served.settings.read_text(encoding="utf-8") == text
        assert list((tmp_path / "secrets").iterdir()) == []
        assert (await values(served))["server"]["token"]["set"] is False


async def test_number_that_is_not_set_is_null_and_can_be_so_again(tmp_path: Path) -> None:
    """The page's form shows it empty; emptied, its line leaves the file."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        for turns in (0, 4, None):
            status, answer = await change(served, {"compaction": {"retain_last_turns": turns}})
            assert (status, answer["values"]["compaction"]["retain_last_turns"]) == (200, turns)
            written = served.settings.read_text(encoding="utf-8")
            assert (f"retain_last_turns = {turns}" in written) == (turns is not None)
            assert ("retain_last_turns" in written) == (turns is not None)
