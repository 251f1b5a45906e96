"""How does a chat template render a prompt?"""

from elbowroom.tokens.templates.known import KNOWN_TEMPLATES
from elbowroom.tokens.templates.messages import (
    Capabilities,
    Message,
    arguments_as_object,
    canonical_message,
    canonical_messages,
    canonical_tools,
    fit_messages,
)
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest
from elbowroom.tokens.templates.template import ChatTemplate, environment

__all__ = [
    "KNOWN_TEMPLATES",
    "Capabilities",
    "ChatPrompt",
    "ChatRequest",
    "ChatTemplate",
    "Message",
    "arguments_as_object",
    "canonical_message",
    "canonical_messages",
    "canonical_tools",
    "environment",
    "fit_messages",
]
