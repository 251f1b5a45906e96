"""How do servers that share a database get along? What they ask each other, and what each holds of models' windows."""

from elbowroom.store.sharing.servers import Together

__all__ = ["Together"]
