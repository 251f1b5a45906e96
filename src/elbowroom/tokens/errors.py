"""The errors of counting: a model's files that cannot be read, and chat templates that give no prompt.

    ElbowroomError
    └── TokenizerError             500  the model's own files give no exact count
        ├── UnreadableModelFile    500  missing, truncated, damaged, hostile, or not a model at all
        ├── UnsupportedTokenizer   500  sound, but of a kind that elbowroom does not know
        └── TokenizerFailed        500  the tokenizer's library gave up on a text

The first two name the file. After a `TokenizerError` another way of counting may still work.
"""

from elbowroom.errors import ElbowroomError, RequestError


class TokenizerError(ElbowroomError):
    """The model's own files cannot tell how it cuts text into tokens."""

    code = "tokenizer_unavailable"


class UnreadableModelFile(TokenizerError):
    """A model's file cannot be read: the message names the file, what is wrong with it and what to do."""

    code = "unreadable_model_file"


class UnsupportedTokenizer(TokenizerError):
    """The model cuts text in a way that is not known here. The message names it; nothing was guessed."""

    code = "unsupported_tokenizer"


class TokenizerFailed(TokenizerError):
    """The library that cuts text into tokens gave up on a text, by a panic."""

    code = "tokenizer_failed"


class TemplateFailed(ElbowroomError):
    """The model's chat template gives no prompt for these messages; `template` names it, `reason` says why."""

    code = "chat_template_failed"
    sentence = "The chat template of {template} cannot be used: {reason}"

    def __init__(self, template: str, reason: str) -> None:
        super().__init__(self.sentence.format(template=template, reason=reason))
        self.template = template
        self.reason = reason


class TemplateRefused(TemplateFailed):
    """The template itself refuses these messages; `reason` is what it says about them."""

    code = "chat_template_refused"
    sentence = "The chat template of {template} refuses these messages: {reason}"


class TemplateOverran(TemplateFailed):
    """The template was stopped because it went past a limit; no honest template comes near one."""

    code = "chat_template_overran"
    sentence = "The chat template of {template} was stopped: {reason}"


class ConversationNotContinuable(RequestError):
    """The history ends in a way that the engine neither answers nor continues."""

    code = "conversation_not_continuable"
    param = "messages"
