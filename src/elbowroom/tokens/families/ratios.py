"""Holds how many tokens of each family stand for those of vocabularies that are only near to its own.

The numbers of `ratios.json` are measured by `tests/support/script_ratios.py`: on translated messages of free programs
and words of common text in some ninety languages, and random letters of scripts that neither is in. Where languages
share a script and differ, the count lies between them and the error covers them all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

from elbowroom.tokens.families.vocabularies import VocabularyName


@dataclass(frozen=True, slots=True)
class Scale:
    """The tokens of the model for one of each vocabulary, added up, and how far that may be off, as a share of them."""

    error: float
    weights: Mapping[VocabularyName, float]


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """The tokens of the model for one of the vocabulary used: for each script that differs, and for other text.

    `indent` tokens are added for every line that begins with spaces, where other vocabularies join them with the line
    break.
    """

    text: float = 1.0
    scripts: Mapping[str, Scale] = field(default_factory=dict)
    indent: float = 0.0


MEASURED: Final = Path(str(files("elbowroom.tokens").joinpath("families", "ratios.json")))
SCALES: Final[Mapping[str, Mapping[str, Scale]]] = {
    name: {script: Scale(*numbers) for script, numbers in by_script.items()}
    for name, by_script in json.loads(MEASURED.read_text(encoding="utf-8")).items()
}
SAME: Final = Ratios()
LLAMA3_RATIOS: Final = Ratios(1.0, SCALES["llama3"])
LLAMA2_RATIOS: Final = Ratios(1.0, SCALES["llama2"])
GEMMA_RATIOS: Final = Ratios(1.04, SCALES["gemma"], indent=1.1)
COMMAND_R_RATIOS: Final = Ratios(1.04, SCALES["command-r"])
GRANITE_RATIOS: Final = Ratios(1.06, SCALES["granite"])
UNKNOWN_RATIOS: Final = Ratios(1.05, SCALES["unknown"])
DEEPSEEK_RATIOS: Final = Ratios(
    1.04,
    {
        **dict.fromkeys(SCALES["unknown"], Scale(0.4, {"o200k": 1.3})),
        "han": Scale(0.15, {"o200k": 0.91}),
        "kana": Scale(0.25, {"o200k": 0.91}),
    },
)
"""Han and kana as an earlier measurement found them; for the rest no vocabulary can be had, so the error is wide."""
QWEN35_RATIOS: Final = Ratios(1.0, SCALES["qwen35"])
