"""The table of programs: each text is what its file takes, and the document shows them all."""

import json
import tomllib
from pathlib import Path

import pytest

from elbowroom.connect.client import Client
from elbowroom.connect.clients import AGENTS, CLIENTS, table
from elbowroom.connect.models import Choice

DOCUMENT = (Path(__file__).parents[3] / "docs" / "connect.md").read_text(encoding="utf-8")
SHOWN = Choice("http://127.0.0.1:2345", "none", "lmstudio/qwen3-8b", 32_768)
ODD = Choice("http://[::1]:1", 'a"b\\c', 'm"1', 8_192)


@pytest.mark.parametrize("client", AGENTS, ids=lambda client: client.id)
def test_the_document_shows_what_each_agent_is_told(client: Client) -> None:
    """A section for each of them, with the command, each file and each text."""
    start = DOCUMENT.index(f"\n## {client.name}\n")
    section = DOCUMENT[start : DOCUMENT.find("\n## ", start + 1)]
    assert f"elbowroom connect {client.id}" in section
    assert ("--write" in section) is client.is_written
    for part in client.parts:
        assert f"```{part.kind}\n{SHOWN.filled(part.text)}\n```" in section
        assert part.place in section
    assert " ".join(client.then.split()) in " ".join(section.split())


def test_the_document_names_every_program() -> None:
    """The list at its top has all of them."""
    assert [client for client in CLIENTS if f"`{client}`" not in DOCUMENT] == []


def test_the_document_tells_the_smallest_windows() -> None:
    """Its table has each agent whose settings are written, with the least window of which the command tells."""
    rows = [[cell.strip() for cell in line.split("|")] for line in DOCUMENT.splitlines() if line.startswith("| ")]
    told = {row[1].rpartition(" ")[0]: row[3] for row in rows if len(row) == 6}
    assert {client.name: f"{client.least_window:,}" for client in AGENTS if client.is_written}.items() <= told.items()


@pytest.mark.parametrize("client", AGENTS, ids=lambda client: client.id)
def test_any_name_and_token_fit(client: Client) -> None:
    """A quote in the token or the model's name does not break a file, and no place is left unfilled."""
    for part in client.parts:
        text = ODD.filled(part.text)
        if part.kind == "json":
            json.loads(text)
        if part.kind == "toml":
            tomllib.loads(text)
        assert not {"$address", "$token", "$model", "$window", "$output", "$widened"} & {
            *text.replace('"', " ").split()
        }


def test_an_answer_is_left_room() -> None:
    """An eighth of the window, which is less than compaction keeps free, and no more than is useful."""
    assert [Choice("", "", "", window).output for window in (8_192, 32_768, 262_144)] == [1_024, 4_096, 16_384]


def test_the_page_gets_the_same_table() -> None:
    """Its texts are those of the command."""
    shown = table()
    assert [agent["id"] for agent in shown["agents"]] == [client.id for client in AGENTS]
    texts = [[part["text"] for part in agent["parts"]] for agent in shown["agents"]]
    assert texts == [[part.text for part in client.parts] for client in AGENTS]
