"""What coding agents were recorded to send, word for word in their headers and with masked words in their bodies."""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import MODEL
from coding_task import said
from serving import serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

BESIDE_THE_REPOSITORY: Final = Path(__file__).parents[4] / "shared" / "data"
RECORDED: Final = Path(os.environ.get("ELBOWROOM_TEST_DATA", BESIDE_THE_REPOSITORY)) / "agent_clients"
FILES: Final = ("claude_code", "codex", "opencode")
WINDOWS: Final = (16_384, 32_768)
ANSWER: Final = "The ferry leaves from the ninth pier."
OF_A_CONNECTION: Final = ("host", "content-length", "connection", "accept-encoding", "transfer-encoding")

pytestmark = pytest.mark.skipif(not RECORDED.exists(), reason="the recorded requests are not part of the repository")


def recorded(name: str) -> list[dict[str, Any]]:
    """Return the requests of a client."""
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", FILES)
async def test_recorded_requests_are_answered(tmp_path: Path, name: str, window: int) -> None:
    """Each is answered as the client asked for it, in a window of 16K too, and no prompt reaches the window."""
    loaded = SimulatedModel(MODEL, loaded_context_length=window)
    async with (
        SimulatedLMStudio([loaded], on_request=lambda _: said(ANSWER)) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        for request in recorded(name):
            headers = {key: value for key, value in request["headers"].items() if key.lower() not in OF_A_CONNECTION}
            body = {**request["body"], "model": MODEL}
            async with served.http.post(served.url + request["path"], json=body, headers=headers) as response:
                text = await response.text()
                assert response.status == 200, text
            assert ANSWER in text
            assert "event: error" not in text
        assert all(chat.fitted for chat in studio.chats)
