"""elbowroom: an OpenAI-compatible server for local models that never silently loses context."""

__version__ = "0.1.0"
