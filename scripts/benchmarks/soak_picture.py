"""The picture of a soak: memory, descriptors, lag of writing and holds of the event loop over time, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from soak_server import Found

WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 120, 70, 30, 46
POINTS: Final = 450
"""How many points a line has at most; of more the highest of each stretch is drawn."""
COLOURS: Final = {"not killed": "#1f6f8b", "killed": "#c8553d"}
STYLE: Final = "text{font:12px system-ui,sans-serif;fill:#555}path{fill:none;stroke-width:1.4}"
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: its title, and a line for each server; a dashed line stands at `most`."""

    title: str
    lines: dict[str, Sequence[Point]]
    most: float | None = None


def picture(steady: Found, killed: Found) -> str:
    """Return the picture as SVG."""
    founds = {"not killed": steady, "killed": killed}
    panels = [
        Panel("memory (MiB)", {name: [(one.at, one.rss) for one in found.samples] for name, found in founds.items()}),
        Panel("descriptors", {name: [(one.at, one.descriptors) for one in f.samples] for name, f in founds.items()}),
        Panel("lag of writing, longest of each second (ms)", measured(founds, "lag", 1000), 250),
        Panel("longest hold of the event loop in each second, CPU time (ms)", measured(founds, "hold", 1000), 50),
        Panel("tasks", measured(founds, "tasks", 1)),
    ]
    over = max((one.at for found in founds.values() for one in found.samples), default=1.0)
    drawn = [drawing(panel, TOP + place * (HEIGHT + GAP), over, killed.kills) for place, panel in enumerate(panels)]
    height = TOP + len(panels) * (HEIGHT + GAP)
    legend = "".join(
        f'<text x="{LEFT + 140 * place}" y="14" style="fill:{colour}">{name}</text>'
        for place, (name, colour) in enumerate(COLOURS.items())
    )
    size = f'viewBox="0 0 {WIDTH + LEFT + 20} {height}" width="{WIDTH + LEFT + 20}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{legend}{"".join(drawn)}</svg>\n'


def measured(founds: dict[str, Found], what: str, factor: float) -> dict[str, Sequence[Point]]:
    """Return what was measured from inside, by seconds since the first line."""
    first = min((line["at"] for found in founds.values() for line in found.inside), default=0.0)
    return {
        name: [(line["at"] - first, line[what] * factor) for line in found.inside] for name, found in founds.items()
    }


def drawing(panel: Panel, top: int, over: float, kills: Sequence[float]) -> str:
    """Return one diagram; a thin line marks each kill."""
    highest = max([value for line in panel.lines.values() for _, value in line] + [panel.most or 0.0, 1e-9]) * 1.05
    base = top + HEIGHT

    def at(point: Point) -> str:
        return f"{LEFT + WIDTH * point[0] / over:.1f},{base - HEIGHT * point[1] / highest:.1f}"

    parts = [
        f'<text x="{LEFT}" y="{top - 6}">{panel.title}</text>',
        f'<path d="M{at((0, 0))}L{at((over, 0))}" stroke="#999"/>',
        f'<text x="{LEFT - 8}" y="{top + 8}" text-anchor="end">{highest:.3g}</text>',
        f'<text x="{LEFT - 8}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{LEFT + WIDTH}" y="{base + 16}" text-anchor="end">{over / 60:.3g} min</text>',
        *(f'<path d="M{at((kill, 0))}L{at((kill, highest))}" stroke="#eedcd6"/>' for kill in kills),
    ]
    if panel.most is not None:
        ends = f"M{at((0, panel.most))}L{at((over, panel.most))}"
        parts.append(f'<path d="{ends}" stroke="#999" stroke-dasharray="4 4"/>')
    for name, line in panel.lines.items():
        if line:
            parts.append(f'<path d="M{"L".join(map(at, thinned(line)))}" stroke="{COLOURS[name]}"/>')
    return "".join(parts)


def thinned(line: Sequence[Point]) -> list[Point]:
    """Return the highest point of each stretch."""
    step = max(1, len(line) // POINTS)
    return [max(line[start : start + step], key=lambda point: point[1]) for start in range(0, len(line), step)]
