"""How are OpenAI's Responses read and answered?"""

from elbowroom.server.responses.routes import add_response_routes

__all__ = ["add_response_routes"]
