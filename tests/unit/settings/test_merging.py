"""What a settings file is to hold after a merge patch."""

from typing import Any

from cases import cases

from elbowroom.settings.merge import asked_for, extract_secrets, is_same, mark_secrets, merged, own_files

AGENTS = [{"id": "a", "model": "m", "sampling": {"seed": 1, "top_k": 2}}, {"id": "b", "model": "m"}]
KEPT = {"set": True, "from": "env:KEY"}


@cases(("data", "patch", "result"), [
        ({}, {"server": {"port": 1}}, {"server": {"port": 1}}),
        ({"server": {"port": 1, "host": "h"}}, {"server": {"port": None}}, {"server": {"host": "h"}}),
        ({"server": {"port": 1}}, {"server": None}, {}),
        ({}, {"server": {}}, {}),
        ({}, {"server": {"port": None}}, {}),
        ({"compaction": {"auto": True}}, {"compaction": {"auto": False, "model": "m"}},
         {"compaction": {"auto": False, "model": "m"}}),
        ({"agents": AGENTS}, {"agents": {"b": None}}, {"agents": AGENTS[:1]}),
        ({"agents": AGENTS[:1]}, {"agents": {"a": None}}, {}),
        ({"agents": AGENTS}, {"agents": {"c": None}}, {"agents": AGENTS}),
        ({"agents": AGENTS[1:]}, {"agents": {"c": {"model": "n"}}},
         {"agents": [*AGENTS[1:], {"id": "c", "model": "n"}]}),
        ({"agents": AGENTS[:1]}, {"agents": {"a": {"sampling": {"seed": None, "top_p": 1}}}},
         {"agents": [{"id": "a", "model": "m", "sampling": {"top_k": 2, "top_p": 1}}]}),
        ({"agents": AGENTS}, {"agents": [{"id": "b", "model": "n"}]}, {"agents": [{"id": "b", "model": "n"}]}),
        ({"agents": AGENTS}, {"agents": [AGENTS[1], {"id": "a", "model": "m", "sampling": {"seed": None, "top_k": 3}}]},
         {"agents": [AGENTS[1], {"id": "a", "model": "m", "sampling": {"top_k": 3}}]}),
        ({"agents": AGENTS[1:]}, {"agents": {"b": {"id": "c"}}}, {"agents": [{"id": "c", "model": "m"}]}),
        ({}, {"providers": {"lmstudio": {"base_url": "http://nas:1234"}}},
         {"providers": [{"id": "lmstudio", "kind": "lmstudio", "base_url": "http://nas:1234"}]}),
        ({}, {"providers": {"o": {"kind": "ollama"}}},
         {"providers": [{"id": "lmstudio", "kind": "lmstudio"}, {"id": "o", "kind": "ollama"}]}),
        ({}, {"providers": {"lmstudio": None}}, {"providers": []}),
        ({"server": 5}, {"server": {"port": 1}}, {"server": 5}),
        ({"agents": {"id": "a"}}, {"agents": {"b": {}}}, {"agents": {"id": "a"}}),
        ({}, {"agents": 5, "server": "x"}, {"agents": 5, "server": "x"}),
        ({"agents": AGENTS}, {"agents": {"a": 5}}, {"agents": {"a": 5}}),
        ({}, {"agents": [5]}, {"agents": [5]}),
    ])  # fmt: skip
def test_a_merge_patch(data: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    """Null removes, tables are merged, rows are told apart by their names, a whole list replaces."""
    assert merged(data, patch, {}) == result


def test_what_is_in_force_is_not_written() -> None:
    """A form that is sent back whole adds only what has changed, and leaves what is written as it is."""
    shown = {"compaction": {"auto": True, "model": ""}, "agents": [{"id": "a", "model": "m", "tools": ["vault"]}]}
    data = {"agents": [{"id": "a", "model": "m", "tools": "vault"}]}
    patch = {"compaction": {"auto": True, "model": "x"}, "agents": [{"id": "a", "model": "m", "tools": ["vault"]}]}
    assert merged(data, patch, shown) == {**data, "compaction": {"model": "x"}}
    assert merged(data, {"compaction": {"auto": 1}}, shown)["compaction"] == {"auto": 1}
    store = {"store": {"max_gb": 3.0}}
    assert repr(merged(store, {"store": {"max_gb": 3}}, store)) == repr(store)


def test_secrets_go_into_files_of_their_own() -> None:
    """A text becomes a file, a reference stays one, and what comes back as it is shown is kept."""
    data: dict[str, Any] = {
        "providers": [{"id": "p", "kind": "ollama", "api_key": "env:KEY"}],
        "mcp_servers": [{"name": "m", "headers": {"X": "file:x"}}],
    }
    patch = {
        "server": {"token": " sesame "},
        "providers": [{"id": "p", "kind": "ollama", "api_key": KEPT}, {"id": "q", "api_key": "file:~/key"}],
        "mcp_servers": {"m": {"headers": {"X": KEPT, "set": "Bearer 1"}, "env": {"A B": "2"}, "cwd": "plain"}},
    }
    new, files = extract_secrets(merged(data, mark_secrets(patch), {}))
    token, header, variable = new["server"]["token"], new["mcp_servers"][0]["headers"], new["mcp_servers"][0]["env"]
    assert new["providers"] == [data["providers"][0], {"id": "q", "api_key": "file:~/key"}]
    assert header["X"] == "file:x"
    assert new["mcp_servers"][0]["cwd"] == "plain"
    assert {f"file:secrets/{name}": secret for name, secret in files.items()} == {
        token: "sesame",
        header["set"]: "Bearer 1",
        variable["A B"]: "2",
    }
    assert set(own_files(new)) == set(files)
    assert variable["A B"].startswith("file:secrets/mcp_servers.m.env.A_B-")


def test_rows_are_asked_for_where_they_stand() -> None:
    """The part of a change that sets something has its rows in the places of the file."""
    patch: dict[str, Any] = {"agents": {"b": {"x": 1, "y": None}, "a": None}, "server": {"z": 2}, "store": None}
    asked = asked_for(patch, merged({"agents": AGENTS}, patch, {}))
    assert asked == {"agents": [{"id": "b", "x": 1}], "server": {"z": 2}}
    whole = {"agents": [{"id": "c"}, {"id": ["odd"]}, 5]}
    assert asked_for(whole, whole)["agents"][0] == {"id": "c"}


@cases(("one", "other"), [(1, True), (1, 1.0), ([1], [1, 2]), ({"a": 1}, {}), ("1", 1), (None, 0)])
def test_values_of_different_types_differ(one: Any, other: Any) -> None:
    """What is equal in Python need not be the same in a file."""
    assert not is_same(one, other)
    assert is_same(one, one)
    assert is_same({"x": [one]}, {"x": [one]})
