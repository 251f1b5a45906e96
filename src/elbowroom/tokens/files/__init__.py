"""How are tokenizers read from model files, and texts counted with them?"""

from elbowroom.tokens.files.loading import LoadedModel, TokenizerLoader
from elbowroom.tokens.files.segments import SegmentCounter
from elbowroom.tokens.files.special_tokens import SPLIT_PATTERNS, TokenType
from elbowroom.tokens.files.tokenizer import StreamCounter, Tokenizer, special_token_pattern, whole_characters

__all__ = [
    "SPLIT_PATTERNS",
    "LoadedModel",
    "SegmentCounter",
    "StreamCounter",
    "TokenType",
    "Tokenizer",
    "TokenizerLoader",
    "special_token_pattern",
    "whole_characters",
]
