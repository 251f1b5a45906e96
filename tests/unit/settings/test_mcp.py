"""Warnings about MCP servers: secrets in the file, programs that are not there, servers that are switched off."""

import sys
from pathlib import Path

import pytest
from settings_file import load, refusal

PYTHON = f"command = ['{sys.executable}']"
AGENT = '[[agents]]\nid = "helper"\nmodel = "m"\n'


def server(*lines: str, name: str = "files") -> str:
    """Return the table of one server."""
    return "\n".join(["[[mcp_servers]]", f'name = "{name}"', *lines, ""])


def warnings_of(folder: Path, text: str, **environ: str) -> list[str]:
    """Return what is said about the settings, with `FILE` for the path of the file."""
    loaded = load(folder, text, environ)
    return [warning.replace(str(loaded.path), "FILE") for warning in loaded.warnings]


@pytest.mark.parametrize("name", ["API_KEY", "GITHUB_TOKEN", "password", "ClientSecret", "AUTHORIZATION"])
def test_a_secret_in_the_file_is_told(tmp_path: Path, name: str) -> None:
    """A variable whose name sounds like a secret is told to be kept elsewhere, without its value."""
    assert warnings_of(tmp_path, server(PYTHON, f'env = {{ {name} = "hunter2" }}')) == [
        f"FILE: mcp_servers[0].env.{name} holds the secret itself; env:NAME or file:PATH keeps it elsewhere."
    ]


def test_a_plain_variable_is_not_told(tmp_path: Path) -> None:
    """A variable that only sets something up is no secret."""
    assert warnings_of(tmp_path, server(PYTHON, 'env = { LOG_LEVEL = "debug", HOME_PAGE = "x" }')) == []


def test_a_header_in_the_file_is_told(tmp_path: Path) -> None:
    """A header that is written out is told, whatever its name."""
    assert warnings_of(tmp_path, server('url = "http://127.0.0.1:1/mcp"', 'headers = { "X-Me" = "hunter2" }')) == [
        "FILE: mcp_servers[0].headers.X-Me holds the secret itself; env:NAME or file:PATH keeps it elsewhere."
    ]


def test_a_variable_that_is_not_set_is_told(tmp_path: Path) -> None:
    """A reference to a variable that is not set is told; one that is set is not."""
    text = server(PYTHON, 'env = { API_KEY = "env:MINE" }')
    assert warnings_of(tmp_path, text) == [
        "FILE: mcp_servers[0].env.API_KEY = env:MINE names a variable that is not set; it is left out."
    ]
    assert warnings_of(tmp_path, text, MINE="hunter2") == []


def test_a_secret_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A secret file that cannot be read is a mistake in the settings, as with every secret."""
    said = refusal(tmp_path, server(PYTHON, 'env = { API_KEY = "file:nowhere" }'))
    assert said.startswith("FILE: mcp_servers[0].env.API_KEY = file:nowhere is not accepted: the file")


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/no/such/program", "./server", "~no-such-user/x"])
def test_a_program_that_is_not_found_is_told(tmp_path: Path, program: str) -> None:
    """A program that is neither on the path nor where it is said to be is told."""
    said = f"FILE: mcp_servers[0].command: the program {program!r} is not found; the tools of 'files' are missing"
    path = str(tmp_path)
    assert warnings_of(tmp_path, server(f'command = ["{program}", "-x"]'), PATH=path) == [f"{said} until it is."]
    assert warnings_of(tmp_path, server(f'command = ["{program}"]', "enabled = false"), PATH=path) == []


def test_a_whole_line_in_the_place_of_a_program_is_told_apart(tmp_path: Path) -> None:
    """Who has written the line of a terminal as one text is told the list that it has to be."""
    line = "no-such-program-anywhere -y some-server"
    for command in (f'"{line}"', f'["{line}"]'):
        (told,) = warnings_of(tmp_path, server(f"command = {command}"), PATH=str(tmp_path))
        assert told.endswith('Write each argument by itself: ["no-such-program-anywhere", "-y", "some-server"].')


def test_arguments_are_not_told(tmp_path: Path) -> None:
    """They may hold a secret, and what is told goes into the log; a path may have blanks."""
    (told,) = warnings_of(tmp_path, server('command = ["/no such/program", "--token=hush"]'), PATH=str(tmp_path))
    assert told.endswith("are missing until it is.")


def test_a_program_is_looked_for_where_it_is_started(tmp_path: Path) -> None:
    """A program named as seen from the folder it is started in is found there, and one on the path by its name."""
    python = Path(sys.executable)
    there = f"cwd = '{python.parent}'"
    assert warnings_of(tmp_path, server(f"command = ['./{python.name}']", there), PATH=str(tmp_path)) == []
    assert warnings_of(tmp_path, server(f"command = ['{python.name}']"), PATH=str(python.parent)) == []
    assert len(warnings_of(tmp_path, server(f"command = ['./{python.name}']"), PATH=str(python.parent))) == 1


def test_a_disabled_server_that_an_agent_names_is_told(tmp_path: Path) -> None:
    """An agent that names a server which is switched off is told to go without, once; a disabled agent is not."""
    text = server(PYTHON, "enabled = false") + AGENT + 'mcp = ["files", "files/read"]\n'
    assert warnings_of(tmp_path, text) == [
        "FILE: agents[0].mcp: the MCP server 'files' is not enabled; 'helper' goes without its tools."
    ]
    assert warnings_of(tmp_path, text + "enabled = false\n") == []


def test_a_tool_of_a_server_among_the_tools_is_led_to_its_key(tmp_path: Path) -> None:
    """Who names it in `tools`, where elbowroom's own stand, reads which key takes it."""
    agent = "[[agents]]\nid = 'a'\nmodel = 'm'\ntools = ['files/read']\n"
    assert refusal(tmp_path, agent + server(PYTHON)).endswith("'files/read' is none (mcp takes those of MCP servers).")
