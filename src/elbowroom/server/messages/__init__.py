"""How are Anthropic's Messages read and answered?"""

from elbowroom.server.messages.routes import add_message_routes

__all__ = ["add_message_routes"]
