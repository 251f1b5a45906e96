"""Lets LM Studio's websocket take its time, so that a loaded machine does not turn exact counts into estimates."""

import pytest

from elbowroom.providers.lmstudio import rpc as lmstudio_rpc

PATIENT = lmstudio_rpc.Patience(connect=60.0, answer=60.0)


def wait_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers that start from now on wait a minute for each count."""
    monkeypatch.setattr(lmstudio_rpc, "Patience", lambda: PATIENT)
