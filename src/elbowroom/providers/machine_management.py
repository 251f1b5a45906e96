"""LM Studio's routes to list, load and download models, for several machines as if they were one.

A body may name its `machine`. Else a model is loaded on every machine that has it and has not loaded it, an instance
is unloaded wherever it is, and a download begins on the first machine that answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from elbowroom.caches import Recent
from elbowroom.errors import ElbowroomError, NotFound, RequestError
from elbowroom.providers.base import ModelManagement

DOWNLOADS_KEPT: Final = 64
Catalogs = Mapping[str, Mapping[str, Any]]
"""The lists of the machines that answer, by machine."""


class ManagedMachines:
    """The machines' own routes by machine; `is_up` tells whether the last answer of a machine was good."""

    def __init__(self, machines: Mapping[str, ModelManagement], is_up: Callable[[str], bool]) -> None:
        self._machines = machines
        self._is_up = is_up
        self._jobs = Recent[str, str]("downloads", DOWNLOADS_KEPT)

    async def catalog(self) -> dict[str, Any]:
        """Return the models of all machines together; each loaded instance names its `machine`."""
        rows: dict[Any, dict[str, Any]] = {}
        for machine, catalog in (await self._catalogs()).items():
            for row in _rows(catalog):
                instances = [{**instance, "machine": machine} for instance in _instances(row)]
                known = rows.setdefault(row.get("key"), {**row, "loaded_instances": [], "machines": []})
                known["loaded_instances"] += instances
                known["machines"].append(machine)
        return {"models": [*rows.values()]}

    async def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Load a model on the machine that the body names, or wherever it is downloaded and not loaded yet.

        Where all have loaded it, the one with the fewest instances of it loads another.
        """
        named, sent = self._named(body)
        if named:
            return await self._on([named], lambda management: management.load(sent))
        catalogs = await self._catalogs()
        counts = {machine: _loaded(catalog, str(body["model"])) for machine, catalog in catalogs.items()}
        having = {machine: count for machine, count in counts.items() if count is not None}
        idle = [machine for machine, count in having.items() if not count]
        fewest = sorted(having, key=lambda machine: having[machine])[:1] or [*catalogs][:1]
        return await self._on(idle or fewest, lambda management: management.load(sent))

    async def unload(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Unload an instance on the machine that the body names, or on all that have it."""
        named, sent = self._named(body)
        if named:
            return await self._on([named], lambda management: management.unload(sent))
        instance, catalogs = body["instance_id"], await self._catalogs()
        having = [
            machine
            for machine, catalog in catalogs.items()
            if any(loaded.get("id") == instance for row in _rows(catalog) for loaded in _instances(row))
        ]
        return await self._on(having or [*catalogs][:1], lambda management: management.unload(sent))

    async def download(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to download a model on the machine that the body names, or on the first that answers."""
        named, sent = self._named(body)
        machine = named or self._up()[0]
        told = await self._on([machine], lambda management: management.download(sent))
        if isinstance(job := told.get("job_id"), str):
            self._jobs.put(job, machine)
        return told

    async def download_status(self, job_id: str) -> dict[str, Any]:
        """Return how far a download is; all machines are asked for one that nobody remembers."""
        if known := self._jobs.get(job_id):
            return await self._machines[known].download_status(job_id)
        told = await self._tried(self._up(), lambda management: management.download_status(job_id))
        answers = [answer for answer in told.values() if isinstance(answer, dict)]
        if answers:
            return answers[0]
        raise NotFound(f"No machine knows a download {job_id!r}.")

    def _named(self, body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the machine that a body names, empty where it names none, and the body without that."""
        named, sent = body.get("machine"), {key: value for key, value in body.items() if key != "machine"}
        if named is None:
            return "", sent
        meant = [machine for machine in self._machines if named in (machine, machine.partition("@")[2])]
        if not meant:
            raise RequestError(f"machine has to be one of: {', '.join(self._machines)}.", param="machine")
        return meant[0], sent

    def _up(self) -> Sequence[str]:
        return [machine for machine in self._machines if self._is_up(machine)] or [*self._machines]

    async def _catalogs(self) -> Catalogs:
        """Return what the machines list that answer; raises the first failure where none does."""
        told = await self._tried(self._up(), lambda management: management.catalog())
        found = {machine: answer for machine, answer in told.items() if isinstance(answer, dict)}
        if not found:
            raise _failure_in(told)
        return found

    async def _on(
        self, machines: Sequence[str], ask: Callable[[ModelManagement], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Ask these machines at once; return the first good answer, with what each of them says in `machines`."""
        told = await self._tried(machines, ask)
        good = [answer for answer in told.values() if isinstance(answer, dict)]
        if not good:
            raise _failure_in(told)
        rows = [
            {"machine": machine, **(answer if isinstance(answer, dict) else {"error": answer.message})}
            for machine, answer in told.items()
        ]
        return {**good[0], "machines": rows}

    async def _tried(
        self, machines: Sequence[str], ask: Callable[[ModelManagement], Awaitable[dict[str, Any]]]
    ) -> dict[str, dict[str, Any] | ElbowroomError]:
        answers = await asyncio.gather(*(_answer_or_failure(ask(self._machines[machine])) for machine in machines))
        return dict(zip(machines, answers, strict=True))


async def _answer_or_failure(asking: Awaitable[dict[str, Any]]) -> dict[str, Any] | ElbowroomError:
    try:
        return await asking
    except ElbowroomError as error:
        return error


def _failure_in(told: Mapping[str, dict[str, Any] | ElbowroomError]) -> ElbowroomError:
    return next(answer for answer in told.values() if isinstance(answer, ElbowroomError))


def _rows(catalog: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = catalog.get("models")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _instances(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    instances = row.get("loaded_instances")
    return [one for one in instances if isinstance(one, dict)] if isinstance(instances, list) else []


def _loaded(catalog: Mapping[str, Any], model: str) -> int | None:
    """Return how many instances of a model are loaded; None where it is not downloaded."""
    return next((len(_instances(row)) for row in _rows(catalog) if row.get("key") == model), None)
