"""What all requests of one server share: what has been found out about models, and who may use them now."""

from dataclasses import dataclass

from elbowroom.agents.admission import QUIET_SECONDS, Admission, Background
from elbowroom.agents.catalog import Catalog
from elbowroom.agents.conversations import LiveTurn, MessageQueue, Recording, RunningTurn, RunningTurns
from elbowroom.agents.prompt import HistoryCounters, LearnedWindows
from elbowroom.agents.request import OnlyUser
from elbowroom.agents.tools import FlushedBefore, ToldBefore, Toolbox
from elbowroom.agents.turn.pruner import PrunerChoice
from elbowroom.agents.turn.recall import Ledger
from elbowroom.context.conversation import Conversations
from elbowroom.context.observations import Observations
from elbowroom.settings.model import ClientTools, CompactionSettings, MemorySettings, ToolOutputSettings
from elbowroom.store import Store


@dataclass(frozen=True, slots=True)
class Shared:
    """One for each server, on its event loop."""

    histories: HistoryCounters
    pruners: PrunerChoice
    windows: LearnedWindows
    ledger: Ledger
    admission: Admission
    background: Background
    toolbox: Toolbox
    store: Store
    told_before: ToldBefore
    recording: Recording
    running: RunningTurns
    only_user: OnlyUser
    flushed_before: FlushedBefore
    queue: MessageQueue
    observations: Observations

    @classmethod
    def over(
        cls,
        store: Store,
        toolbox: Toolbox,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        conversations: Conversations | None = None,
        observations: Observations | None = None,
    ) -> "Shared":
        """Return all of it at its beginning, but for what the store holds; `toolbox` gives agents their tools.

        Nothing of conversations is kept where `conversations` is None.
        """
        histories, windows, admission = HistoryCounters(), LearnedWindows(), Admission()
        return cls(
            histories=histories,
            pruners=PrunerChoice(histories, windows),
            windows=windows,
            ledger=Ledger(store.ledger),
            admission=admission,
            background=Background(admission, quiet_seconds),
            toolbox=toolbox,
            store=store,
            told_before=ToldBefore(),
            recording=Recording(conversations),
            running=RunningTurns(),
            only_user=OnlyUser(),
            flushed_before=FlushedBefore(),
            queue=MessageQueue(conversations),
            observations=observations or Observations(),
        )

    async def aclose(self) -> None:
        """End what is under way in the background, and wait until everything is written."""
        await self.queue.aclose()
        await self.background.aclose()
        self.admission.close()
        await self.ledger.aclose()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings at the moment a request came in; `client_tools` is for raw models, agents have their own.

    `shared` is what this request has in common with all others of the server. `live` keeps what the request is answered
    with, and `running` is the turn that a person may stop; both are None where that is no turn of a conversation: a
    task, an agent that another one asks.
    """

    compaction: CompactionSettings
    catalog: Catalog
    client_tools: ClientTools
    tool_output: ToolOutputSettings
    memory: MemorySettings
    shared: Shared
    live: LiveTurn | None = None
    running: RunningTurn | None = None
