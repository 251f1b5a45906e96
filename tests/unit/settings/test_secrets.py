"""Secrets: read from where they are kept, and shown nowhere."""

import logging
from pathlib import Path

import pytest
from cases import cases
from settings_file import AGENT, load, refusal

from elbowroom.errors import SettingsError
from elbowroom.settings.fields import SecretRef
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.load import list_settings, load_settings
from elbowroom.settings.model import Settings

SESAME = "sesame-open-7391"
PROVIDER = '[[providers]]\nid = "one"\nkind = "openai"\n'
COMPLETE = f'[server]\ntoken = "{SESAME}"\n{PROVIDER}base_url = "http://h"\napi_key = "{SESAME}"\n'


def test_a_variable_is_read_when_it_is_needed(tmp_path: Path) -> None:
    """`env:NAME` is the value of that variable, without blanks around it; unset or blank it is no secret."""
    secret = SecretRef("env:KEY")
    assert secret.reveal(tmp_path, {"KEY": f" {SESAME}\r\n"}) == SESAME
    assert secret.reveal(tmp_path, {"KEY": " "}) is None
    assert secret.reveal(tmp_path, {}) is None


@pytest.mark.parametrize("content", [SESAME, f"{SESAME}\n", f"\ufeff{SESAME}\r\n"], ids=["bare", "line", "notepad"])
def test_a_file_is_read_beside_the_settings(tmp_path: Path, content: str) -> None:
    """`file:NAME` is looked up in the folder of the settings file; the end of its line is no part of the secret."""
    (tmp_path / "key").write_bytes(content.encode())
    assert SecretRef("file:key").reveal(tmp_path, {}) == SESAME
    assert SecretRef(f"file:{tmp_path / 'key'}").reveal(tmp_path / "elsewhere", {}) == SESAME


def test_a_file_may_be_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`file:~/key` is in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "key").write_text(SESAME, encoding="utf-8")
    assert SecretRef("file:~/key").reveal(tmp_path / "elsewhere", {}) == SESAME


def test_a_value_may_stand_in_the_file_with_a_warning(tmp_path: Path) -> None:
    """A secret written out works, and is mentioned once for each key, without its value."""
    loaded = load(tmp_path, COMPLETE)
    assert loaded.settings.server.token.reveal(tmp_path, {}) == SESAME
    file = tmp_path / "settings.toml"
    assert loaded.warnings == tuple(
        f"{file}: {key} holds the secret itself; env:NAME or file:PATH keeps it elsewhere."
        for key in ("server.token", "providers[0].api_key")
    )


def test_a_token_in_a_variable_of_its_key_is_no_reason_to_warn(tmp_path: Path) -> None:
    """ELBOWROOM_SERVER__TOKEN holds the token itself, as it should: it is not in the file."""
    loaded = load(tmp_path, "", {"ELBOWROOM_SERVER__TOKEN": SESAME})
    assert loaded.warnings == ()
    assert loaded.settings.server.token.reveal(tmp_path, {}) == SESAME


def test_the_default_variables_are_used_where_they_are_set(tmp_path: Path) -> None:
    """ELBOWROOM_TOKEN and LM_API_TOKEN need no line in the file; not set, they are no mistake."""
    environ = {"ELBOWROOM_TOKEN": "a", "LM_API_TOKEN": "b"}
    settings = load(tmp_path, "", environ).settings
    assert settings.server.token.reveal(tmp_path, environ) == "a"
    assert settings.providers[0].api_key is not None
    assert settings.providers[0].api_key.reveal(tmp_path, environ) == "b"
    assert load(tmp_path).warnings == ()


def test_a_token_whose_variable_is_not_set_is_refused(tmp_path: Path) -> None:
    """Whoever wrote a token into the file wants one: without it the server does not start open."""
    assert refusal(tmp_path, '[server]\ntoken = "env:MINE"\n') == (
        "FILE: server.token = env:MINE names a variable that is not set. Set it, or remove the line."
    )


def test_a_key_whose_variable_is_not_set_is_mentioned(tmp_path: Path) -> None:
    """A provider without its key may still answer; that none is sent is said."""
    loaded = load(tmp_path, PROVIDER.replace("openai", "ollama") + 'api_key = "env:MINE"\n')
    (said,) = loaded.warnings
    assert said.endswith("providers[0].api_key = env:MINE names a variable that is not set; no key is sent.")


@cases(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory."),
        (b"", "is empty."),
        (b" \n", "is empty."),
        (SESAME.encode("utf-16"), "is not UTF-8 text (byte 0)."),
        (f"{SESAME}\nsecond line\n".encode(), "a secret is one line."),
    ],
)
@cases("key", ["server.token", "providers[0].api_key"])
def test_a_secret_file_that_gives_no_secret_is_named(
    tmp_path: Path, content: bytes | None, said: str, key: str
) -> None:
    """File, key and reference are in the message, what is in the secret's file is not."""
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    text = "[server]\ntoken" if key == "server.token" else PROVIDER.replace("openai", "ollama") + "api_key"
    message = refusal(tmp_path, f'{text} = "file:key"\n')
    assert message.startswith(f"FILE: {key} = file:key is not accepted: ")
    assert message.endswith(said)
    assert SESAME not in message


def test_a_folder_is_no_secret_file(tmp_path: Path) -> None:
    """`file:` without a name is the folder itself, and refused."""
    assert refusal(tmp_path, '[server]\ntoken = "file:"\n').startswith("FILE: server.token = file: is not accepted")


def test_a_secret_of_several_lines_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    """What cannot stand in a header is refused at the start: at the first request it would break the connection."""
    message = refusal(tmp_path, "", {"LM_API_TOKEN": f"{SESAME}\nX-Evil: 1"})
    assert message.startswith("default: providers[0].api_key = env:LM_API_TOKEN is not accepted: ")
    assert SESAME not in message
    assert "a secret is one line" in refusal(tmp_path, f'[server]\ntoken = "{SESAME}\\nX-Evil: 1"\n')


@pytest.mark.parametrize("written", ['""', '"  "', "5", "[]", "true"])
def test_a_secret_is_a_text(tmp_path: Path, written: str) -> None:
    """An empty token, or one that is no text, is refused in one line."""
    assert refusal(tmp_path, f"[server]\ntoken = {written}\n") == (
        "FILE: server.token = ******** is not accepted; it takes env:NAME, file:PATH, or the secret itself "
        "as a text that is not empty."
    )


@cases(
    "text",
    [
        f'{PROVIDER}api_key = "{SESAME}"\n',
        f'[providers]\nid = "one"\napi_key = "{SESAME}"\n',
        f'[[server]]\ntoken = "{SESAME}"\n',
        f'[server]\ntoken = ["{SESAME}"]\n',
        f'[server]\ntoken = {{ value = "{SESAME}" }}\n',
        f'[[providers]]\napi_key = "{SESAME}"\n',
        f'{PROVIDER}base_url = "http://user:{SESAME}@h"\n',
        f'{PROVIDER}base_url = "http://:{SESAME}@h"\n',
        f'{PROVIDER}base_url = "http://{SESAME}@h@h/v1"\n',
        f'{PROVIDER}base_url = "http://h/v1?key={SESAME}"\n',
        f'{AGENT}provider = {{ id = "one", api_key = "{SESAME}" }}\n',
        f'{AGENT}{AGENT}[server]\ntoken = "{SESAME}"\n',
        f'{PROVIDER}base_url = "http://h"\napi_key = "{SESAME}\n',
        f'[server]\ntoken = "{SESAME}\\u0007"\n',
        f'[server]\ntoken = "{SESAME}"\nhost = 5\n',
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    """Whatever is wrong around it, a secret that stands in the file is in no message."""
    message = refusal(tmp_path, text)
    assert SESAME not in message


def test_no_wrong_table_shows_a_secret_under_a_variable(tmp_path: Path) -> None:
    """Nor does the message about a table that a variable was to be laid over."""
    said = refusal(tmp_path, f'[[server]]\ntoken = "{SESAME}"\n', {"ELBOWROOM_SERVER__PORT": "1"})
    assert SESAME not in said


def test_no_warning_shows_a_secret(tmp_path: Path) -> None:
    """A misspelt key is named without its value."""
    loaded = load(tmp_path, f'{PROVIDER}base_url = "http://h"\napikey = "{SESAME}"\n[server]\ntokn = "{SESAME}"\n')
    assert len(loaded.warnings) == 2
    assert SESAME not in "".join(loaded.warnings)


def test_no_text_form_of_the_settings_shows_a_secret(tmp_path: Path) -> None:
    """Neither str nor repr nor any dump of the settings, nor the listing, has the value; references may be seen."""
    loaded = load(tmp_path, COMPLETE)
    settings = loaded.settings
    forms = [
        str(settings),
        repr(settings),
        repr(loaded),
        str(settings.server.token),
        f"{settings.server.token!r} {settings.server.token:}",
        str(settings.model_dump()),
        str(settings.model_dump(mode="json")),
        settings.model_dump_json(),
        "\n".join(list_settings(loaded, {})),
    ]
    for form in forms:
        assert SESAME not in form
        assert "********" in form
    reference = load(tmp_path, '[server]\ntoken = "env:MINE"\n', {"MINE": SESAME})
    assert "env:MINE" in repr(reference.settings)
    assert SESAME not in repr(reference)


def test_the_listing_tells_whether_a_variable_is_set(tmp_path: Path) -> None:
    """A reference is shown with the state of its variable, never with the value."""
    lines = list(list_settings(load(tmp_path, "", {"ELBOWROOM_TOKEN": SESAME}), {"ELBOWROOM_TOKEN": SESAME}))
    assert "server.token = env:ELBOWROOM_TOKEN, set   (default)" in lines
    assert "providers[0].api_key = env:LM_API_TOKEN, not set   (default)" in lines


def test_the_validators_own_error_hides_its_input() -> None:
    """Settings that are validated elsewhere, as by an API, do not show their input in the error either."""
    with pytest.raises(ValueError, match="base_url") as raised:
        Settings.model_validate({"providers": [{"id": "one", "kind": "openai", "api_key": SESAME}]})
    assert SESAME not in str(raised.value)


def test_no_log_line_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reading good, doubtful and wrong settings again logs no secret, at any level."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "settings.toml"
    path.write_text(COMPLETE, encoding="utf-8")
    live = LiveSettings(path, {}, {})
    for text in (f"{COMPLETE}more = 1\n", f'{PROVIDER}api_key = "{SESAME}"\n', f'[[server]]\ntoken = "{SESAME}"\n'):
        path.write_text(text, encoding="utf-8")
        live.current()
    assert "Settings read again" in caplog.text
    assert caplog.text.count("The changed settings are wrong") == 2
    assert SESAME not in caplog.text


def test_no_chained_error_carries_the_content_of_a_secret_file(tmp_path: Path) -> None:
    """The decoding error behind a message holds the file's bytes; it does not travel with it."""
    (tmp_path / "key").write_bytes(SESAME.encode() + b"\xff")
    (tmp_path / "settings.toml").write_text('[server]\ntoken = "file:key"\n', encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load_settings(tmp_path / "settings.toml", {}, {})
    error: BaseException | None = raised.value
    while error is not None:
        assert SESAME not in repr(error)
        error = error.__cause__


def test_references_are_equal_by_what_is_written() -> None:
    """Two references of the same text are one: a provider is not made anew for nothing."""
    assert SecretRef("env:A") == SecretRef("env:A")
    assert hash(SecretRef("env:A")) == hash(SecretRef("env:A"))
    assert SecretRef("env:A") != SecretRef("env:B")
    assert SecretRef("env:A") != "env:A"


def test_a_path_that_no_file_has_is_refused(tmp_path: Path) -> None:
    """A null byte in the name of a secret's file is a wrong setting, not a crash."""
    assert refusal(tmp_path, '[server]\ntoken = "file:a\\u0000b"\n').endswith("cannot be read: embedded null byte.")
