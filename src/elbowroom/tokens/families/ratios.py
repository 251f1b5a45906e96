"""Holds how many tokens of each family stand for one of a vocabulary that is only near to its own.

The numbers of `ratios.json` are measured by `tests/support/script_ratios.py`: on translated messages of free programs
in some ninety languages, and random letters of scripts that no message is in. Where languages share a script and
differ, the ratio lies between them and the error covers them all.
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
    """The tokens of the model for one of a vocabulary, and how far that may be off, as a share of them.

    The vocabulary is the family's where no other one comes nearer to the model's in this script.
    """

    ratio: float
    error: float
    vocabulary: VocabularyName | None = None


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
    1.04, {**dict.fromkeys(SCALES["unknown"], Scale(1.3, 0.4)), "han": Scale(0.91, 0.15), "kana": Scale(0.91, 0.25)}
)
"""Han and kana as an earlier measurement found them; for the rest no vocabulary can be had, so the error is wide."""
QWEN35_RATIOS: Final = Ratios(1.0, SCALES["qwen35"])
