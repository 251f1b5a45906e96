"""Secrets do not get into texts that are logged."""

from pathlib import Path

from cases import cases
from settings_file import load

from elbowroom.logs.redaction import Redactor

SETTINGS = """\
[server]
token = "env:DOOR"

[[providers]]
id = "lmstudio"
kind = "lmstudio"
api_key = "file:key.txt"

[[mcp_servers]]
name = "files"
command = ["cat"]
env = { SERVICE_TOKEN = "mcp-sesame-12", ROOT = "/home/me/notes" }
"""


@cases(
    "text",
    [
        "Authorization: Bearer PLANTED-1234",
        "{'Authorization': 'Basic PLANTED-1234'}",
        "http://me:PLANTED-1234@127.0.0.1:1234/v1",
        "api_key=PLANTED-1234",
        "token=4PLANTED-1234",
        "AWS_SECRET_ACCESS_KEY=PLANTED/1234",
        '{"apiKey": "PLANTED-1234"}',
        "X-Api-Key: PLANTED-1234",
        "npx server --api-key PLANTED-1234",
        "['npx', '--token', 'PLANTED-1234']",
        "GET /v1/models?token=PLANTED-1234&a=b",
        "Malformed LM Studio API token provided: sk-lm-PLANTED1:PLANTED1234567890123",
        "sk-proj-PLANTED_1234567",
        "the key elbp_PLANTED_1234-567 is of no use",
    ],
)
def test_secrets_are_known_by_what_surrounds_them(text: str) -> None:
    """Headers, keys, flags, addresses with passwords and keys of known forms are cleaned of the secret."""
    assert "PLANTED" not in Redactor().clean(text)


@cases(
    "text",
    [
        "writer: 120 tokens in, 45 out, 1 step(s), stop, 2.0 s",
        "providers[0].api_key = env:LM_API_TOKEN",
        "max_tokens=512",
        "http://127.0.0.1:1234/v1",
        "Set server.token, or remove the line.",
        "This elbowroom asks for its token: send it as Authorization: Bearer <token>.",
        "export LM_API_TOKEN=<token> ; or switch it off",
        """export ELBOWROOM_TOKEN="$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')\"""",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Counts of tokens, names of variables and plain addresses are left as they are."""
    assert Redactor().clean(text) == text


def test_secrets_of_the_settings_are_known_by_their_values(tmp_path: Path) -> None:
    """Whatever stands around them, also in the form they have in an address; folders for MCP servers stay readable."""
    (tmp_path / "key.txt").write_text("key of the file/9", encoding="utf-8")
    environ = {"DOOR": "door-sesame"}
    redactor = Redactor()
    redactor.follow(load(tmp_path, SETTINGS, environ), environ)
    for secret in ("door-sesame", "key of the file/9", "key%20of%20the%20file%2F9", "mcp-sesame-12"):
        assert secret not in redactor.clean(f"before {secret} behind, and in{secret}side")
    assert redactor.clean("notes in /home/me/notes") == "notes in /home/me/notes"


def test_an_earlier_secret_stays_one(tmp_path: Path) -> None:
    """Other settings do not make the old secrets public."""
    environ = {"DOOR": "door-sesame"}
    redactor = Redactor()
    redactor.follow(load(tmp_path, '[server]\ntoken = "env:DOOR"\n', environ), environ)
    redactor.follow(load(tmp_path, '[server]\ntoken = "other-sesame"\n'), {})
    assert redactor.clean("door-sesame other-sesame") == "******** ********"


def test_short_secrets_are_taken_out_where_they_stand_alone() -> None:
    """A token of five letters does not take pieces out of words."""
    redactor = Redactor()
    redactor.learn("model")
    assert redactor.clean("the token is model; 3 models") == "the token is ********; 3 models"
