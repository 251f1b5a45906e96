"""Loopback is open, everything wider needs a token."""

import shlex
import subprocess
from pathlib import Path

import pytest
from cases import cases
from settings_file import load, refusal

from elbowroom.settings.doubts import is_loopback

NO_TOKEN = "lets other machines in, so it needs a token"


@cases("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST", "0:0:0:0:0:0:0:1"])
def test_loopback_needs_no_token(tmp_path: Path, host: str) -> None:
    """Every form of an address that only this machine reaches is accepted without a token."""
    assert is_loopback(host)
    assert load(tmp_path, f'[server]\nhost = "{host}"\n').settings.server.host == host


@cases(
    "host",
    [
        "0.0.0.0",
        "::",
        "192.168.1.5",
        "10.0.0.1",
        "fe80::1",
        "8.8.8.8",
        "nas",
        "localhost.example.org",
        "127.0.0.1.example.org",
        "127.1",
        "2130706433",
        "*",
    ],
)
@cases("layer", ["file", "variable", "flag"])
def test_anything_wider_needs_a_token(tmp_path: Path, host: str, layer: str) -> None:
    """Without a token the settings are refused, whoever set the host; the message names who did, and the remedy."""
    key, variable = ("server", "host"), "ELBOWROOM_SERVER__HOST"
    said = {
        "file": lambda: refusal(tmp_path, f'[server]\nhost = "{host}"\n'),
        "variable": lambda: refusal(tmp_path, "", {variable: host}),
        "flag": lambda: refusal(tmp_path, "", {}, {key: host}),
    }[layer]()
    source = {"file": "FILE", "variable": f"environment variable {variable}", "flag": "flag --host"}[layer]
    assert said.startswith(f"{source}: listening on {host} {NO_TOKEN}")
    assert load(tmp_path, "", {"ELBOWROOM_TOKEN": "t"}, {key: host}).settings.server.host == host


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_a_blank_token_is_none(tmp_path: Path, token: str) -> None:
    """A variable that is there but blank protects nothing, and is not taken for a token."""
    assert NO_TOKEN in refusal(tmp_path, "", {"ELBOWROOM_TOKEN": token}, {("server", "host"): "0.0.0.0"})


@pytest.mark.parametrize("reference", ["env:MINE", "file:token", "written-out"])
def test_every_kind_of_token_opens_the_network(tmp_path: Path, reference: str) -> None:
    """A token from a variable, a file or the settings themselves will do."""
    (tmp_path / "token").write_text("t", encoding="utf-8")
    text = f'[server]\nhost = "0.0.0.0"\ntoken = "{reference}"\n'
    assert load(tmp_path, text, {"MINE": "t"}).settings.server.host == "0.0.0.0"


def test_the_command_that_is_printed_mends_it(tmp_path: Path) -> None:
    """Run in a shell, the last line of the message sets a token with which the same settings are accepted."""
    wide = '[server]\nhost = "0.0.0.0"\n'
    command = refusal(tmp_path, wide).splitlines()[-1].strip()
    assert shlex.split(command)[0] == "export"
    shell = subprocess.run(
        ["sh", "-c", f'{command} && printf %s "$ELBOWROOM_TOKEN"'], capture_output=True, text=True, check=True
    )
    assert len(shell.stdout) >= 32
    load(tmp_path, wide, {"ELBOWROOM_TOKEN": shell.stdout})
