"""What all requests of one server share: what has been found out about models, and who may use them now."""

from dataclasses import dataclass

from elbowroom.agents.admission import Admission
from elbowroom.agents.background import QUIET_SECONDS, Background
from elbowroom.agents.caller import OnlyUser
from elbowroom.agents.flush_cycles import FlushedBefore
from elbowroom.agents.history_counter import HistoryCounters
from elbowroom.agents.learned_windows import LearnedWindows
from elbowroom.agents.ledger import Ledger
from elbowroom.agents.message_queue import MessageQueue
from elbowroom.agents.own_tool import Toolbox
from elbowroom.agents.pruner_choice import PrunerChoice
from elbowroom.agents.recording import Recording
from elbowroom.agents.running_turns import RunningTurns
from elbowroom.agents.told_memories import ToldBefore
from elbowroom.context.conversation import Conversations
from elbowroom.context.observations import Observations
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
