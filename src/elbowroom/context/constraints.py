"""Finds the sentences in which a user sets a condition: what must, must never, always, only or at most be."""

import re
from collections.abc import Iterator

from elbowroom.context.seam import StopFinder

LONGEST = 240
BEGINNING, ENDING = 6000, 2000
MARKS = {
    "English": (
        r"\bmust(?:n['’]t)?\b|\bnever\b(?! mind)|\balways\b|\bexactly \w+|\b(?:make|be) sure\b|\bensure\b|\bavoid\b|"
        r"(?<!\bi )(?<!\bwe )(?<!\byou )(?<!\bthey )\b(?:do not|don['’]t)\b(?! know| think| worry| mind| understand)|"
        r"\bat (?:most|least)\b|\b(?:no|not) (?:more|less|fewer|later|longer|earlier) than\b|\bup to \d|"
        r"\bonly (?:use|write|read|edit|change|answer|reply|in|for|when|if|with|the|on|after|before)\b|\b\w+ only\b|"
        r"\bwithout (?:any|\w+ing)\b|\binstead of\b|\bexcept\b|\bunless\b|\bfrom now on\b|"
        r"\b(?:has|have|needs?) to be\b|\bshould(?:n['’]t| not| only| always| never| be)\b|\bmay not\b|"
        r"\b(?:can ?not|can['’]t) (?:exceed|be)\b|"
        r"\bnot allowed\b|\bforbidden\b|\brequired\b|\bi(?:['’]d| would)? prefer\b|\bdue (?:by|on)\b|"
        r"\bby (?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|tonight|noon|midnight|the end)\b|"
        r"\b(?:remember|note|important|deadline|rule|constraint|requirement|limit|condition)s?"
        r"\b(?::| that\b| is\b| are\b)"
    ),
    "German": (
        r"\bmuss(?:t|en)?\b|\bmüssen\b|\bsoll(?:st|en|te|ten)?\b|\bdarf(?:st)?\b|\bdürfen\b|\bnie(?:mals)?\b|"
        r"(?<!noch )\bimmer\b(?! noch| wieder| mehr)|\b(?:auf )?keinen Fall\b|\bkeinesfalls\b|\bunbedingt\b|"
        r"\b(?:höchstens|mindestens|maximal|spätestens|ausschließlich)\b|"
        r"\bnicht (?:mehr|länger|weniger|später) als\b|"
        r"\bbitte (?:\w+ ){0,3}(?:nicht|nur|kein\w*)\b|\b(?:verwende|benutze|nutze|schreibe?|ändere|lösche|nimm|"
        r"antworte)\b.{0,80}\b(?:nicht|nur|kein\w*|ohne)\b|\bachte? (?:bitte )?darauf\b|\bwichtig\b|\bFrist\b|"
        r"\bmerke? dir\b|\bab (?:jetzt|sofort)\b|\bstatt(?:dessen)?\b|\bbis (?:zum|spätestens)\b"
    ),
    "French, Spanish, Portuguese, Italian": (
        r"\bil faut\b|\bjamais\b|\btoujours\b|\buniquement\b|\bseulement\b|\bau (?:plus|moins)\b|\bdoi(?:t|s|vent)\b|"
        r"\binterdit|\b(?:nunca|jamás|siempre|sempre|mai|solamente|únicamente|somente|soltanto|solo|sólo|"
        r"deb(?:e|en|es)|dev(?:e|ono|em)|hay que|como máximo|al menos|pelo menos|almeno|obligatorio|"
        r"obrigatório|obbligatorio|prohibido|proibido|vietato)\b|\b(?:no uses?|não use|non usare|n['’]utilisez?)\b"
    ),
    "Russian": r"\b(?:никогда|всегда|обязательно|нельзя|только|не более|не менее|должн\w+|запрещ\w+)\b",
    "Chinese, Japanese, Korean": (
        r"必ず|絶対に|禁止|ないで|てはいけ|てはなら|なければな|なくてはな|以内|以下に|までに|だけ(?:を|に|で)|のみ|必须|必須|务必|務必|"
        r"不要|不得|不能|不可|切勿|只能|只用|最多|至少|一定要|始终|반드시|절대|항상|하지 ?마|금지|이내|만 사용"
    ),
}
# No mark begins within or behind a word of Latin letters, which the first two see at once.
MARK = re.compile(rf"(?:(?=[^\x00-\x7f])|\b(?=\w))(?:{'|'.join(MARKS.values())})", re.IGNORECASE)
REQUEST = re.compile(r"\b(?:please|bitte|make sure|s'il|por favor)\b", re.IGNORECASE)
FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
LIST_MARK = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")


def find_constraints(text: str) -> Iterator[str]:
    """Yield the sentences that set a condition, each in one line, the middle of a very long one where its mark is.

    Code, quoted lines and questions set none. Of a long text only beginning and end are read: what a user says
    stands there, what they pasted between.
    """
    text = QUOTED_LINE.sub("", FENCED.sub("\n", text))
    if len(text) > BEGINNING + ENDING:
        text = f"{text[:BEGINNING]}\n{text[-ENDING:]}"
    start = 0
    for end in [*StopFinder().places(text), len(text)]:
        sentence = " ".join(LIST_MARK.sub("", text[start:end], count=1).split())
        start = end
        if not sentence.endswith(("?", "？")) or REQUEST.search(sentence):
            mark = MARK.search(sentence)
            if mark is not None:
                yield _around(sentence, mark.start())


def _around(sentence: str, mark: int) -> str:
    """Return a sentence, or what of a long one stands around its mark, in whole words."""
    if len(sentence) <= LONGEST:
        return sentence
    start = max(0, min(mark - LONGEST // 3, len(sentence) - LONGEST))
    cut = sentence[start : start + LONGEST]
    if start:
        cut = f"… {cut.partition(' ')[2] or cut}"
    return cut if start + LONGEST >= len(sentence) else f"{cut.rpartition(' ')[0] or cut} …"
