"""How is the study of pruning agents begun, watched and stopped?"""

from elbowroom.server.quality.routes import add_quality_routes

__all__ = ["add_quality_routes"]
