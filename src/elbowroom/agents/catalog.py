"""Which models clients see, and what each name means: an agent by id or name, a raw model by its provider."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from elbowroom.errors import ElbowroomError, ModelNotFound, UpstreamTimeout, WindowUnknown
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio import find_model
from elbowroom.providers.machines import Machines
from elbowroom.providers.seen import SeenModel, SeenModels
from elbowroom.settings.keys import did_you_mean
from elbowroom.settings.model import AgentSettings, ModelSettings

MOST_NAMED = 20
LISTING_SECONDS = 3.0
NOT_REACHABLE = " (not reachable)"


@dataclass(frozen=True, slots=True)
class Target:
    """The meaning of a client's `model`: a provider's model, and the agent that uses it; None for a raw model."""

    name: str
    provider: Provider
    model: str
    agent: AgentSettings | None = None

    @property
    def is_relay(self) -> bool:
        """Tell whether requests pass through as sent: to a raw model of a provider that does not manage context."""
        return self.agent is None and not self.provider.manages_context


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """One model of `GET /v1/models`; `info` is None while its provider does not answer or lacks the model.

    `model` is its id where its provider lists it, or has listed it before; `last_window` is the window with which it
    was loaded last, `advertised_window` what programs are told in place of the window.
    """

    id: str
    name: str
    owner: str
    model: str
    info: ModelInfo | None = None
    last_window: int | None = None
    advertised_window: int | None = None

    @property
    def is_loaded(self) -> bool:
        """Tell whether the model is loaded with a window that is known."""
        return bool(self.info and self.info.loaded_context and self.info.state in ("loaded", None))

    @property
    def window(self) -> int | None:
        """Return the window in tokens; of a model that is not loaded that with which it would be, if that is known."""
        return (self.info.loaded_context if self.info else None) or self.last_window


class Catalog:
    """The enabled agents and the providers' models at one moment.

    While a provider does not answer, it has the models with which it was `seen` last. `own` tells what the settings say
    of a model by its provider and id.
    """

    def __init__(
        self,
        agents: Sequence[AgentSettings],
        providers: Mapping[str, Provider],
        seen: SeenModels | None = None,
        own: Callable[[str, str], ModelSettings | None] | None = None,
    ) -> None:
        self._own = own
        self._agents = {agent.id: agent for agent in agents if agent.enabled}
        self._by_name = {agent.display_name.casefold(): agent for agent in reversed(self._agents.values())}
        self._providers = providers
        self._seen = seen or SeenModels(None)

    async def resolve(self, name: str, *, embeds: bool = False) -> Target:
        """Return what the client's `model` names: an agent's id, its name, `<provider>/<model>`, or a model's own id.

        A model's own id, as LM Studio lists it, has to be that of one provider only. With `embeds`, models that only
        make embeddings are found too. Raises ModelNotFound with the list of models, or a provider's error where no
        provider answers.
        """
        if agent := self._agent(name):
            return self._target(agent)
        provider_id, slash, model = name.partition("/")
        if slash and model and (provider := self._providers.get(provider_id)):
            return Target(name, provider, model)
        row = await self.row(name, embeds=embeds)
        return Target(row.id, self._providers[row.owner], row.model)

    async def row(self, name: str, *, embeds: bool = False) -> CatalogRow:
        """Return the row that a name stands for: its id, an agent's name, or the id of a model or a loaded instance.

        Raises ModelNotFound with the list of models, or a provider's error where no provider answers.
        """
        listed = await self._listed()
        rows = await self._rows(listed, embeds=embeds)
        agent = self._agent(name)
        meant = [row for row in rows if row.id == (agent.id if agent else name)] or _with_model(rows, name)
        if len(meant) == 1:
            return meant[0]
        failures = {key: found for key, found in listed.items() if isinstance(found, ElbowroomError)}
        if failures and len(failures) == len(listed):
            raise next(iter(failures.values()))
        raise ModelNotFound(_not_found(name, rows, meant, list(failures)))

    def of_agent(self, agent_id: str) -> Target | None:
        """Return the target of an agent's id; None where there is no such agent, or it is switched off."""
        agent = self._agents.get(agent_id)
        return self._target(agent) if agent else None

    def beside(self, target: Target, other: Target) -> Target:
        """Return another target as one on the same machine where it has the same model, else on all of its machines.

        `target` is bound to one machine of its provider, if that has several.
        """
        several = [one for one in self._providers.values() if isinstance(one, Machines)]
        own = next((one for one in several if any(each.provider is target.provider for each in one.machines)), None)
        if own is None or other.provider not in (own, target.provider):
            return other
        return replace(other, provider=target.provider if other.model == target.model else own)

    async def rows(self) -> list[CatalogRow]:
        """Return all models clients can name: agents first, then raw models as `<provider>/<model id>`."""
        return await self._rows(await self._listed())

    async def _listed(self) -> dict[str, Sequence[ModelInfo] | ElbowroomError]:
        found = await asyncio.gather(*(_models_or_failure(provider) for provider in self._providers.values()))
        listed = dict(zip(self._providers, found, strict=True))
        for provider_id, models in listed.items():
            if not isinstance(models, ElbowroomError):
                await self._seen.note(provider_id, models)
        return listed

    async def _rows(
        self, listed: Mapping[str, Sequence[ModelInfo] | ElbowroomError], *, embeds: bool = False
    ) -> list[CatalogRow]:
        models = {key: () if isinstance(found, ElbowroomError) else found for key, found in listed.items()}
        seen = {key: await self._seen.of(key) for key in listed}
        windows = {(key, model.id): model.window for key, there in seen.items() for model in there}
        rows = [
            CatalogRow(
                agent.id,
                agent.display_name,
                "elbowroom",
                agent.model,
                _find(models[agent.provider], agent.model),
                windows.get((agent.provider, agent.model)),
                self._advertised(agent.provider, agent.model),
            )
            for agent in self._agents.values()
        ]
        for key, found in listed.items():
            shown: Sequence[ModelInfo | SeenModel] = seen[key] if isinstance(found, ElbowroomError) else models[key]
            there = [model for model in shown if embeds or model.kind != "embedding"]
            rows += [
                _raw_row(key, model, windows.get((key, model.id)), self._advertised(key, model.id)) for model in there
            ]
        return rows

    def _advertised(self, provider_id: str, model: str) -> int | None:
        own = self._own(provider_id, model) if self._own is not None else None
        return own.advertised_window if own is not None else None

    def _target(self, agent: AgentSettings) -> Target:
        return Target(agent.id, self._providers[agent.provider], agent.model, agent)

    def _agent(self, name: str) -> AgentSettings | None:
        return self._agents.get(name) or self._by_name.get(name.casefold())


def _raw_row(
    provider_id: str, model: ModelInfo | SeenModel, last_window: int | None, advertised: int | None
) -> CatalogRow:
    """Return the row of a raw model; people see which one cannot be reached."""
    info = model if isinstance(model, ModelInfo) else None
    name = model.name if info else f"{model.name}{NOT_REACHABLE}"
    return CatalogRow(f"{provider_id}/{model.id}", name, provider_id, model.id, info, last_window, advertised)


async def _models_or_failure(provider: Provider) -> Sequence[ModelInfo] | ElbowroomError:
    """Return a provider's models, or its error; a provider that hangs does not hold up the others."""
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            return await provider.models()
    except ElbowroomError as error:
        return error
    except TimeoutError:
        return UpstreamTimeout(f"The provider {provider.id!r} did not list its models in {LISTING_SECONDS:g} seconds.")


async def why_no_answer(model: str, provider: Provider) -> str | None:
    """Return in words why an agent with this model would not answer; None where it would, or where nobody knows.

    A server that is passed through may know more models than it lists.
    """
    found = await _models_or_failure(provider)
    if isinstance(found, ElbowroomError):
        return None
    info = find_model(found, model) or find_model(found, f"{model}:latest")  # as Ollama completes a name
    there = {each.id: each.id for each in found if each.kind != "embedding"}
    named = ", ".join([*there][:MOST_NAMED]) or "none"
    if info is None:
        return f"The provider {provider.id!r} has no model {model!r}{did_you_mean(model, there)}. It has: {named}."
    if info.kind == "embedding":
        return f"The model {model!r} only makes embeddings, it cannot chat. Choose another one: {named}."
    is_there = info.state not in ("not-loaded", "loading")  # else its window is known once it is loaded
    if provider.manages_context and is_there and info.loaded_context is None:
        return WindowUnknown(info.id, provider.id).message
    return None


def _with_model(rows: Sequence[CatalogRow], name: str) -> list[CatalogRow]:
    """Return the raw models that have this id at their provider, or else a loaded instance of this id."""
    raw = [row for row in rows if row.id == f"{row.owner}/{row.model}"]
    found = [row for row in raw if row.model == name]
    return found or [
        replace(row, id=f"{row.owner}/{name}", model=name)
        for row in raw
        if row.info and name in (row.info.instances or ())
    ]


def _not_found(name: str, rows: Sequence[CatalogRow], meant: Sequence[CatalogRow], silent: Sequence[str]) -> str:
    there = [row.id for row in rows]
    named = ", ".join(there[:MOST_NAMED]) or "none: no agent is configured and the providers have no models"
    more = f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
    if meant:
        why = f"{name!r} may mean {' or '.join(row.id for row in meant)}: name one of them."
    else:
        spellings = {spelling: row.id for row in reversed(rows) for spelling in (row.model, row.name, row.id)}
        why = f"There is no model {name!r}{did_you_mean(name, spellings)}."
    away = ", ".join(map(repr, silent))
    unknown = f" Not known now are the models of {away}; `elbowroom status` says why." if silent else ""
    return f"{why} Available: {named}{more}.{unknown}"


def _find(infos: Sequence[ModelInfo], model: str) -> ModelInfo | None:
    return next((info for info in infos if info.id == model), None)
