"""Finds identifiers in a text: paths, addresses, numbers, dates, names in quotes, which a paraphrase destroys.

Ordinary words are none, nor are two of them with a slash between. The time is linear in the length of the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

LONGEST = 200
LONGEST_LINE = 2000
MONTHS = (
    r"(?:Jan(?:uary|uar)?|Feb(?:ruary|ruar)?|Mar(?:ch)?|März?|Apr(?:il)?|May|Mai|June?|Juni|July?|Juli|Aug(?:ust)?|"
    r"Sep(?:t(?:ember)?)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)"
)
ROOTS = (
    r"(?:src|lib|tests?|docs?|app|apps|bin|etc|usr|home|var|tmp|scripts|config|build|dist|public|assets|packages|notes)"
)
UNITS = (
    r"(?:%|‰|°C?|€|£|¥|EUR|USD|GBP|CHF|euros?|dollars?|ms|s|sec|seconds?|min|minutes?|h|hours?|days?|weeks?|months?|years?|"
    r"Sekunden?|Minuten?|Stunden?|Tage?n?|Wochen?|Monate?n?|Jahre?n?|mm|cm|m|km|g|kg|l|ml|[kKMGT]i?B|bytes?|tokens?|px|"
    r"Hz|kHz|MHz|GHz|W|kW|kWh|V|A|pages?|words?|Seiten|Wörter)(?![\w])"
)
CJK_UNITS = (
    r"(?:[万億千百]?(?:円|元|人|個|件|回|日|時間|時|分|秒|年|月|週間|歳|本|枚|名|页|字|次|天|小时|分钟)|[万億亿])"
)
KINDS = {
    "link": r"https?://[^\s<>\"'`)\]}、。]{1,2000}[^\s<>\"'`)\]}.,;:!?*、。]|\[\[[^\[\]\n]{1,100}\]\]",
    "mail": r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}",
    "uuid": r"(?<![0-9a-fA-F-])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![\w-])",
    "date": (
        r"(?<![\d.])\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
        r"(?![\d])|(?<![\d./])\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})(?!\.?\d)|(?<![\w.])\d{1,2}(?:\.|st|nd|rd|th)? "
        rf"{MONTHS}(?: \d{{4}})?(?!\w)|(?<!\w){MONTHS}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\w)|"
        r"\d{2,4}年\d{1,2}月(?:\d{1,2}日)?|\d{1,2}月\d{1,2}日"
    ),
    "address": (
        r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5}|/\d{1,2})?(?!\w|[.:]\d)|"
        r"(?<![\w.-])(?:localhost|[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,4}):\d{2,5}(?!\w)"
    ),
    "path": (
        r"(?<![\w:/.<])[A-Za-z]:\\(?:[\w.@+ -]{0,80}[\w)][\\/]){0,12}[\w.@+-]{0,80}\w|"
        r"(?<![\w:/.<])(?:~/|\.{1,2}/|/(?=[\w.-]{2}))(?:[\w.@+-]{1,80}+/){0,12}[\w.@+-]{0,80}\w/?|"
        rf"(?<![\w/.]){ROOTS}/(?:[\w.@+-]{{1,80}}+/){{0,12}}[\w.@+-]{{0,80}}\w|"
        r"(?<![\w/.])(?:[\w.@+-]{1,80}+[\\/]){1,12}[\w@+-]{0,80}\.[A-Za-z][A-Za-z0-9]{0,7}(?![A-Za-z0-9])|"
        r"(?<![\w/.-])(?=\w[\w-]{0,80}+\.)\w[\w-]{0,80}(?:\.[\w-]{1,20}){0,3}\.(?:py|pyi|md|txt|json|toml|ya?ml|jsx?|tsx?|html?|s?css|csv|tsv|log|"
        r"sh|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|sql|pdf|docx?|xlsx?|pptx?|odt|png|jpe?g|gif|svg|webp|mp[34]|zip|gz|"
        r"ini|cfg|conf|env|lock|gguf|ipynb|tex|bib|epub|xml|db|sqlite|bak)(?![A-Za-z0-9])"
    ),
    "name": (
        r"(?<![\w-])[A-Z][A-Z0-9]{1,30}(?:[-_][A-Z0-9]{1,30}){1,6}(?![\w-])|"  # tickets and constants
        r"(?<![\w.])v\d{1,5}(?:\.\d{1,5}){0,3}(?:-[\w.]{1,20})?(?!\w)|"
        r"(?<![\w.])\d{1,5}(?:\.\d{1,5}){2,3}(?:-[\w.]{1,20})?(?!\w|\.\d)|"
        r"(?<![\w.-])(?=[\w.-]{0,60}\d)(?=[\w.-]{0,60}[A-Za-z])"
        r"[A-Za-z0-9][A-Za-z0-9.]{0,60}(?:[-_][A-Za-z0-9.]{1,60}){1,8}(?![\w])|"
        r"(?<![\w.])[A-Za-z]\w{0,60}_\w{1,60}(?:\(\))?|(?<!\w)[A-Za-z_]\w{0,60}+(?:\.[A-Za-z_]\w{0,60}+){0,4}+\(\)|"
        r"(?<!\w)[a-z]{1,30}(?:[A-Z][a-z0-9]{1,30}){2,6}(?!\w)|(?<!\w)(?:[A-Z][a-z0-9]{1,30}){3,7}(?!\w)|"
        r"(?<![\w#&])#\d{1,7}(?!\w)|(?<![\w#])#[0-9a-fA-F]{6}(?!\w)|(?<!\S)#[^\W\d][\w/-]{1,60}"
    ),
    "hash": r"(?<![\w-])(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}(?![\w-])",
    "code": r"``?[^`\n]{2,100}``?",
    "quote": (
        r"(?<![\w\\=])\"[^\"\n]{2,60}\"(?!\w)|“[^”\n]{2,60}”|„[^“”\n]{2,60}[“”]|«[^»\n]{2,60}»|「[^」\n]{1,40}」|"
        r"『[^』\n]{1,40}』|《[^》\n]{1,40}》|(?<!\w)'[^'\n]{2,60}'(?!\w)|(?<!\w)‘[^’\n]{2,60}’(?!\w)"
    ),
    "mixed": (
        r"(?<![\w.-])(?!\d{1,6}(?:st|nd|rd|th|s|er|e|x|[kKMGT]i?B|ms|px|kg|km|cm|mm|h|min|k|B)?(?!\w))"
        r"(?=\w{0,30}\d)(?=\w{0,30}[A-Za-z])[A-Za-z0-9]{4,40}(?!\w)"
    ),
    "number": (
        rf"(?<![\w.,])[+-]?[$€£¥]?\d{{1,3}}(?:[.,' \u202f]\d{{3}}){{1,5}}(?:[.,]\d{{1,6}})?(?![\d])(?:\s?{UNITS})?|"
        rf"(?<![\w.,])[+-]?[$€£¥]\s?\d{{1,15}}(?:[.,]\d{{1,6}})?(?!\w)|"
        r"(?<![\w.,:])\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]m)?(?![\w:])|\+\d[\d /-]{6,18}\d(?!\w)|"
        rf"(?<![A-Za-z0-9_.,/])[+-]?\d{{1,15}}(?:[.,]\d{{1,15}})?(?:\s?{UNITS}|{CJK_UNITS})|"
        r"(?<![A-Za-z0-9_.,])[+-]?(?:\d{1,15}[.,]\d{1,15}|\d{3,30})(?![A-Za-z0-9_])"
    ),
}
# Beside a word of a script without spaces an identifier may begin and end.
SPACED = "A-Za-z0-9_À-ɏ"
BORDERS = {
    r"(?<![\w": f"(?<![{SPACED}",
    r"(?<!\w)": f"(?<![{SPACED}])",
    r"(?![\w": f"(?![{SPACED}",
    r"(?!\w": f"(?![{SPACED}]",
}
# Most places in a text are within or before a plain word: no identifier begins there, which these see at once.
BEGINNING = r"(?=[^\s.,;:!?)\]}>=|]|\.{1,2}/)(?:(?<![A-Za-z0-9_])|(?![A-Za-z0-9_]))"
PLAIN_WORD = r"[A-Z]?[a-zß-öø-ÿ]++[.,;:!?)\"'\]}]*+(?:\s|$)"
NO_PLAIN_WORD = rf"(?:(?={MONTHS})|(?!{PLAIN_WORD}))"

QUOTES = "\"'`“”„‘’«»"
DISTINCTIVE = re.compile(r"[A-Z0-9_.]|[^\x00-\u024f]")
FIGURE = re.compile(r"[+-]?[$€£¥]?\s?\d(?:[\d.,:'\u202f /-]*\d)?")


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of all kinds, searched for together."""
    pattern = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS.items())
    for border, spaced in BORDERS.items():
        pattern = pattern.replace(border, spaced)
    return re.compile(f"{BEGINNING}{NO_PLAIN_WORD}(?:{pattern})")


@dataclass(frozen=True, slots=True)
class Identifier:
    """A stretch of text that has to be kept as it is."""

    kind: str
    text: str

    @property
    def core(self) -> str:
        """Return the text without the quotes around it, or a figure without its unit."""
        if self.kind == "number" and (figure := FIGURE.match(self.text)):
            return figure[0]
        return self.text.strip(QUOTES) if self.kind in ("code", "quote") else self.text

    @property
    def is_distinctive(self) -> bool:
        """Tell whether it stands out by itself; a lower-case word in quotes does not."""
        return self.kind != "quote" or bool(DISTINCTIVE.search(self.core))


def find_identifiers(text: str) -> Iterator[Identifier]:
    """Yield the identifiers of a text in order; no identifier within another: a path in quotes is a quotation."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LONGEST_LINE):
            for match in _pattern().finditer(line[start : start + LONGEST_LINE]):
                if len(match[0]) <= LONGEST:
                    yield Identifier(match.lastgroup or "", match[0].strip().rstrip(".,"))
