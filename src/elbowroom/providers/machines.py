"""Several machines under one provider's name: their models together, and which of them can be asked now.

A machine that fails is left alone for a while, longer each time, and found again by a look at its list of models.
Which of several machines a request goes to is decided in `agents.admission`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from elbowroom.errors import ElbowroomError, ModelNotFound, UpstreamError, UpstreamRejected, UpstreamTimeout
from elbowroom.providers.base import ModelInfo, ModelManagement, PassedAnswer, Provider, SlotFiles, StreamEvent
from elbowroom.providers.lmstudio import find_model
from elbowroom.providers.machine_management import ManagedMachines
from elbowroom.tokens.counter import TokenCounter

LISTING_SECONDS: Final = 5.0
"""A machine that takes longer to list its models has failed."""
PATIENCE_SECONDS: Final = 0.8
"""How long a chat waits for the list of one machine while another one has answered."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
MODELS_KEPT: Final = 64
"""Models whose troubles are kept for one machine: where it does not list its models, a client may name any."""
OWN_FAULTS: Final = frozenset({400, 404, 409, 413, 415, 422})
"""Statuses with which any machine would refuse the same request."""


class Trouble(NamedTuple):
    """The last failure of a machine, how many there were in a row, and until when it is left alone."""

    error: ElbowroomError
    failures: int
    until: float


class Machine:
    """One of a provider's servers. Its troubles are those with one of its models, or, under no name, with itself."""

    def __init__(self, provider: Provider, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self.address = address
        self.listed: Sequence[ModelInfo] = ()
        self._clock = clock
        self._troubles: dict[str, Trouble] = {}
        self._looking: asyncio.Task[bool] | None = None
        self._looking_since = 0.0

    @property
    def id(self) -> str:
        """Return its name: the provider's id, `@` and its address, or the id of a provider that joined another."""
        return self.provider.id

    def trouble(self, model: str = "") -> Trouble | None:
        """Return the trouble with this model, or with the machine itself; None where its last answer was good."""
        return self._troubles.get("") or self._troubles.get(model)

    def is_left_alone(self, model: str = "") -> bool:
        """Tell whether it is too early to ask it again."""
        trouble = self.trouble(model)
        return trouble is not None and self._clock() < trouble.until

    def failed(self, error: ElbowroomError, model: str = "") -> None:
        """Leave it, or this model of it, alone: for a second, and twice as long each time up to a minute."""
        before = self._troubles.get(model)
        if before is not None and self._clock() < before.until:
            return  # several requests have failed together
        if len(self._troubles) > MODELS_KEPT:
            self._troubles.clear()
        failures = before.failures + 1 if before is not None else 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
        self._troubles[model] = Trouble(error, failures, self._clock() + pause)

    def answered(self, model: str = "") -> None:
        """Forget the troubles: it has answered."""
        self._troubles.pop("", None)
        self._troubles.pop(model, None)

    @property
    def is_up(self) -> bool:
        """Tell whether its last list of models was good, and the next one does not take too long."""
        is_slow = self._looking is not None and self._clock() - self._looking_since >= PATIENCE_SECONDS
        return self.trouble() is None and not is_slow

    def look(self) -> "asyncio.Task[bool]":
        """See whether it answers, and what it has by now; the task returns whether it does, and never raises."""
        if self._looking is None:
            self._looking, self._looking_since = asyncio.create_task(self._list()), self._clock()
        return self._looking

    async def _list(self) -> bool:
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                self.listed = await self.provider.models()
        except ElbowroomError as error:
            self.failed(error)
        except TimeoutError:
            self.failed(UpstreamTimeout(f"{self.id!r} did not list its models in {LISTING_SECONDS:g} seconds."))
        else:
            self.answered()
        finally:
            self._looking = None
        return self.trouble() is None

    async def aclose(self) -> None:
        """Stop looking, and close what speaks to it."""
        if self._looking is not None:
            looking = self._looking
            looking.cancel()
            await asyncio.wait([looking])
        await self.provider.aclose()


@dataclass(frozen=True, slots=True)
class Serving:
    """A machine that can be asked for a model, and the model as it is there."""

    machine: Machine
    info: ModelInfo


class Machines:
    """A provider of several machines. Used as one of them, it is the first that serves the model.

    A model that several have is shown once, with the smallest window in which it is loaded.
    """

    def __init__(self, provider_id: str, machines: Sequence[Machine]) -> None:
        self.id = provider_id
        self.machines = machines
        self.manages_context = machines[0].provider.manages_context
        self.has_own_tool_format = machines[0].provider.has_own_tool_format
        managed = {one.id: one.provider.management for one in machines if one.provider.management is not None}
        self.slot_files: SlotFiles | None = None  # a step is bound to one machine, which may have some
        self.management: ModelManagement | None = ManagedMachines(managed, self._is_up) if managed else None

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models of all machines that answer; raises the first one's failure where none does."""
        return merged(self.id, await self._listed())

    async def serving(self, model: str, *, embeds: bool = False) -> list[Serving]:
        """Return the machines that can be asked for this model now, those left alone only where there are no others.

        Raises ModelNotFound, or a machine's failure where none answers.
        """
        listed = await self._listed()
        serving = self.known(model, embeds=embeds)
        if not serving:
            raise ModelNotFound(self._not_found(model, listed))
        return serving

    def known(self, model: str, *, embeds: bool = False) -> list[Serving]:
        """Return the same as `serving` by what the machines have listed last, and look whether others are back."""
        self.look()
        up = [machine for machine in self.machines if machine.is_up]
        there = [(machine, _named(machine.listed, model)) for machine in up]
        serving = [Serving(machine, info) for machine, info in there if info is not None]
        if not serving and not self.manages_context:  # such a server may know more models than it lists
            serving = [Serving(machine, ModelInfo(model, machine.id, model)) for machine in up]
        serving = [one for one in serving if embeds or one.info.kind != "embedding"]
        return [one for one in serving if not one.machine.is_left_alone(one.info.id)] or serving

    async def ready(self, model: str) -> ModelInfo:
        """Return the model as one machine has it; one that has it loaded goes first, with the smallest window."""
        serving = await self.serving(model)
        serving.sort(key=lambda one: (one.info.loaded_context is None, one.info.loaded_context or 0))
        for place, one in enumerate(serving, start=1):
            try:
                return await one.machine.provider.ready(model)
            except UpstreamError as error:
                one.machine.failed(error, model)
                if place == len(serving):
                    raise
        raise AssertionError  # serving is never empty

    def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request to the machine that `info` is of, and yield its events."""
        return self._machine_of(info).provider.stream(body, info)

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Send a request unchanged to a machine that has its model."""
        model = str(body.get("model"))
        return self._machine_of(ModelInfo(model, self.id, model)).provider.passed(path, body)

    async def overflow_policy(self, model: str) -> str | None:
        """Return what the engine of a machine that has the model does with a prompt that is too long."""
        return await self._machine_of(ModelInfo(model, self.id, model)).provider.overflow_policy(model)

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the counter of a machine that has this model."""
        return await self._machine_of(info).provider.counter(info)

    def look(self) -> None:
        """See in the background whether machines that have failed answer again, unless it is too early."""
        for machine in self.machines:
            if machine.trouble() is not None and not machine.is_left_alone():
                _ = machine.look()

    async def look_at_all(self) -> None:
        """See which machines answer, those that are left alone too."""
        await _listings(self.machines)

    async def aclose(self) -> None:
        """Close all machines."""
        for machine in self.machines:
            await machine.aclose()

    async def _listed(self) -> dict[Machine, Sequence[ModelInfo]]:
        """Return what each machine lists that answers; one that has failed is waited for only where no other does."""
        self.look()
        listed = await _listings([machine for machine in self.machines if machine.is_up])
        listed = listed or await _listings(self.machines)
        if not listed:
            raise next(trouble.error for machine in self.machines if (trouble := machine.trouble()) is not None)
        return listed

    def _machine_of(self, info: ModelInfo) -> Machine:
        """Return the machine that `info` names, else the first that has the model and answers, or at least one."""
        named = [machine for machine in self.machines if machine.id == info.provider]
        having = [machine for machine in self.machines if _named(machine.listed, info.id) is not None]
        sound = [machine for machine in (*having, *self.machines) if not machine.is_left_alone(info.id)]
        return next(iter((*named, *sound, *self.machines)))

    def _is_up(self, machine_id: str) -> bool:
        return all(machine.is_up for machine in self.machines if machine.id == machine_id)

    def _not_found(self, model: str, listed: Mapping[Machine, Sequence[ModelInfo]]) -> str:
        there = ", ".join(info.id for info in merged(self.id, listed) if info.kind != "embedding") or "none"
        away = ", ".join(machine.id for machine in self.machines if machine not in listed)
        unknown = f" Not known now are the models of {away}; `elbowroom status` says why." if away else ""
        return f"No machine of {self.id!r} has a model {model!r}. They have: {there}.{unknown}"


async def _listings(machines: Sequence[Machine]) -> dict[Machine, Sequence[ModelInfo]]:
    """Return the models of the machines that answer, soon after the first of them has."""
    looks = {machine: machine.look() for machine in machines}
    waiting = set(looks.values())
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if any(not look.cancelled() and look.result() for look in done):
            break
    if waiting:
        await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
    return {machine: machine.listed for machine, look in looks.items() if look.done() and look.result()}


def _named(infos: Sequence[ModelInfo], model: str) -> ModelInfo | None:
    return find_model(infos, model) or find_model(infos, f"{model}:latest")  # as Ollama completes a name


def merged(provider_id: str, listed: Mapping[Machine, Sequence[ModelInfo]]) -> list[ModelInfo]:
    """Return each model once, as the machine has it that has loaded it with the smallest window."""
    rows: dict[str, list[ModelInfo]] = {}
    for infos in listed.values():
        for info in infos:
            rows.setdefault(info.id, []).append(info)
    return [_as_one(provider_id, infos) for infos in rows.values()]


def _as_one(provider_id: str, infos: Sequence[ModelInfo]) -> ModelInfo:
    loaded = [info for info in infos if info.loaded_context is not None]
    smallest = min(loaded, key=lambda info: info.loaded_context or 0, default=infos[0])
    windows: dict[str, int] = {}
    for instance, window in ((name, window) for info in loaded for name, window in (info.instances or {}).items()):
        windows[instance] = min(window, windows.get(instance, window))
    return replace(smallest, provider=provider_id, instances=windows if smallest.instances is not None else None)


def is_fault_of_machine(error: ElbowroomError) -> bool:
    """Tell whether another machine may answer what has failed with this error."""
    if isinstance(error, UpstreamRejected):
        return error.status not in OWN_FAULTS
    return isinstance(error, UpstreamError)
