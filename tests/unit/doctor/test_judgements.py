"""What the doctor makes of what it has seen: each judgement by itself."""

import json
from dataclasses import replace
from typing import Any

import pytest
from cases import cases

from elbowroom.doctor.agents import judge_model, judge_pruning, judge_room
from elbowroom.doctor.examination import as_text
from elbowroom.doctor.machine import IN_USE, judge_hosts, judge_origins, judge_port, judge_proxies, judge_time
from elbowroom.doctor.providers import Visit, judge_clock, judge_lmstudio, judge_policy, judge_slots, judge_window
from elbowroom.doctor.subject import Answer, Finding, Trouble
from elbowroom.providers.base import ModelInfo
from elbowroom.settings.model import ServerSettings


def said(value: Any, status: int = 200) -> Answer:
    """Return an answer in JSON."""
    return Answer(status=status, text=json.dumps(value))


FAR = "http://10.1.2.3:1234"
LOCAL = "http://127.0.0.1:1234"
OLLAMA = Answer(text="Ollama is running")
OWN = said({"status": "ok", "providers": []})
UNEXPECTED = said({"error": "Unexpected endpoint or method."})
GREETING = Answer(status=200, text='{"lmstudio": true}')
NOT_FOUND = Answer(status=404, text="Not Found")


def model(name: str, window: int | None = None, most: int | None = 32_768) -> ModelInfo:
    """Return a model of LM Studio."""
    state: Any = "loaded" if window else "not-loaded"
    return ModelInfo(name, "lmstudio", name, state=state, loaded_context=window, max_context=most)


@cases(
    ("url", "trouble", "words", "remedy"),
    [
        (LOCAL, "refused", "Nobody listens", "lms server start"),
        (LOCAL, "silent", "does not answer", "restart it"),
        (FAR, "silent", "firewall", "allow the port"),
        ("http://nowhere:1234", "unknown host", "no machine of this name", "base_url"),
        ("http://:1", "bad address", "not an address", "http://127.0.0.1:1234"),
        (LOCAL, "no http", "does not speak HTTP", "base_url"),
    ],
)
def test_an_address_without_an_answer(url: str, trouble: Trouble, words: str, remedy: str) -> None:
    """Each way of not answering has its own remedy."""
    found = judge_lmstudio(Visit(url, False, Answer(trouble)))
    assert found is not None
    assert (found.severity, words in found.what, remedy in found.remedy) == ("fail", True, True)


@cases(
    ("visit", "severity", "words"),
    [
        (
            Visit(LOCAL, False, NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND, Answer(text="Ollama is running")),
            "fail",
            "Ollama",
        ),
        (Visit(LOCAL, False, NOT_FOUND, NOT_FOUND, NOT_FOUND, said({"status": "ok"})), "fail", "llama.cpp"),
        (Visit(LOCAL, False, NOT_FOUND, NOT_FOUND), "fail", "switched off"),
        (Visit(LOCAL, False, said({}), said({}, 500)), "fail", "status 500"),
        (
            Visit(LOCAL, False, NOT_FOUND, NOT_FOUND, health=said({"status": "ok", "providers": []})),
            "fail",
            "an elbowroom",
        ),
        (
            Visit(LOCAL, False, GREETING, said({"error": "Unexpected endpoint or method."})),
            "fail",
            "does not tell the windows",
        ),
        (
            Visit(LOCAL, False, GREETING, said({"error": "?"}), said({"data": [{"compatibility_type": "gguf"}]})),
            "warn",
            "older than 0.4.0",
        ),
    ],
)
def test_somebody_else_or_an_older_one(visit: Visit, severity: str, words: str) -> None:
    """Who answers is told by what it says, never by its status."""
    found = judge_lmstudio(visit)
    assert found is not None
    assert found.severity == severity
    assert words in found.what + found.remedy
    assert found.remedy


def test_lm_studio_with_its_list_is_all_right() -> None:
    """The list is enough, also of one that does not greet."""
    assert judge_lmstudio(Visit(LOCAL, False, GREETING, said({"models": []}))) is None
    assert judge_lmstudio(Visit(LOCAL, False, NOT_FOUND, said({"models": []}))) is None


@cases(
    ("answer", "cannot_bind", "held", "severity", "words"),
    [
        (said({"status": "ok", "version": "1", "providers": []}), IN_USE, True, "ok", "is running"),
        (said({"status": "stopping", "version": "1", "providers": []}), IN_USE, True, "ok", "is running"),
        (said({"status": "ok"}), IN_USE, False, "fail", "Another program"),
        (Answer("no http"), IN_USE, False, "fail", "Another program"),
        (Answer("silent"), IN_USE, False, "fail", "Another program"),
        (Answer("refused"), "the system keeps port 80", False, "fail", "Nothing can listen"),
        (Answer("refused"), "", True, "warn", "does not listen on port"),
        (Answer("refused"), "", False, "ok", "is free"),
        (Answer("silent"), "", False, "ok", "is free"),
    ],
)
def test_the_port(answer: Answer, cannot_bind: str, held: bool, severity: str, words: str) -> None:
    """Only what says that it is an elbowroom is one."""
    (found,) = judge_port(ServerSettings(), answer, cannot_bind=cannot_bind, held=held)
    assert (found.severity, words in found.what) == (severity, True)


def test_hosts_and_origins_that_never_match() -> None:
    """Addresses where names are meant, and the other way round; a star lets everybody in."""
    server = ServerSettings(
        host="0.0.0.0",
        allowed_hosts=("http://chat.lan/", "chat.lan", "10.0.0.5:2345"),
        allowed_origins=("https://chat.lan", "chat.lan", "https://chat.lan/", "*"),
    )
    assert [found.remedy for found in judge_hosts(server)] == ["Write the bare name: 'chat.lan'."]
    assert [found.severity for found in judge_origins(server)] == ["warn"] * 3
    assert judge_hosts(ServerSettings(allowed_hosts=("localhost", "127.0.0.1:2345", "[::1]:2345", "[::1]"))) == []
    [foreign] = judge_hosts(ServerSettings(allowed_hosts=("chat.lan",)))
    assert "unless a proxy on this machine" in foreign.what


@cases(
    ("environ", "is_caught"),
    [
        ({}, False),
        ({"HTTPS_PROXY": "http://proxy"}, False),
        ({"http_proxy": "http://proxy"}, True),
        ({"ALL_PROXY": "socks5://proxy"}, True),
        ({"HTTP_PROXY": "http://proxy", "NO_PROXY": "example.org"}, True),
        ({"HTTP_PROXY": "http://proxy", "NO_PROXY": "example.org, localhost,127.0.0.1"}, False),
        ({"HTTP_PROXY": "http://proxy", "no_proxy": "*"}, False),
        ({"HTTP_PROXY": ""}, False),
    ],
)
def test_proxies(environ: dict[str, str], is_caught: bool) -> None:
    """Those that would catch what is meant for this machine are found."""
    assert bool(judge_proxies(environ)) is is_caught


@pytest.mark.parametrize(
    "address", ["me:PLANTED@proxy:3128", "http://me:PLAN/TED@proxy:3128", "http://me:PLAN@TED@proxy"]
)
def test_password_of_a_proxy_is_not_told(address: str) -> None:
    """However it is written, only the machine is named: without a scheme, or with signs that belong escaped."""
    [found] = judge_proxies({"HTTP_PROXY": address})
    assert "TED" not in found.what
    assert "(proxy" in found.what


def test_clocks() -> None:
    """One before elbowroom's time, and one minutes away from a provider's; a date that is none says nothing."""
    assert [found.severity for found in judge_time(0.0)] == ["fail"]
    now = 1_800_000_000.0
    assert judge_time(now) == []
    assert judge_clock("Fri, 15 Jan 2027 08:00:00 GMT", now, "lmstudio") == []
    assert "60 minutes behind" in judge_clock("Fri, 15 Jan 2027 09:00:00 GMT", now, "lmstudio")[0].what
    assert judge_clock("yesterday", now, "lmstudio") == []


@pytest.mark.parametrize(("tokens", "severities"), [(2048, []), (2049, ["warn"]), (3482, ["fail"])])
def test_room_that_tools_leave(tokens: int, severities: list[str]) -> None:
    """Up to half of the window is no matter; from 85 % on hardly anything else fits."""
    found = judge_room("writer", tokens, 36, 4096)
    assert [one.severity for one in found] == severities
    assert all("36 tools" in one.what and one.remedy for one in found)


def test_windows() -> None:
    """Small ones are told, unless the model can have no larger one."""
    assert judge_window(model("tiny", 8192), "lmstudio", "lmstudio") == []
    assert judge_window(model("tiny", 2048, 2048), "lmstudio", "lmstudio") == []
    assert judge_window(model("tiny"), "lmstudio", "lmstudio") == []
    assert [one.severity for one in judge_window(model("tiny", 4096), "lmstudio", "lmstudio")] == ["warn"]
    assert [one.severity for one in judge_window(model("tiny", 4096, None), "ollama", "ollama")] == ["warn"]


def test_policies() -> None:
    """The one that loses the instructions is a warning; one that is not known is no reason to worry."""
    found = {policy: judge_policy(model("tiny", 8192), policy) for policy in ("rollingWindow", "truncateMiddle", "new")}
    assert [one.severity for one in found.values()] == ["warn", "ok", "ok"]


def test_models_that_agents_name() -> None:
    """Ollama's names may leave `:latest` out; what makes embeddings cannot chat."""
    embedding = ModelInfo("embed", "lmstudio", "embed", kind="embedding")
    assert judge_model("agent a", "llama3", [model("llama3:latest")], "ollama") is None
    assert judge_model("agent a", "llama3", [model("llama3", 8192)], "lmstudio") is None
    assert (
        "only makes embeddings"
        in (judge_model("agent a", "embed", [embedding], "lmstudio") or pytest.fail("none")).what
    )


def test_pruning_agents() -> None:
    """One with the same model, or with a window like the others', is fine."""
    models = [model("large", 32_768), model("small", 8192), model("unloaded")]
    assert judge_pruning("lmstudio", "large", models, {"writer": "large"}) == []
    assert judge_pruning("lmstudio", "large", models, {"writer": "small"}) == []
    assert "several parts" in judge_pruning("lmstudio", "small", models, {"writer": "large"})[0].what
    assert "is not loaded" in judge_pruning("lmstudio", "unloaded", models, {"writer": "large"})[0].what
    assert "own model does it" in judge_pruning("lmstudio", "gone", models, {"writer": "large"})[0].what


@pytest.mark.parametrize(("slots", "many"), [(1, "one conversation"), (4, "4 conversations")])
def test_slots(slots: int, many: str) -> None:
    """How many slots there are is no problem; where a server cannot save them, what to start it with is a hint."""
    can, cannot = (judge_slots(model("tiny", 8192), slots, can_save=can_save) for can_save in (True, False))
    assert can.severity == cannot.severity == "ok"
    assert many in can.what
    assert many in cannot.what
    assert not can.remedy
    assert "--slot-save-path" in cannot.remedy


def test_a_place_that_a_sentence_names_is_not_told_twice() -> None:
    """The place stands in front of what is wrong there, unless the sentence has it already."""
    folder = "/home/ann/.local/share/elbowroom"
    written = Finding("fail", "data folder", f"Nothing can be written to {folder}.", folder, "Choose another one.")
    told = as_text([written, replace(written, what="It is full.")], 200)
    assert told.count(folder) == 2
    assert f"{folder}: It is full." in told
