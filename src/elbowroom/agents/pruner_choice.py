"""Which model prunes a conversation: its own, or the one that the settings name, as long as that can be had."""

import logging
from dataclasses import replace
from typing import Protocol

from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.gate import Gate
from elbowroom.agents.history_counter import HistoryCounter, HistoryCounters
from elbowroom.agents.learned_windows import LearnedWindows
from elbowroom.agents.pruning_agent import Conversation, LearnedLimits, PruningAgent
from elbowroom.context.prune_order import Wishes
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
SAME = "same"


class PruningSettings(Protocol):
    """What is read of `[compaction]` here."""

    @property
    def pruning_agent(self) -> str:
        """The agent's id or name; `same` for the conversation's own."""

    @property
    def model(self) -> str:
        """Another model of that agent's provider; empty for the agent's own."""

    @property
    def summary_prompt(self) -> str:
        """What replaces the default order about the summary."""

    @property
    def summary_directives(self) -> tuple[str, ...]:
        """What is added to it."""

    @property
    def retain_prompt(self) -> str:
        """What replaces the default order about what to retain."""

    @property
    def retain_directives(self) -> tuple[str, ...]:
        """What is added to it."""


def wishes_of(settings: PruningSettings) -> Wishes:
    """Return what the person wants the pruning agent to be told."""
    return Wishes(
        settings.summary_prompt,
        tuple(settings.summary_directives),
        settings.retain_prompt,
        tuple(settings.retain_directives),
    )


class PrunerChoice:
    """Chooses pruning agents, and remembers what they have taught and which were complained about.

    One for each event loop; settings and catalog come with each question, since both change while the server runs.
    """

    def __init__(self, histories: HistoryCounters, windows: LearnedWindows | None = None) -> None:
        self._histories = histories
        self._learned = LearnedLimits(windows=windows or LearnedWindows())
        self._complaints: set[str] = set()

    async def choose(
        self,
        settings: PruningSettings,
        catalog: Catalog,
        target: Target,
        info: ModelInfo,
        conversation: Conversation,
        history: HistoryCounter,
        window: int,
        gate: Gate,
    ) -> PruningAgent:
        """Return the pruning agent of a conversation: it is about to be sent to `info`, `history` counts for it.

        `window` is the conversation's, in tokens; the pruning agent's requests go through the `gate`. Where the agent
        of the settings cannot be had, the conversation's own model prunes, and the log says so once; the client never
        hears of it.
        """
        try:
            pruner = await self._target(settings, catalog, target)
            if (pruner.provider.id, pruner.model) != (target.provider.id, target.model) or pruner.agent is not None:
                return await self._other(pruner, window, gate)
        except ElbowroomError as error:
            self._complain(settings.pruning_agent, error)
        return PruningAgent(
            target.provider, info, history, gate, window=window, learned=self._learned, conversation=conversation
        )

    async def _target(self, settings: PruningSettings, catalog: Catalog, target: Target) -> Target:
        """Return what is to prune; without an agent where it is the conversation's own that does."""
        is_own = settings.pruning_agent == SAME or (
            target.agent is not None and settings.pruning_agent in (target.agent.id, target.agent.display_name)
        )
        pruner = replace(target, agent=None) if is_own else await catalog.resolve(settings.pruning_agent)
        return replace(pruner, model=settings.model) if settings.model else pruner

    async def _other(self, pruner: Target, conversation_window: int, gate: Gate) -> PruningAgent:
        """Return another agent or model. Its window is the loaded one, else the largest that is known of.

        Where nothing is known it is taken to be the conversation's, until an overflow teaches better.
        """
        info = await pruner.provider.ready(pruner.model)
        history = await self._histories.of(pruner.provider, info, {})
        return PruningAgent(
            pruner.provider,
            info,
            history,
            gate,
            window=info.loaded_context or info.max_context or conversation_window,
            learned=self._learned,
            instructions=pruner.agent.instructions if pruner.agent else "",
            sampling=pruner.agent.sampling.as_request_fields() if pruner.agent else {},
        )

    def _complain(self, name: str, error: ElbowroomError) -> None:
        complaint = f"{name}: {error.message}"
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            log.warning(
                "The pruning agent %s cannot be had, so each conversation's own model prunes it: %s",
                name,
                error.message,
            )
