"""Finds the parts of a text that are written in other than Latin letters: vocabularies differ most in these."""

import re
from typing import Final, Literal

Script = Literal["han", "kana", "hangul", "greek", "cyrillic", "hebrew", "arabic", "devanagari", "thai"]

RUNS: Final = re.compile(
    "(?P<han>[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f]+)"
    "|(?P<hangul>(?: ?[\uac00-\ud7af]+)+)"
    "|(?P<greek>(?: ?[\u0370-\u03ff\u1f00-\u1fff]+)+)"
    "|(?P<cyrillic>(?: ?[\u0400-\u052f]+)+)"
    "|(?P<hebrew>(?: ?[\u0590-\u05ff]+)+)"
    "|(?P<arabic>(?: ?[\u0600-\u06ff\u0750-\u077f]+)+)"
    "|(?P<devanagari>(?: ?[\u0900-\u097f]+)+)"
    "|(?P<thai>(?: ?[\u0e00-\u0e7f]+)+)"
)
KANA: Final = re.compile("[\u3041-\u30ff]")


def script_runs(text: str) -> dict[Script, str]:
    """Return all that a text has in each script, put together; Chinese characters beside kana are kana's."""
    if text.isascii():
        return {}
    runs: dict[Script, list[str]] = {}
    for match in RUNS.finditer(text):
        script: Script = match.lastgroup  # type: ignore[assignment]  # the groups are named after the scripts
        if script == "han" and KANA.search(match.group()):
            script = "kana"
        runs.setdefault(script, []).append(match.group())
    return {script: "".join(parts) for script, parts in runs.items()}
