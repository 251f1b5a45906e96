"""Recovers from failures of an engine in a model step: learns the real window, and decides whether to ask again.

An engine says in many ways that a prompt did not fit: with an error of some wording, with an answer without a word
in it, by crashing, or not at all, by leaving out the middle of the conversation.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.prompt import LEAST_GUESS, LEAST_LESSON, LearnedWindows, PromptSize
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.transcript import Message
from elbowroom.errors import (
    ContextOverflow,
    ElbowroomError,
    EmptyReply,
    MediaRefused,
    ModelUnavailable,
    StreamCut,
    UpstreamError,
    UpstreamRejected,
)
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio import find_model
from elbowroom.store.base import retrieved
from elbowroom.tokens.counter import Truncation, media_in
from elbowroom.tokens.images import images_in

log = logging.getLogger(__name__)
NEAR_EDGE: Final = 0.9
"""The share of the window from which an engine that breaks down over a prompt is taken to have no room for it."""
STALE_SECONDS: Final = 1.0
"""After so many seconds the window is read again before a request."""
POLICY_SECONDS: Final = 0.5  # the client waits for the end of its answer meanwhile
QUIET_SECONDS: Final = 0.5
"""A model that is ready sooner was loaded before."""


@dataclass(slots=True)
class Recovery:
    """Knows the window that the model of one step is loaded with, and reads it again when it may have changed.

    A smaller window goes to `manager`, for this request, and to `windows`, for later ones. `info` is the model as it
    was last seen.
    """

    provider: Provider
    info: ModelInfo
    manager: AgentContextManager
    windows: LearnedWindows
    tell: Sink
    _read_at: float = field(default_factory=time.monotonic)
    _has_resent: bool = False

    async def has_shrunk(self) -> bool:
        """Tell whether the window is smaller than was known; read it again where it was read a while ago.

        Raises ModelUnavailable or ModelNotFound. After other failures to read it the engine may judge.
        """
        before = self.manager.budget.window
        self._use_learned_window()
        if time.monotonic() - self._read_at > STALE_SECONDS:
            try:
                await self._read_again()
            except ModelUnavailable:
                raise
            except UpstreamError as error:
                log.info("The window of %s cannot be read anew: %s", self.info.id, error)
        return self.manager.budget.window < before

    def is_near_edge(self, prompt: int) -> bool:
        """Tell whether a prompt of this size nearly fills the window."""
        return prompt >= NEAR_EDGE * self.manager.budget.window

    async def after(self, failure: ElbowroomError, prompt: int) -> ContextOverflow | None:
        """Return the overflow that a failure before the first word means, None where the prompt may be sent again.

        It may be where the model has another window by now, and once where the model was lost far from the edge of its
        window. Raises the failure, or a newer one, where the step cannot be sent again at all.
        """
        if not self.manager.can_restart:
            overflow = self._learn(failure, prompt)
            raise overflow if overflow is not None else failure
        if not isinstance(failure, ContextOverflow | EmptyReply) and not self._is_breakdown(failure):
            raise failure
        loaded = self.info.loaded_context
        try:
            await self._read_again()
        except ElbowroomError as gone:
            raise gone from failure
        if self.info.loaded_context != loaded:
            log.info("%s has another window now: %s instead of %s.", self.info.id, self.info.loaded_context, loaded)
            return None if self.fits(prompt) else self._overflow(failure, prompt)
        if not self._has_resent and self._may_be_temporary(failure, prompt):
            self._has_resent = True
            log.warning("%s failed; the prompt of %d tokens is sent again: %s", self.info.id, prompt, failure)
            return None
        overflow = self._learn(failure, prompt)
        if overflow is None:
            raise failure
        log.warning("%s refused a prompt of %d tokens: %s", self.info.id, prompt, failure)
        return overflow

    def after_words(self, failure: ElbowroomError, used: int) -> None:
        """Learn from a failure after the first word; `used` are the tokens of prompt and answer till then."""
        if isinstance(failure, ContextOverflow):
            self._learn(failure, used)

    def fits(self, prompt: int) -> bool:
        """Tell whether a prompt of this size needs no compaction in the window as it is known now."""
        budget = self.manager.budget
        return budget.occupied(prompt) < budget.trigger

    async def was_truncated(self, size: PromptSize, usage: Mapping[str, Any] | None) -> bool:
        """Tell whether the engine has silently cut what fits; then the smaller window is learned, the person told.

        Of a prompt that was sent although it may not have fit, the person alone is told.
        """
        window = self.manager.budget.window
        truncation = size.truncation(usage, window)
        if truncation is None or self.windows.counts_differ(self.info, self._said):
            return False
        if size.count.at_most >= window:
            await self._warn(truncation, "It was too long.")
            return False
        loaded = self.info.loaded_context
        with suppress(ElbowroomError):  # the answer is there already
            await self._read_again()
        if self.info.loaded_context == loaded:
            if not self.windows.learn_truncation(self.info, self._said, truncation):
                return False
            self.manager.learn_window(truncation.read)
        if self.windows.is_to_be_told(self.info, self._said):
            await self._warn(truncation, "From now on no more than that is sent to it.")
        return True

    @property
    def _said(self) -> int:
        """Return the window that the model is said to have."""
        return self.info.loaded_context or self.manager.budget.window

    async def _read_again(self) -> None:
        self.info = await ready_model(self.provider, self.info.id, self.tell)
        self._read_at = time.monotonic()
        self._use_learned_window()

    def _use_learned_window(self) -> None:
        """Take over the window that any request has learned, a pruning agent's too."""
        window = self.windows.at_most(self.info, self._said)
        self.manager.use(replace(self.manager.budget, window=window))

    def _may_be_temporary(self, failure: ElbowroomError, prompt: int) -> bool:
        """Tell whether another try may help, as the model may be back or the pool no longer filled by others."""
        if isinstance(failure, ContextOverflow):
            return failure.window is None and prompt < LEAST_GUESS * self.manager.budget.window
        return isinstance(failure, ModelUnavailable | StreamCut) and not self.is_near_edge(prompt)

    def _learn(self, failure: ElbowroomError, prompt: int) -> ContextOverflow | None:
        overflow = self._overflow(failure, prompt)
        if overflow is None:
            return None
        if overflow.window is not None and overflow.window >= LEAST_LESSON * self._said:
            self.windows.learn(self.info, self._said, overflow.window)
            self.manager.learn_window(_usable(overflow, prompt))
        else:
            self.windows.guess(self.info, self._said, prompt)
            self.manager.learn_window(prompt)
        return overflow

    def _overflow(self, failure: ElbowroomError, prompt: int) -> ContextOverflow | None:
        """Return the overflow that a failure is or probably means, None where it means none."""
        if isinstance(failure, ContextOverflow):
            return failure
        if not self.is_near_edge(prompt) or not (isinstance(failure, EmptyReply) or self._is_breakdown(failure)):
            return None
        window = self.manager.budget.window
        message = (
            f"Shorten the conversation, or load the model with a larger context length. {failure.message} This model's "
            f"maximum context length is {window} tokens, and the request takes {prompt} of them."
        )
        return ContextOverflow(message, prompt_tokens=prompt)

    def _is_breakdown(self, failure: ElbowroomError) -> bool:
        """Tell whether the engine failed over the request itself, not the way to it.

        Where the prompt has no pictures, words on them are somebody's that the engine repeats.
        """
        if isinstance(failure, MediaRefused):
            return not media_in(self.manager.history.messages)
        if isinstance(failure, UpstreamRejected):
            return failure.status == 400
        return isinstance(failure, ModelUnavailable | StreamCut) or type(failure) is UpstreamError

    async def _warn(self, truncation: Truncation, consequence: str) -> None:
        try:
            async with asyncio.timeout(POLICY_SECONDS):
                policy = await self.provider.overflow_policy(self.info.id)
        except TimeoutError:
            policy = None
        known = f" (its overflow policy is {policy})" if policy else ""
        text = (
            f"The model was sent {truncation.counted:,} tokens and read only {truncation.read:,}: the middle of the "
            f"conversation was cut out silently{known}. {consequence} "
            "Load it with a larger context length to have more."
        )
        log.warning("%s: %s", self.info.id, text)
        line = f"Load the model with more context: it read only {truncation.read:,} of {truncation.counted:,} tokens."
        await self.tell([Notice("truncated", text), Notice("truncated", line)])


def _usable(overflow: ContextOverflow, prompt: int) -> int:
    """Return the usable window in tokens as counted here; the refused prompt has `prompt` of these."""
    if overflow.window is None:
        return prompt
    if overflow.prompt_tokens is None or overflow.prompt_tokens <= prompt:
        return overflow.window
    return max(1, overflow.window * prompt // overflow.prompt_tokens)


async def ready_model(provider: Provider, model: str, tell: Sink) -> ModelInfo:
    """Return the model, loaded, with the window that it has now. Raises what the provider's `ready` raises."""
    ready = asyncio.ensure_future(provider.ready(model))
    ready.add_done_callback(retrieved)
    try:
        done, _ = await asyncio.wait([ready], timeout=QUIET_SECONDS)
        if done or not await _is_loading(provider, model):
            return await ready
        await tell([Notice("loading", "Loading model...", is_done=False)])
        try:
            info = await ready
        except ElbowroomError:
            await tell([Notice("loaded", "The model could not be loaded.")])
            raise
        await tell([Notice("loaded", "Model loaded.")])
        return info
    finally:
        ready.cancel()


async def _is_loading(provider: Provider, model: str) -> bool:
    """Tell whether the model is there and is not loaded; a provider that does not answer is not loading it."""
    try:
        info = find_model(await provider.models(), model)
    except ElbowroomError:
        return False
    return info is not None and info.loaded_context is None


def shows_in_vain(messages: Sequence[Message], info: ModelInfo) -> bool:
    """Tell whether the last message has an image and its provider says that the model sees none."""
    is_told = info.instances is not None  # LM Studio's lists say what a model can do
    sees = info.kind == "vlm" or "vision" in info.capabilities
    content = messages[-1].get("content") if is_told and not sees and messages else None
    return isinstance(content, list) and any(True for _ in images_in(messages[-1:]))
