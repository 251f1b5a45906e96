"""What can go wrong with a chat template, told apart by who is to blame.

    TemplateFailed             500  the template cannot be read, or breaks on these messages
    ├── TemplateRefused        500  it looked at the messages and said no, in its own words
    └── TemplateOverran        500  it took too long, too much memory, or wrote too much: broken or hostile
    ConversationNotContinuable 400  no engine continues an assistant message that holds tool calls

All name the template. A counter that meets a `TemplateFailed` has another way of counting to fall back to.
"""

from __future__ import annotations

from elbowroom.errors import ElbowroomError, RequestError


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
