"""Keys and conversations stay out of logs, errors and terminals, whatever happens."""

import logging
from pathlib import Path
from typing import NoReturn

import pytest
from fake_upstream import chunk, completion, fake_upstream, says, streams
from outcome import chat
from serving import serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

TOKEN, KEY, PROMPT, REPLY = "canary-token-1", "canary-key-2", "canary-prompt-3", "canary-reply-4"
CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
KEY_ECHO = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
ANSWERS = {
    "whole": says(completion(REPLY)),
    "stream": streams(chunk({"content": REPLY}), chunk({}, "stop"), DONE),
    "cut": streams(chunk({"content": REPLY})),
    "error in the stream": streams(chunk({"content": REPLY}), b'data: {"error": {"message": "boom"}}\n\n'),
    "key in the stream": streams(chunk({"content": REPLY}), b'data: {"error": "the key was %s"}\n\n' % KEY.encode()),
    "400": says({"error": "no"}, status=400),
    "401": says(KEY_ECHO, status=401),
    "403": says(f"<p>{KEY}</p>", status=403),
    "429": says(KEY_ECHO, status=429),
    "500": says(f"Traceback: Authorization: Bearer {KEY}", status=500),
    "200": says(KEY_ECHO),
    "no json": says(f"key={KEY}"),
    "no stream": streams(f"data: key={KEY}\n\n".encode()),
}
AGENT = '[[agents]]\nid = "writer"\nmodel = "tiny"\n'


@pytest.mark.threat("secrets in logs", "nowhere")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("agent", [True, False])
async def test_canaries_are_nowhere(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    *,
    agent: bool,
    stream: bool,
) -> None:
    """Success, every failure and refusals at the gates: no key, token, prompt or reply is logged."""
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "elbowroom")
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    settings = '\n[[agents]]\nid = "writer"\nprovider = "openai"\nmodel = "m"\n' if agent else ""
    model = "writer" if agent else "openai/m"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with fake_upstream({}) as upstream:
        provider = settings_for(upstream.url, kind="openai", server='token = "env:TOKEN"') + 'api_key = "file:key"\n'
        async with serve(tmp_path, provider + settings, environ={"TOKEN": TOKEN}) as served:
            served.http.headers.update(headers)
            for answer in ANSWERS.values():
                upstream.answers[CHAT] = answer
                outcome = await chat(served, model, stream=stream, text=PROMPT)
                assert outcome.error is None or KEY not in str(outcome.error)
            async with served.http.post(served.chat_url, data=f'{{"{PROMPT}'.encode()) as response:
                assert response.status == 415
            body = {"model": model, "messages": [{"role": 7, "content": PROMPT}]}
            async with served.http.post(served.chat_url, json=body) as response:
                assert response.status == 400
            async with served.http.get(f"{served.url}/v1/models?key={TOKEN}", headers={"Host": TOKEN}) as response:
                assert response.status == 403
    printed = "".join(capfd.readouterr()) + caplog.text
    for canary in (TOKEN, KEY, PROMPT, REPLY):
        assert canary not in printed


async def test_a_mistake_of_our_own_shows_nothing_of_the_inside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody expected is a 500 in OpenAI's form; where it happened stands in the log alone."""

    def broken(target: object) -> NoReturn:
        raise ZeroDivisionError("an inner detail")

    async with (
        SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)]) as studio,
        serve(tmp_path, settings_for(studio.base_url, agents=AGENT), toolbox=broken) as served,
    ):
        for stream in (True, False):
            outcome = await chat(served, "writer", stream=stream)
            assert outcome.status == 500
            assert "its log says where" in outcome.message
            assert "inner detail" not in str(outcome.error)
    assert "inner detail" in caplog.text
