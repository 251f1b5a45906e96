"""How is an agent run? The only package that knows the SDK's Runner."""

from elbowroom.agents.run.run import run_agent

__all__ = ["run_agent"]
