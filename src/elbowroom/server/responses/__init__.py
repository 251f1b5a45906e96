"""How are OpenAI's Responses and its conversations read and answered?"""

from elbowroom.server.responses.background import BACKGROUND, BackgroundResponses
from elbowroom.server.responses.conversations import add_item_routes
from elbowroom.server.responses.routes import add_response_routes

__all__ = ["BACKGROUND", "BackgroundResponses", "add_item_routes", "add_response_routes"]
