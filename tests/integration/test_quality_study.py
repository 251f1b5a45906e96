"""`/api/quality`: which pruning agent to choose, measured with the models that are there."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serve, settings_for
from study_models import MAIN, PRUNERS, StudyModels
from waiting import until

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.quality.table import ALIKE
from elbowroom.server.state import SHARED, Timing
from elbowroom.status.quality import AMOUNTS

ROUTE = "/api/quality"
FAITHFUL, SLOPPY, GARBAGE = (f"lmstudio/{name}" for name in PRUNERS)
ONE = {"model": f"lmstudio/{MAIN}", "pruners": ["same"], "conversations": 1, "compactions": 1}
"""The smallest study there is."""


@asynccontextmanager
async def studied(folder: Path, models: StudyModels, settings: str = "") -> AsyncIterator[Served]:
    """Run elbowroom in front of these models; nobody has to be quiet before work in the background begins."""
    async with models.studio:
        written = settings_for(models.studio.base_url, agents=settings)
        async with serve(folder, written, timing=Timing(quiet=0)) as served:
            yield served


async def asked(served: Served, method: str, **body: Any) -> tuple[int, dict[str, Any]]:
    """Ask the route; return status and answer."""
    sent = body if method == "POST" else None
    async with served.http.request(method, f"{served.url}{ROUTE}", json=sent) as response:
        return response.status, await response.json()


async def ended(served: Served) -> dict[str, Any]:
    """Return the state of the study once it has ended."""
    while True:
        _, state = await asked(served, "GET")
        if state["state"] != "running":
            return state
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_the_faithful_one_wins(tmp_path: Path) -> None:
    """The best is first and advised, garbage is last of the pruning agents, the controls stand below."""
    async with studied(tmp_path, StudyModels()) as served:
        status, begun = await asked(
            served, "POST", model=f"lmstudio/{MAIN}", pruners=[GARBAGE, SLOPPY, FAITHFUL], conversations=1
        )
        assert (status, begun["state"]) == (201, "running")
        state = await ended(served)
    assert (state["state"], state["problem"], state["troubles"], state["window"]) == ("done", "", {}, 4096)
    faithful, sloppy, garbage, *controls = state["lines"]
    assert [each["pruner"] for each in (faithful, sloppy, garbage)] == [FAITHFUL, SLOPPY, GARBAGE]
    assert [(each["pruner"], each["answered"]) for each in controls] == [
        ("last messages only", None),
        ("LM Studio's cut", None),
    ]
    assert state["advice"].startswith(f"Choose {FAITHFUL}: after it the model answers ")
    assert state["advice"].endswith('It is set by compaction.model = "qwen2.5-14b-faithful".')
    assert faithful["told"] > sloppy["told"] > garbage["told"], state["lines"]
    assert (faithful["called"], faithful["constraints"], faithful["made_up"]) == (100, 100, 0)
    assert (faithful["by_code"], garbage["by_code"], garbage["compactions"]) == (0, 3, 3)
    assert state["done"] == state["of"]


@pytest.mark.slow
async def test_what_is_measured_without_names(tmp_path: Path) -> None:
    """The first loaded model with itself and with each other loaded model as its pruning agent."""
    models = StudyModels("faithful")
    async with studied(tmp_path, models) as served:
        await asked(served, "POST", conversations=1, compactions=1)
        state = await ended(served)
    assert {line["pruner"] for line in state["lines"] if not line["is_control"]} == {"same", FAITHFUL, SLOPPY, GARBAGE}
    assert set(models.orders) == {MAIN, *PRUNERS}


@pytest.mark.slow
async def test_agents_and_what_is_set(tmp_path: Path) -> None:
    """An agent is named by its id; a model of the settings is measured without being named."""
    models = StudyModels("faithful")
    critic = f'[[agents]]\nid = "critic"\nmodel = "{MAIN}"\ninstructions = "Be exact."\n'
    chosen = f'[compaction]\nmodel = "{next(iter(PRUNERS))}"\n'
    async with studied(tmp_path, models, chosen + critic) as served:
        await asked(served, "POST", **{**ONE, "pruners": ["critic"]})
        state = await ended(served)
        assert state["advice"].endswith('It is set by compaction.pruning_agent = "critic".')
        await asked(served, "POST", conversations=1, compactions=1)
        state = await ended(served)
    assert {line["pruner"] for line in state["lines"][:4]} == {"same", FAITHFUL, SLOPPY, GARBAGE}


async def test_a_smaller_window(tmp_path: Path) -> None:
    """Only so much of the window is filled as is wanted."""
    models = StudyModels("faithful")
    async with studied(tmp_path, models) as served:
        await asked(served, "POST", **ONE, window=2048)
        state = await ended(served)
        assert (state["state"], state["window"]) == ("done", 2048)
        assert state["lines"][0]["tokens"] < 2048


async def test_stopped_in_the_middle(tmp_path: Path) -> None:
    """What was measured until then is shown, without advice on it; nothing is asked any more."""
    models = StudyModels("faithful")
    models.after = 5
    async with studied(tmp_path, models) as served:
        await asked(served, "POST", **ONE)
        await until(lambda: models.questions > 5)
        _, state = await asked(served, "GET")
        assert (state["state"], state["done"]) == ("running", 6)
        assert state["now"] == "plan, English, 1, same"
        assert isinstance(state["seconds_left"], int)
        _, state = await asked(served, "DELETE")
        assert (state["state"], state["seconds_left"]) == ("stopped", None)
        assert state["lines"][0]["answered"] == 100
        assert state["advice"] == ""
        status, _ = await asked(served, "POST", **ONE)
        assert status == 201


@pytest.mark.slow
async def test_no_advice_before_each_was_tried_as_often(tmp_path: Path) -> None:
    """While one pruning agent is asked and the other one waits there is none; then it compares what both have done."""
    models = StudyModels()
    models.after = 30
    async with studied(tmp_path, models) as served:
        body = {"model": f"lmstudio/{MAIN}", "pruners": [SLOPPY, FAITHFUL], "compactions": 1}
        await asked(served, "POST", **body, conversations=1)
        await until(lambda: models.questions > models.after)
        _, state = await asked(served, "GET")
        assert [line["pruner"] for line in state["lines"] if line["answered"] is not None] == [FAITHFUL, SLOPPY]
        assert state["advice"] == ""
        await asked(served, "DELETE")
        models.after = models.questions + 60
        await asked(served, "POST", **body, conversations=2)
        await until(lambda: models.questions > models.after)
        _, state = await asked(served, "GET")
        assert state["advice"].startswith(f"Choose {FAITHFUL}: ")


@pytest.mark.slow
async def test_the_quick_study_tells_them_apart(tmp_path: Path) -> None:
    """One conversation, compacted twice, is enough to see which pruning agent loses, and which one does nothing."""
    async with studied(tmp_path, StudyModels()) as served:
        await asked(served, "POST", model=f"lmstudio/{MAIN}", pruners=[GARBAGE, SLOPPY, FAITHFUL], **AMOUNTS["quick"])
        state = await ended(served)
    assert [line["pruner"] for line in state["lines"][:3]] == [FAITHFUL, SLOPPY, GARBAGE]
    best, middle, worst = (line["score"] for line in state["lines"][:3])
    assert best > middle + ALIKE > worst + 2 * ALIKE


async def test_lmstudio_goes_away(tmp_path: Path) -> None:
    """The study ends with what it has, and says that nothing answers there."""
    models = StudyModels("faithful")
    models.after = 5
    async with studied(tmp_path, models) as served:
        await asked(served, "POST", **ONE)
        await until(lambda: models.questions > 5)
        await models.studio.stop()
        state = await ended(served)
    assert state["state"] == "failed"
    assert "LM Studio" in state["problem"]
    assert state["lines"][0]["answered"] == 100


@pytest.mark.slow
async def test_a_pruning_agent_that_cannot_be_had(tmp_path: Path) -> None:
    """The others are measured, and the reason is told; where there is no other one the study has failed."""
    models, other = StudyModels("faithful"), "other/qwen2.5-3b"
    away = '[[providers]]\nid = "other"\nkind = "lmstudio"\nbase_url = "http://127.0.0.1:9"\n'
    async with studied(tmp_path, models, away) as served:
        await asked(served, "POST", **{**ONE, "pruners": [other, "same"]})
        state = await ended(served)
        assert state["state"] == "done"
        assert [line["pruner"] for line in state["lines"] if not line["is_control"]] == ["same"]
        assert state["troubles"][other].startswith("The pruning agent cannot be had: ")
        await asked(served, "POST", **{**ONE, "pruners": [other]})
        state = await ended(served)
        assert (state["state"], state["problem"]) == ("failed", "None of the pruning agents could be measured.")


OWN = (
    f'[[agents]]\nid = "archivist"\nmodel = "{FAITHFUL.removeprefix("lmstudio/")}"\n'
    f'[[models]]\nid = "{MAIN}"\npruning_agent = "archivist"\n'
)


@pytest.mark.slow
async def test_the_models_own_pruning_agent_is_measured(tmp_path: Path) -> None:
    """Where a model has a pruning agent of its own, that one is measured unasked, and told with its own setting."""
    async with studied(tmp_path, StudyModels(), OWN) as served:
        await asked(served, "POST", model=f"lmstudio/{MAIN}", conversations=1, compactions=1)
        assert "archivist" in [line["pruner"] for line in (await ended(served))["lines"]]
        await asked(served, "POST", **{**ONE, "pruners": ["archivist"]})
        advice = (await ended(served))["advice"]
        assert advice.endswith(f'It is set by pruning_agent of the models {MAIN} = "archivist".')


async def test_two_at_once(tmp_path: Path) -> None:
    """The second is refused; the first goes on."""
    models = StudyModels()
    models.holds = asyncio.Event()
    async with studied(tmp_path, models) as served:
        await asked(served, "POST", **ONE)
        status, answer = await asked(served, "POST", **ONE)
        assert (status, answer["error"]["code"]) == (409, "study_running")
        models.holds.set()
        assert (await ended(served))["state"] == "done"


async def test_chats_go_first(tmp_path: Path) -> None:
    """A chat that needs the model while a compaction is being written is answered at once; the study begins it anew."""
    models = StudyModels("faithful")
    models.holds = asyncio.Event()
    async with studied(tmp_path, models) as served:
        await asked(served, "POST", **ONE)
        await until(lambda: len(models.orders) == 1)
        answer = await served.chat(f"lmstudio/{MAIN}", "Does the ferry run? " * 300)
        assert answer["choices"][0]["message"]["content"] == "I do not know."
        models.holds.set()
        assert (await ended(served))["state"] == "done"
        assert len(models.orders) >= 2


async def test_nothing_is_kept(tmp_path: Path) -> None:
    """The conversations of a study are in no list, no metrics and not in the live view."""
    async with studied(tmp_path, StudyModels()) as served:
        await asked(served, "POST", **ONE)
        state = await ended(served)
        await served.app[SHARED].store.ready(60)
        shown = []
        for route in ("/v1/conversations", "/api/live", "/metrics"):
            async with served.http.get(f"{served.url}{route}") as response:
                shown.append(await response.text())
    assert state["lines"][0]["compactions"] == 1
    assert [json.loads(text)["data"] for text in shown[:2]] == [[], []]
    assert "elbowroom_compactions_total{" not in shown[2]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"pruners": ["nobody"]}, 404, "There is no model 'nobody'"),
        ({"pruners": ["lmstudio/nothing"]}, 404, "has no model 'nothing'"),
        ({"pruners": "same"}, 400, "pruners has to be a list"),
        ({"model": "nobody"}, 404, "There is no model 'nobody'"),
        ({"conversations": 0}, 400, "conversations has to be a whole number from 1 to 9, not 0."),
    ],
)
async def test_what_cannot_be_measured(tmp_path: Path, body: dict[str, Any], status: int, words: str) -> None:
    """Refused in a sentence, before anything is asked."""
    async with studied(tmp_path, StudyModels()) as served:
        found, answer = await asked(served, "POST", **body)
        assert (found, words in answer["error"]["message"]) == (status, True), answer
        assert (await asked(served, "GET"))[1]["state"] == "none"


async def test_nothing_to_measure_with(tmp_path: Path) -> None:
    """No model is loaded; LM Studio does not run; a window is too small."""
    async with SimulatedLMStudio([SimulatedModel(MAIN)], rpc=False) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            status, answer = await asked(served, "POST")
            assert (status, answer["error"]["message"]) == (
                503,
                "No model is loaded. Load one, or name one with --model.",
            )
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        status, answer = await asked(served, "POST")
        assert status == 503
        assert "LM Studio" in answer["error"]["message"]
    async with studied(tmp_path, StudyModels(window=1024)) as served:
        await asked(served, "POST", **ONE)
        state = await ended(served)
        assert state["state"] == "failed"
        assert "The window of 1,024 tokens is too small" in state["problem"]


async def test_other_pages_may_not_ask(tmp_path: Path) -> None:
    """A web page of another origin that may chat may neither see nor begin a study."""
    async with studied(tmp_path, StudyModels()) as served:
        headers = {"Origin": "http://localhost:3000"}
        async with served.http.post(f"{served.url}{ROUTE}", json=ONE, headers=headers) as response:
            assert response.status == 403


async def test_on_one_of_several_machines(tmp_path: Path) -> None:
    """A study runs on a machine that has the models; one that does not answer changes nothing."""
    models = StudyModels("faithful")
    async with models.studio:
        addresses = f'base_urls = ["http://127.0.0.1:9", "{models.studio.base_url}"]'
        settings = f'[server]\nport = 0\n[[providers]]\nid = "lmstudio"\nkind = "lmstudio"\n{addresses}\n'
        async with serve(tmp_path, settings, timing=Timing(quiet=0)) as served:
            await asked(served, "POST", **{**ONE, "pruners": [FAITHFUL]})
            state = await ended(served)
    assert (state["state"], state["troubles"], state["lines"][0]["pruner"]) == ("done", {}, FAITHFUL)
