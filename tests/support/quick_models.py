"""Takes models for quick, so that a test does not wait while a prompt that was left may be being read yet."""

import pytest

QUICK = 20_000.0
"""Tokens a second."""


def take_models_for_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers believe, until they know better, that prompts are read in no time."""
    monkeypatch.setattr("elbowroom.agents.admission.pool.DEFAULT_RATE", QUICK)
