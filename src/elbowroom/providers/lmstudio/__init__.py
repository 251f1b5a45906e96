"""How is LM Studio asked for models, windows, counts and answers?"""

from elbowroom.providers.lmstudio.files import find_home
from elbowroom.providers.lmstudio.provider import LMStudio, find_model, find_owner, windows_in_list

__all__ = ["LMStudio", "find_home", "find_model", "find_owner", "windows_in_list"]
