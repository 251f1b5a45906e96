"""Where the handlers find the simulator they belong to."""

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

STUDIO: web.AppKey["SimulatedLMStudio"] = web.AppKey("studio")
