"""Programs of other origins that are paired with elbowroom: how they are, and what only they and its own page may."""

from elbowroom.server.pairing.doctor import add_doctor_route
from elbowroom.server.pairing.routes import add_pairing_routes
from elbowroom.server.pairing.vault import add_vault_routes

__all__ = ["add_doctor_route", "add_pairing_routes", "add_vault_routes"]
