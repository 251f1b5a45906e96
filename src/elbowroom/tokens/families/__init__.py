"""How many tokens is it where only the model's family is known?"""

from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.families import Family, Format, family_of

__all__ = ["Family", "FamilyCounter", "Format", "family_of"]
