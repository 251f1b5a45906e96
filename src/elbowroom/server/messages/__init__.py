"""How are Anthropic's Messages read and answered?"""

from elbowroom.server.messages.diagnostics import Diagnoses
from elbowroom.server.messages.routes import DIAGNOSES, add_message_routes

__all__ = ["DIAGNOSES", "Diagnoses", "add_message_routes"]
