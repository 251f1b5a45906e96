"""Finds the sentences that a summary has to quote: the conditions that somebody sets, and what has changed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from elbowroom.context.compaction.facts.identifiers import find_identifiers
from elbowroom.context.outputs import CHANGED, LONGEST_CHANGE
from elbowroom.context.seam import StopFinder

LONGEST_CONDITION = 240
BEGINNING, ENDING = 6000, 2000
MARKS = {
    "English": (
        r"must(?:n['’]t)?\b|never\b(?! mind)|always\b|exactly \w+|(?:make|be) sure\b|ensure\b|avoid\b|"
        r"(?<!\bi )(?<!\bwe )(?<!\byou )(?<!\bthey )\b(?:do not|don['’]t)\b(?! know| think| worry| mind| understand)|"
        r"at (?:most|least)\b|(?:no|not) (?:more|less|fewer|later|longer|earlier) than\b|up to \d|"
        r"only (?:use|write|read|edit|change|answer|reply|in|for|when|if|with|the|on|after|before)\b|\w+ only\b|"
        r"without (?:any|\w+ing)\b|instead of\b|except\b|unless\b|from now on\b|"
        r"(?:has|have|needs?) to be\b|should(?:n['’]t| not| only| always| never| be)\b|may not\b|"
        r"(?:can ?not|can['’]t) (?:exceed|be)\b|"
        r"allerg(?:y|ic)\b|no (?:new|more|other|further) |(?:leave|keep) .{1,40}? (?:aside|out)\b|"
        r"every(?: \w+){1,3} needs\b|"
        r"^(?:nobody|no one)\b|everywhere\b|throughout\b|please (?:with|without|as|in)\b|"
        r"^(?:all|every|each)\b.{1,60}\bplease\b|"
        r"^i need (?!you\b|to\b|help\b|an? |some\b).{1,60}? (?:in|with|without)\b|"
        r"^(?:my|our) (?:\w+ )?(?:audience|boss|children|client|colleague|company|customer|famil|husband|"
        r"kid|partner|reader|school|student|team|user|wife)(?:s|y|ies)?\b|"
        r"not allowed\b|forbidden\b|required\b|i(?:['’]d| would)? prefer\b|due (?:by|on)\b|"
        r"by (?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|tonight|noon|midnight|the end)\b|"
        r"(?:remember|note|important|deadline|rule|constraint|requirement|limit|condition)s?"
        r"\b(?::| that\b| is\b| are\b)"
    ),
    "German": (
        r"muss(?:t|en)?\b|müssen\b|soll(?:st|en|te|ten)?\b|darf(?:st)?\b|dürfen\b|nie(?:mals)?\b|"
        r"(?<!noch )\bimmer\b(?! noch| wieder| mehr)|(?:auf )?keinen fall\b|keinesfalls\b|unbedingt\b|"
        r"(?:höchstens|mindestens|maximal|spätestens|ausschließlich)\b|"
        r"nicht (?:mehr|länger|weniger|später) als\b|"
        r"bitte (?:\w+ ){0,3}(?:nicht|nur|kein\w*)\b|\b(?:verwende|benutze|nutze|schreibe?|ändere|lösche|nimm|"
        r"antworte)\b.{0,80}\b(?:nicht|nur|kein\w*|ohne)\b|achte? (?:bitte )?darauf\b|wichtig\b|frist\b|"
        r"^niemand\b|jede[rs]? .{1,40}? braucht\b|allergisch\b|vertrage? kein\w*|keine (?:neuen|anderen|weiteren)\b|"
        r"bitte (?:mit|ohne|als|in|im|auf)\b|^(?:alle|jede[rs]?|sämtliche)\b.{1,60}\bbitte\b|überall\b|"
        r"(?:zitiere?|zeige?|nenne?|gib|liefere?|erstelle?|behalte?) (?:\w+ ){0,4}(?:nur|nicht|keine?)\b|"
        r"(?:brauche ich|^ich brauche) (?:\w+ ){0,3}(?:in|mit|ohne)\b|"
        r"^(?:mein|unser)e?[nrms]? (?:\w+ )?(?:chef|familie|firma|frau|kind|klient|kolleg|kund|leser|mann|nutzer|"
        r"partner|publikum|schul|schüler|stud|team)\w*|"
        r"bleib(?:t|en)? .{1,40}? (?:heraus|draußen)\b|beiseite\b|"
        r"merke? dir\b|ab (?:jetzt|sofort)\b|statt(?:dessen)?\b|bis (?:zum|spätestens)\b"
    ),
    "French, Spanish, Portuguese, Italian": (
        r"\bil faut\b|\bjamais\b|\btoujours\b|\buniquement\b|\bseulement\b|\bau (?:plus|moins)\b|\bdoi(?:t|s|vent)\b|"
        r"\binterdit|\b(?:nunca|jamás|siempre|sempre|mai|solamente|únicamente|somente|soltanto|solo|sólo|"
        r"deb(?:e|en|es)|dev(?:e|ono|em)|hay que|como máximo|al menos|pelo menos|almeno|obligatorio|"
        r"obrigatório|obbligatorio|prohibido|proibido|vietato)\b|\b(?:no uses?|não use|non usare|n['’]utilisez?)\b"
    ),
    "Russian": r"\b(?:никогда|всегда|обязательно|нельзя|только|не более|не менее|должн\w+|запрещ\w+)\b",
    "Chinese, Japanese, Korean": (
        r"(?<!すみ)(?<!あり)(?<!かり)(?<!しれ)ません(?:。|$)|(?<!では)(?<!じゃ)(?<!しれ)(?<!少)ない(?:。|$)|必要です|"
        r"^(?:私たち|私|うち|弊社|当社)?の?(?:顧客|読者|利用者|お客|社員|上司|家族|子ども|妻|夫|生徒)\w{0,2}?は|"
        r"必ず|絶対に|禁止|ないで|てはいけ|てはなら|なければな|なくてはな|アレルギー|ないこと|以内|以下に|までに|だけ(?:を|に|で)|のみ|必须|必須|务必|務必|"
        r"不要|不得|不能|不可|切勿|只能|只用|最多|至少|一定要|始终|반드시|절대|항상|하지 ?마|금지|이내|만 사용"
    ),
}
"""Marks in small letters. Those of the first two languages stand at the beginning of a word without saying so."""
# No mark begins within or right after a word of Latin letters, which the first two see at once.
MARK = re.compile(rf"(?:(?=[^\x00-\x7f])|\b(?=\w))(?:{'|'.join(MARKS.values())})")
REQUEST = re.compile(r"\b(?:please|bitte|make sure|s'il|por favor)\b", re.IGNORECASE)
FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
LIST_MARK = re.compile(r"\A\s*(?:[-*+•]|\d{1,3}[.)])\s+")


MOST_CHANGES = 8
FROM_TO = ("no longer", "changed from", "nicht mehr", "von", "ではなく", "から", "不再是")
"""How a mark begins whose sentence names the old value before the new."""


def find_conditions(text: str) -> Iterator[str]:
    """Yield the sentences that set a condition, each in one line; of a very long one the part around its mark.

    Code, quoted lines and questions set none. Of a long text only beginning and end are read: a user's own words stand
    there, pasted text between.
    """
    for sentence in _sentences(text):
        if not sentence.endswith(("?", "？")) or REQUEST.search(sentence):
            mark = MARK.search(sentence.lower())
            if mark is not None:
                yield _around(sentence, mark.start())


@dataclass(frozen=True, slots=True)
class Change:
    """A sentence that says what holds now; `newest` is the value that it names last, `outdated` those before it.

    A sentence without values stands for itself.
    """

    sentence: str
    newest: str
    outdated: tuple[str, ...] = ()


def find_changes(text: str) -> Iterator[Change]:
    """Yield the first sentences that say that something has changed; those that were cut or are long say nothing."""
    if CHANGED.search(text.lower()):
        yield from islice(filter(None, map(_change, _sentences(text))), MOST_CHANGES)


def _change(sentence: str) -> Change | None:
    mark = CHANGED.search(sentence.lower())
    if mark is None or len(sentence) > LONGEST_CHANGE or sentence.endswith(("?", "？", "…")):
        return None
    values = [found.core for found in find_identifiers(sentence)]
    if not values:
        return Change(sentence, sentence)
    names_both = len(values) > 1 and mark[0].startswith(FROM_TO)
    return Change(sentence, values[-1], tuple(values[:-1]) if names_both else ())


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text outside of code and quoted lines, each in one line; of a long one both ends."""
    text = QUOTED_LINE.sub("", FENCED.sub("\n", text))
    if len(text) > BEGINNING + ENDING:
        text = f"{text[:BEGINNING]}\n{text[-ENDING:]}"
    start = 0
    for end in [*StopFinder().places(text), len(text)]:
        yield " ".join(LIST_MARK.sub("", text[start:end], count=1).split())
        start = end


def _around(sentence: str, mark: int) -> str:
    """Return a sentence, or the part of a long one around its mark, in whole words."""
    if len(sentence) <= LONGEST_CONDITION:
        return sentence
    start = max(0, min(mark - LONGEST_CONDITION // 3, len(sentence) - LONGEST_CONDITION))
    cut = sentence[start : start + LONGEST_CONDITION]
    if start:
        cut = f"… {cut.partition(' ')[2] or cut}"
    return cut if start + LONGEST_CONDITION >= len(sentence) else f"{cut.rpartition(' ')[0] or cut} …"
