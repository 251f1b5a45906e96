"""Which models clients see, and what stands behind each name."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from elbowroom.agents import catalog
from elbowroom.agents.catalog import Catalog
from elbowroom.errors import ElbowroomError, ModelNotFound, UpstreamTimeout, UpstreamUnreachable
from elbowroom.providers.base import ModelInfo, ModelManagement, PassedAnswer, SlotFiles, StreamEvent
from elbowroom.settings.model import AgentSettings
from elbowroom.tokens.counter import TokenCounter


@dataclass(frozen=True)
class Shelf:
    """A provider that has models, or is down where it has none."""

    id: str
    names: Sequence[str] | None
    manages_context: bool = True
    has_own_tool_format: bool = False
    management: ModelManagement | None = None
    slot_files: SlotFiles | None = None

    async def models(self) -> Sequence[ModelInfo]:
        if self.names is None:
            raise UpstreamUnreachable(f"{self.id} does not answer.")
        return [ModelInfo(id=name, provider=self.id, name=name.title()) for name in self.names]

    async def ready(self, model: str) -> ModelInfo:
        return next(info for info in await self.models() if info.id == model)

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        yield []

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Not asked for here."""
        raise NotImplementedError

    async def overflow_policy(self, model: str) -> str | None:
        """Tell nothing."""
        return None

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Count by name."""
        return TokenCounter(info.id, None)

    async def aclose(self) -> None:
        """Nothing is open."""


def agent(agent_id: str, model: str = "tiny", **fields: Any) -> AgentSettings:
    """Return an agent of the provider `lm`."""
    return AgentSettings(id=agent_id, model=model, provider="lm", **fields)


def catalog_of(*agents: AgentSettings, **shelves: Sequence[str] | None) -> Catalog:
    """Return the catalog of these agents and of providers with these models."""
    return Catalog(agents, {name: Shelf(name, models) for name, models in shelves.items()})


@pytest.mark.parametrize(
    ("name", "provider", "model", "by"),
    [
        ("writer", "lm", "tiny", "writer"),
        ("The Writer", "lm", "tiny", "writer"),
        ("the writer", "lm", "tiny", "writer"),
        ("lm/tiny", "lm", "tiny", None),
        ("lm/qwen/big", "lm", "qwen/big", None),
        ("qwen/big", "lm", "qwen/big", None),
        ("tiny", "lm", "tiny", None),
        ("other/x", "other", "x", None),
    ],
)
async def test_names(name: str, provider: str, model: str, by: str | None) -> None:
    """An agent goes by id and name, a raw model by provider and id, or by its id alone."""
    catalog = catalog_of(agent("writer", name="The Writer"), lm=["tiny", "qwen/big"], other=["x"])
    target = await catalog.resolve(name)
    assert (target.provider.id, target.model) == (provider, model)
    assert (target.agent.id if target.agent else None) == by


async def test_an_agents_id_goes_before_another_agents_name() -> None:
    """Where one agent's name is another's id, the id wins."""
    catalog = catalog_of(agent("first", name="second"), agent("second", name="x"), lm=["tiny"])
    target = await catalog.resolve("second")
    assert target.agent is not None
    assert target.agent.id == "second"


async def test_an_agent_goes_before_a_raw_model_of_its_name() -> None:
    """An agent may be called like a model and then answers in its place."""
    target = await catalog_of(agent("tiny", model="other"), lm=["tiny", "other"]).resolve("tiny")
    assert target.model == "other"


@pytest.mark.parametrize("name", ["retired", "nope", "lm", "lm/", "/tiny", "nowhere/tiny", "TINY", "shared", ""])
async def test_names_that_mean_nothing(name: str) -> None:
    """A disabled agent, a wrong name and an ambiguous one are refused with the list of what there is."""
    catalog = catalog_of(agent("retired", enabled=False), lm=["tiny", "shared"], other=["shared"])
    with pytest.raises(ModelNotFound, match="lm/tiny, lm/shared, other/shared"):
        await catalog.resolve(name)


async def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """A misspelt id of an agent or a model, in whatever case, is answered with the name that was meant."""
    catalog = catalog_of(agent("writer", name="The Writer"), lm=["qwen2.5-7b-instruct"])
    for wrong, meant in {
        "Qwen2.5-7B-Instruct": "lm/qwen2.5-7b-instruct",
        "lmm/qwen2.5-7b-instruct": "lm/qwen2.5-7b-instruct",
        "wirter": "writer",
    }.items():
        with pytest.raises(ModelNotFound, match=rf"no model '{wrong}' \(did you mean {meant}\?\)"):
            await catalog.resolve(wrong)


async def test_a_name_that_two_providers_have_is_answered_with_both() -> None:
    """A bare id that several providers list is refused, with the ids that say which is meant."""
    with pytest.raises(ModelNotFound, match="may mean lm/shared or other/shared: name one of them"):
        await catalog_of(lm=["shared"], other=["shared"]).resolve("shared")


async def test_a_loaded_instance_goes_by_its_own_id() -> None:
    """LM Studio names a second instance of a model `tiny:2`; a request may do so as well."""

    class Twice(Shelf):
        async def models(self) -> Sequence[ModelInfo]:
            return [ModelInfo(id="tiny", provider="lm", name="Tiny", instances={"tiny": 4096, "tiny:2": 8192})]

    target = await Catalog([], {"lm": Twice("lm", [])}).resolve("tiny:2")
    assert (target.name, target.model) == ("lm/tiny:2", "tiny:2")


async def test_a_silent_provider_is_named_in_a_refusal() -> None:
    """While providers do not answer, a refusal says that their models are not known now, and who tells why."""
    with pytest.raises(ModelNotFound, match="are the models of 'off', 'away'; `elbowroom status` says why"):
        await catalog_of(off=None, away=None, lm=["tiny"]).resolve("nope")


async def test_a_long_list_is_cut() -> None:
    """A refusal names twenty models and counts the rest."""
    with pytest.raises(ModelNotFound, match="lm/m19 and 5 more"):
        await catalog_of(lm=[f"m{number}" for number in range(25)]).resolve("nope")


async def test_no_provider_answers() -> None:
    """While none answers, a bare name is not wrong but unknown: the provider's own words are raised."""
    with pytest.raises(UpstreamUnreachable, match="lm does not answer"):
        await catalog_of(agent("writer"), lm=None).resolve("tiny")


async def test_one_provider_answers() -> None:
    """One that answers is enough to say what there is; one that is down hides nothing of it."""
    catalog = catalog_of(agent("writer"), off=None, lm=["tiny"])
    assert (await catalog.resolve("tiny")).provider.id == "lm"
    with pytest.raises(ModelNotFound, match="writer, lm/tiny"):
        await catalog.resolve("nope")


async def test_no_provider_at_all() -> None:
    """Without providers every name is wrong."""
    with pytest.raises(ModelNotFound, match="none"):
        await catalog_of().resolve("tiny")


async def test_a_mistake_of_ours_is_not_taken_for_an_absent_provider() -> None:
    """Only the errors that providers raise on purpose mean that they are absent."""

    class Broken(Shelf):
        async def models(self) -> Sequence[ModelInfo]:
            raise KeyError("a bug")

    with pytest.raises(KeyError):
        await Catalog([], {"lm": Broken("lm", [])}).rows()
    assert not issubclass(KeyError, ElbowroomError)


async def test_provider_called_like_us() -> None:
    """A provider may have the id that agents have as their owner."""
    catalog = Catalog([AgentSettings(id="w", model="tiny", provider="elbowroom")], {"elbowroom": Shelf("x", ["tiny"])})
    target = await catalog.resolve("tiny")
    assert (target.name, target.agent) == ("elbowroom/tiny", None)


async def test_relayed_targets() -> None:
    """Only raw models of a provider without context management are relayed."""
    providers = {"lm": Shelf("lm", ["tiny"]), "far": Shelf("far", ["big"], manages_context=False)}
    catalog = Catalog([agent("writer")], providers)
    relayed = {name: (await catalog.resolve(name)).is_relay for name in ("writer", "lm/tiny", "far/big")}
    assert relayed == {"writer": False, "lm/tiny": False, "far/big": True}


class Hanging(Shelf):
    """A provider that takes the question and never answers."""

    async def models(self) -> Sequence[ModelInfo]:
        await asyncio.Event().wait()
        return []


async def test_a_provider_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' models are listed after a moment; with nobody else the silence is said."""
    monkeypatch.setattr(catalog, "LISTING_SECONDS", 0.05)
    both = Catalog([], {"mute": Hanging("mute", None), "lm": Shelf("lm", ["tiny"])})
    assert [row.id for row in await both.rows()] == ["lm/tiny"]
    with pytest.raises(UpstreamTimeout, match="'mute' did not list its models"):
        await Catalog([], {"mute": Hanging("mute", None)}).resolve("tiny")
