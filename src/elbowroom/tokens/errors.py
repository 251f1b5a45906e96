"""What can go wrong between a model's file on disk and an exact count.

    ElbowroomError
    └── TokenizerError             500  the model's own files give no exact count
        ├── UnreadableModelFile    500  missing, truncated, damaged, hostile, or not a model at all
        └── UnsupportedTokenizer   500  sound, but of a kind that elbowroom does not know

Both name the file. Whoever asked for the count can fall back to another way of counting on `TokenizerError`.
"""

from elbowroom.errors import ElbowroomError


class TokenizerError(ElbowroomError):
    """The model's own files cannot tell how it cuts text into tokens."""

    code = "tokenizer_unavailable"


class UnreadableModelFile(TokenizerError):
    """A model's file cannot be read: the message names the file, what is wrong with it and what to do."""

    code = "unreadable_model_file"


class UnsupportedTokenizer(TokenizerError):
    """The model cuts text in a way that is not known here. The message names it; nothing was guessed."""

    code = "unsupported_tokenizer"
