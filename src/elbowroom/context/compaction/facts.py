"""Finds what a summary must not lose, the user's conditions and identifiers, and which of it a text does not tell."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Any

from elbowroom.context.compaction.division import carried_by, is_summary
from elbowroom.context.compaction.identifiers import KINDS, Identifier, find_identifiers
from elbowroom.context.seam import StopFinder
from elbowroom.context.transcript import Group, Message, text_of

MOST_FACTS = 400
SAID = frozenset(KINDS)
TOUCHED = frozenset({"link", "mail", "uuid", "address", "path", "name", "hash"})
"""Kinds that count in calls and results: figures and quotes there are data, and the whole can be read again."""
CLAUSE = re.compile(r"[^.,;:!?()\[\]|\n\"]*$")
WORD = re.compile(r"[A-Za-z0-9]+")
WORDS_BEFORE = 4
LONGEST_CLAUSE = 80
OF_OTHERS = re.compile(r"- (?:The assistant said: |It (?:used |read \d|ran \d|\d))")
"""How a digest's lines begin that quote the assistant or a tool: what must hold there is no condition of the user's."""
QUOTING = re.compile(rf"{OF_OTHERS.pattern}|- The (?:user|system) said: |\(\d+ steps? (?:is|are) not listed")
"""How the lines of a digest begin, which no pruning agent has written."""
OF_OURS = re.compile(
    r"\btool_output_cache\w*(?:\([^()\n]*\))?|\bref(?:_id)?=\"?\w{12}\b\"?|\b[\d,]+ (?:characters|bytes)\b"
)
"""What elbowroom itself writes beside shortened results: it is nobody's fact."""
MOST_RULES = 16
"""Lines of an earlier summary that must hold, as a pruning agent has worded them: each words them anew."""
SHORTEST_RULE = 4  # characters
SENTENCE_ENDS = (".", "!", "。", "！")
TO_DO = re.compile(r"\W*(?:to[- ]?dos?\b|open\b|pending\b|next\b|noch\b|offen\b|まだ|未)", re.IGNORECASE)
"""A to-do may be done since: whether it is open, only the pruning agent can tell."""
MOST_DOUBTFUL = 2
LONGEST_READ = 50_000
"""So many letters at the beginning and at the end of a text that stays are searched for facts."""
AROUND = 40

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
        r"^(?:nobody|no one)\b|"
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
LIST_MARK = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")


class Weight(IntEnum):
    """The weight of a fact, the heaviest first: the user's words before the assistant's, those before data."""

    CONDITION = 0
    RULE = 1  # of an earlier summary
    OF_AGENT = 2  # in a pruning agent's words
    OF_USER = 3
    OF_SUMMARY = 4  # in what code has listed
    OF_ASSISTANT = 5
    OF_CALL = 6
    OF_RESULT = 7


@dataclass(frozen=True, slots=True)
class Fact:
    """A stretch of text that has to be told as `text`; a text that holds `core` or `whole` has told it."""

    core: str
    whole: str
    text: str
    weight: Weight


def facts_of(group: Group) -> Iterator[Fact | None]:
    """Yield the facts of a group, and None after each stretch of work of a few milliseconds at most.

    Of a very long message only beginning and end are read, of a summary the facts that it carried.
    """
    if is_summary(group):
        yield from _carried(group)
    elif group.kind == "user":
        yield from map(_condition, find_conditions(group.text))
        yield None
        yield from _identified(group.text, SAID, Weight.OF_USER)
    elif group.kind != "system":
        for message in group.messages:
            if message.get("role") == "assistant":
                yield from _identified(text_of(message), SAID, Weight.OF_ASSISTANT)
                yield from _identified("\n".join(_arguments(message)), TOUCHED, Weight.OF_CALL)
            elif message.get("role") == "tool":
                yield from _identified(text_of(message), TOUCHED, Weight.OF_RESULT)


def _carried(summary: Group) -> Iterator[Fact | None]:
    """Yield the facts of a summary: what must hold, line by line, and identifiers, those of its own words at first."""
    carried = carried_by([summary])
    told, listed = f"{carried.retain}\n{carried.summary}", carried.facts
    for line in f"{told}\n{listed}".split("\n"):  # a tool's text may have other breaks
        if line.startswith("- ") and not OF_OTHERS.match(line):
            yield from map(_condition, find_conditions(line))
    yield None
    rules = [*carried.retain.split("\n"), *(line for line in listed.split("\n") if line.endswith(SENTENCE_ENDS))]
    for rule in islice(filter(None, (LIST_MARK.sub("", line, count=1).strip() for line in rules)), MOST_RULES):
        if SHORTEST_RULE <= len(rule) <= LONGEST_CONDITION and not TO_DO.match(rule):
            yield Fact(rule, rule, rule, Weight.RULE)
    own = [line for line in told.split("\n") if not QUOTING.match(line)]
    yield from _identified("\n".join(own), SAID, Weight.OF_AGENT)
    yield from _identified(f"{told}\n{listed}", SAID, Weight.OF_SUMMARY)


def _condition(sentence: str) -> Fact:
    return Fact(sentence, sentence, sentence, Weight.CONDITION)


def find_conditions(text: str) -> Iterator[str]:
    """Yield the sentences that set a condition, each in one line; of a very long one the part around its mark.

    Code, quoted lines and questions set none. Of a long text only beginning and end are read: a user's own words stand
    there, pasted text between.
    """
    text = QUOTED_LINE.sub("", FENCED.sub("\n", text))
    if len(text) > BEGINNING + ENDING:
        text = f"{text[:BEGINNING]}\n{text[-ENDING:]}"
    start = 0
    for end in [*StopFinder().places(text), len(text)]:
        sentence = " ".join(LIST_MARK.sub("", text[start:end], count=1).split())
        start = end
        if not sentence.endswith(("?", "？")) or REQUEST.search(sentence):
            mark = MARK.search(sentence.lower())
            if mark is not None:
                yield _around(sentence, mark.start())


def _around(sentence: str, mark: int) -> str:
    """Return a sentence, or the part of a long one around its mark, in whole words."""
    if len(sentence) <= LONGEST_CONDITION:
        return sentence
    start = max(0, min(mark - LONGEST_CONDITION // 3, len(sentence) - LONGEST_CONDITION))
    cut = sentence[start : start + LONGEST_CONDITION]
    if start:
        cut = f"… {cut.partition(' ')[2] or cut}"
    return cut if start + LONGEST_CONDITION >= len(sentence) else f"{cut.rpartition(' ')[0] or cut} …"


def _arguments(message: Message) -> Iterator[str]:
    """Yield the texts that a message passes to tools."""
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments") or ""
        try:
            yield from _strings(json.loads(arguments) if isinstance(arguments, str) else arguments)
        except (ValueError, RecursionError):
            yield str(arguments)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _identified(text: str, kinds: frozenset[str], weight: Weight) -> Iterator[Fact | None]:
    """Yield the first identifiers of a text; those in an assistant's words have to stand out."""
    if not text:
        return
    most, beginning, end = READ[weight]
    if len(text) > beginning + end:
        text = f"{text[:beginning]}\n{text[-end:]}"
    if weight in (Weight.OF_SUMMARY, Weight.OF_AGENT, Weight.OF_RESULT):
        text = OF_OURS.sub(" ", text)
    found = find_identifiers(text, kinds)
    distinctive = (each for each in found if each.is_distinctive or weight is not Weight.OF_ASSISTANT)
    for identifier in islice(distinctive, most):
        yield Fact(identifier.core, identifier.text, _in_context(identifier, text), weight)
    yield None


def _in_context(identifier: Identifier, text: str) -> str:
    """Return an identifier; a figure, which alone would say nothing, with the few words before it."""
    if identifier.kind != "number":
        return identifier.text
    clause = CLAUSE.search(text[max(0, identifier.start - LONGEST_CLAUSE) : identifier.start])
    words = [word for word in clause[0].split() if word.isalnum()] if clause else []
    return " ".join([*words[-WORDS_BEFORE:], identifier.text])


def lost(facts: Iterable[Fact], held: Sequence["Held"]) -> list[Fact]:
    """Return the facts that none of the texts hold, by weight; each once, and none that stands in another before it.

    There are at most `MOST_FACTS`.
    """
    missing: list[Fact] = []
    seen: set[str] = set()
    listed = ""
    for fact in sorted(facts, key=lambda fact: fact.weight):
        if len(missing) >= MOST_FACTS:
            break
        is_told = fact.core in seen or any(texts.tells(fact) for texts in held)
        if not is_told and not _stands_in(fact.core, listed):
            missing.append(fact)
            listed += f"{fact.text}\n"
        seen.add(fact.core)
    return missing


def _read_of(text: str) -> str:
    """Return what is read of a text: of a very long one the beginning and the end, since the event loop waits."""
    return text if len(text) <= 2 * LONGEST_READ else f"{text[:LONGEST_READ]}\n{text[-LONGEST_READ:]}"


class Held:
    """Texts that can be asked whether they hold a fact, fast where they do not."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = ""
        self._words = set[str]()
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        """Add texts. Of very many, add some at a time: the event loop waits."""
        more = " ".join("\n".join(map(_read_of, texts)).split())
        self._words.update(WORD.findall(more))
        self._text += f" {more}"

    def tells(self, fact: Fact) -> bool:
        """Tell whether a fact stands in the texts, a figure with its unit or without."""
        return self._holds(fact.core) or (fact.whole != fact.core and self._holds(fact.whole))

    def _holds(self, core: str) -> bool:
        """Tell whether this stands in one of the texts, and not merely as a part of something longer."""
        return self._words.issuperset(WORD.findall(core)) and _stands_in(" ".join(core.split()), self._text)


def _stands_in(core: str, text: str) -> bool:
    """Tell whether a text holds this, and not merely as a part of something longer, as 18192 holds 8192."""
    place, doubtful = text.find(core), 0
    while place != -1:
        before, after = text[place - 1 : place], text[place + len(core) : place + len(core) + 2]
        if not (_joins(before, core[:1]) or _joins(core[-1:], after[:1]) or re.fullmatch(r"[.,]\d", after)):
            return True
        if doubtful < MOST_DOUBTFUL and _is_found(core, text, place):
            return True
        place, doubtful = text.find(core, place + 1), doubtful + 1
    return False


def _is_found(core: str, text: str, place: int) -> bool:
    """Tell whether a text at this place, though joined to something, still counts as an identifier."""
    start = max(0, place - AROUND)
    around = find_identifiers(text[start : place + len(core) + AROUND])
    return any(core in (found.core, found.text) for found in around)


def _joins(left: str, right: str) -> bool:
    """Tell whether two characters make one word; scripts without spaces have no word borders to look for."""
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()


READ = {
    Weight.OF_USER: (200, 12_000, 4000),
    Weight.OF_AGENT: (200, 12_000, 4000),
    Weight.OF_SUMMARY: (400, 30_000, 10_000),
    Weight.OF_ASSISTANT: (60, 6000, 2000),
    Weight.OF_CALL: (30, 3000, 500),
    Weight.OF_RESULT: (30, 3000, 500),
}
"""How many identifiers are taken from a text, and how many characters are read at its beginning and at its end."""
