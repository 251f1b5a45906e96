"""What a template demands is found by trying it out: all of it, and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from demanding_templates import PLAIN, REFUSAL, TEMPLATES, render_with

from elbowroom.context.templates.demands import TemplateDemands, demands_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def test_demands_are_found() -> None:
    """Refusals and silent losses are both found, and no template is suspected of what it does not do."""
    for name in TEMPLATES:
        source, expected = TEMPLATES[name]
        demands = asdict(demands_of(render_with(source)))
        assert {demand for demand, wanted in demands.items() if wanted} == expected, name


def test_every_demand_has_a_template() -> None:
    """No demand is left without a template that shows how it is found."""
    assert set().union(*(demands for _, demands in TEMPLATES.values())) == set(asdict(TemplateDemands()))


def test_broken_template_demands_nothing() -> None:
    """Where not even a single user message can be rendered, nothing is learned and nothing is changed."""
    assert demands_of(render_with(REFUSAL)) == TemplateDemands()
    assert demands_of(render_with("always the same")) == TemplateDemands()


def test_any_error_is_a_refusal() -> None:
    """Whoever renders may raise what it likes; the errors do not come through."""
    plain = render_with(PLAIN)

    def picky(messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]]) -> str:
        return plain(messages, tools) if messages[0]["role"] != "system" else refuse()

    def refuse() -> NoReturn:
        raise ZeroDivisionError

    assert demands_of(picky).system_as_user
