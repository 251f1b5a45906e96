"""Several machines as one provider: what they have together, who is left alone, and who is found again."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from elbowroom.errors import ModelNotFound, UpstreamRejected, UpstreamUnreachable
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.machines import Machine, Machines, is_fault_of_machine

DOWN = UpstreamUnreachable("Nothing answers there.")


class Listing:
    """A provider that lists models, fails, or says nothing until it is let go."""

    manages_context = True
    has_own_tool_format = False
    management = None

    def __init__(self, name: str, *models: ModelInfo) -> None:
        self.id = name
        self.answer: Sequence[ModelInfo] | UpstreamUnreachable = models
        self.hangs: asyncio.Event | None = None
        self.asked = 0

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models, or raise."""
        self.asked += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if isinstance(self.answer, UpstreamUnreachable):
            raise self.answer
        return self.answer

    async def ready(self, model: str) -> ModelInfo:
        """Return the model."""
        return next(info for info in await self.models() if info.id == model)

    async def aclose(self) -> None:
        """Do nothing."""


class Desk:
    """Machines `one` and `two` with a clock that stands still."""

    def __init__(self, one: Sequence[ModelInfo], two: Sequence[ModelInfo]) -> None:
        self.now = 0.0
        self.listings = [Listing("desk@one", *one), Listing("desk@two", *two)]
        made = [Machine(cast("Provider", each), "http://there", lambda: self.now) for each in self.listings]
        self.whole = Machines("desk", made)
        self.machines = made

    async def serving(self, model: str = "qwen") -> list[str]:
        """Return the ids of the machines that can be asked."""
        return [one.machine.id for one in await self.whole.serving(model)]

    async def settled(self) -> None:
        """Wait for the looks that are under way."""
        for machine in self.machines:
            if machine._looking is not None:
                await machine._looking


def model(name: str, machine: str, window: int | None = None, **fields: Any) -> ModelInfo:
    """Return a model, loaded where it has a window."""
    instances = {name: window} if window else {}
    state: Any = "loaded" if window else "not-loaded"
    return ModelInfo(name, machine, name, state=state, loaded_context=window, instances=instances, **fields)


def desk() -> Desk:
    """Return two machines that have loaded the same model."""
    return Desk([model("qwen", "desk@one", 8192)], [model("qwen", "desk@two", 4096), model("gemma", "desk@two")])


async def test_models_are_merged() -> None:
    """A model that both have is listed once, under the common name, with the smaller window."""
    listed = {info.id: info for info in await desk().whole.models()}
    assert {name: (info.provider, info.loaded_context) for name, info in listed.items()} == {
        "qwen": ("desk", 4096),
        "gemma": ("desk", None),
    }
    assert listed["qwen"].instances == {"qwen": 4096}


async def test_only_machines_that_have_the_model_serve_it() -> None:
    """A model that nobody has is refused with what there is."""
    both = desk()
    assert await both.serving() == ["desk@one", "desk@two"]
    assert await both.serving("gemma") == ["desk@two"]
    with pytest.raises(ModelNotFound, match=r"No machine of 'desk' has a model 'phi'\. They have: qwen, gemma\."):
        await both.serving("phi")


async def test_a_failing_machine_is_left_alone_and_found_again() -> None:
    """It is not asked for a second, then looked at beside other requests, and is back with its first answer."""
    both = desk()
    both.listings[0].answer = DOWN
    assert await both.serving() == ["desk@two"]
    assert await both.serving() == ["desk@two"]
    assert both.listings[0].asked == 1
    both.listings[0].answer = [model("qwen", "desk@one", 8192)]
    both.now = 1.0
    both.whole.look()
    await both.settled()
    assert await both.serving() == ["desk@one", "desk@two"]


async def test_each_failure_in_a_row_doubles_the_pause() -> None:
    """1, 2, 4 seconds and so on, a minute at most; requests that fail together count once."""
    machine = desk().machines[0]
    now = [0.0]
    machine._clock = lambda: now[0]
    pauses = []
    for _ in range(8):
        machine.failed(DOWN)
        machine.failed(DOWN)
        trouble = machine.trouble()
        assert trouble is not None
        pauses.append(trouble.until - now[0])
        now[0] = trouble.until
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    machine.answered()
    assert machine.trouble() is None


async def test_trouble_with_one_model_is_not_trouble_with_another() -> None:
    """A machine on which a model crashes is still asked for others; its list of models does not end that trouble."""
    both = Desk([model("qwen", "desk@one", 8192), model("gemma", "desk@one", 4096)], [model("qwen", "desk@two", 8192)])
    await both.serving()
    both.machines[0].failed(DOWN, "qwen")
    assert await both.serving() == ["desk@two"]
    assert await both.serving("gemma") == ["desk@one"]
    both.now = 1.0
    assert await both.serving() == ["desk@one", "desk@two"]


async def test_where_all_have_failed_all_are_asked_at_once() -> None:
    """Nobody is refused for the sake of a pause; where none answers, the first one's failure is told."""
    both = desk()
    for listing in both.listings:
        listing.answer = DOWN
    with pytest.raises(UpstreamUnreachable, match="Nothing answers there"):
        await both.serving()
    both.listings[1].answer = [model("qwen", "desk@two", 4096)]
    assert await both.serving() == ["desk@two"]


async def test_a_silent_machine_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after another one has answered, the list of the silent one is no longer waited for; it goes on."""
    monkeypatch.setattr("elbowroom.providers.machines.PATIENCE_SECONDS", 0.01)
    both = desk()
    both.listings[0].hangs = asyncio.Event()
    both.machines[0]._clock = asyncio.get_running_loop().time
    assert await both.serving() == ["desk@two"]
    both.listings[0].hangs.set()
    await both.settled()
    assert await both.serving() == ["desk@one", "desk@two"]
    assert both.listings[0].asked == 2


async def test_ready_tries_the_next_machine() -> None:
    """Whoever does not choose has a machine with the model loaded, the smallest window first, or else the next."""
    both = desk()
    assert (await both.whole.ready("qwen")).provider == "desk@two"
    both.listings[1].answer = DOWN
    assert (await both.whole.ready("qwen")).provider == "desk@one"


def test_a_bad_request_is_no_fault_of_the_machine() -> None:
    """What any machine would refuse is not asked elsewhere; a wrong key of one machine is its own."""
    assert not is_fault_of_machine(UpstreamRejected("No.", status=400))
    assert is_fault_of_machine(UpstreamRejected("No.", status=401))
    assert is_fault_of_machine(DOWN)
    assert not is_fault_of_machine(ModelNotFound("No."))
