"""Orders of chat programs beside a conversation, in the form that Open WebUI gives them."""

from typing import Any, Final

import pytest

HEAD: Final = (
    "### Task:\nFind a title of two to four words for the chat below.\n### Guidelines:\n"
    "- Write in the language of the chat, without quotation marks.\n- Give nothing but the JSON object.\n"
    '### Output:\nJSON format: { "title": "the title" }\n### Chat History:\n<chat_history>'
)
FOOT: Final = "</chat_history>\nRemember: one JSON object, and not a word beside it."
TITLE: Final = '{ "title": "Ferry Log" }'


def told(exchanges: int) -> str:
    """Return a conversation as Open WebUI writes it into its orders: so many exchanges of about 60 tokens."""
    return "".join(
        f"\nUSER: What was noted on crossing {number}?\n"
        f"ASSISTANT: On crossing {number} the sea was calm, the boat was half full and the engine ran well. "
        "The harbour was reached in time, and nobody was left behind on the pier."
        for number in range(exchanges)
    )


def title_order(history: str) -> str:
    """Return the order for a title with this history in it."""
    return f"{HEAD}{history}\n{FOOT}"


def title_body(exchanges: int, *, model: str = "writer", **fields: Any) -> dict[str, Any]:
    """Return the body of a request for a title, which is not streamed."""
    message = {"role": "user", "content": title_order(told(exchanges))}
    return {"model": model, "messages": [message], "stream": False, "max_tokens": 1000, **fields}


def wait_less_for_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks wait a moment for the chat that they may come before, not as long as real clients need."""
    monkeypatch.setattr("elbowroom.agents.admission.admission.TASK_PATIENCE", 0.02)
