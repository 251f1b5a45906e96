"""Texts of the kinds that models are given, and conversations made of them, the same on every run."""

import ast
import json
import random
import string
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

Message = dict[str, Any]

MODULES: Final = (
    *("argparse", "calendar", "datetime", "difflib", "gettext", "heapq", "inspect", "ipaddress", "logging/__init__"),
    *("optparse", "pathlib", "pickle", "random", "shutil", "statistics", "string", "subprocess", "tarfile"),
    *("textwrap", "threading", "turtle", "typing", "unittest/case", "urllib/request", "zipfile"),
)
JAPANESE: Final = (
    "昨日の会議で決まったことを、まず簡単にまとめておきます。",
    "新しい設定は来週の月曜日から有効になりますので、ご注意ください。",
    "このファイルには、過去三年間の売上と費用がすべて記録されています。",
    "モデルが長い文章を読むとき、どこまで覚えていられるのかは設定によって違います。",
    "価格は1,280円（税込）ですが、2024年3月末までに申し込むと割引になります。",
    "エラーが出た場合は、サーバーを一度止めてから、もう一度起動してみてください。",
    "山の上から見た景色は、写真では伝えきれないほど美しかった。",
    "彼女は静かに本を閉じて、窓の外の雨をしばらく眺めていた。",
)
CHINESE: Final = (
    "请把下面的会议记录整理成一份简短的报告，并列出所有待办事项。",
    "服务器在凌晨三点重新启动，之后所有的连接都恢复了正常。",
    "如果上下文窗口太小，模型就会忘记对话开头的内容。",
    "这个函数接收一个列表，返回其中最大的两个数字。",
    "春天来了，院子里的樱花一夜之间全都开了。",
    "价格从2023年的每公斤18.5元上涨到了今年的22元。",
)
EUROPEAN: Final = (
    "Die Einstellungen werden gespeichert, sobald das Fenster geschlossen wird; ein Neustart ist nicht nötig.",
    "Könnten Sie bitte prüfen, ob die Größe der Anhänge den zulässigen Höchstwert überschreitet?",
    "Le serveur a redémarré à trois heures du matin, et toutes les connexions ont été rétablies.",
    "L'été dernier, nous avons traversé les Pyrénées à pied, de l'Atlantique à la Méditerranée.",
    "El informe debe entregarse antes del próximo viernes; después ya no será posible añadir cambios.",
    "Она закрыла книгу, выключила свет и ещё долго слушала, как за окном шумит дождь.",
    "Τα αποτελέσματα της μέτρησης αποθηκεύονται σε ένα ξεχωριστό αρχείο.",
)
KOREAN: Final = (
    "어제 회의에서 결정된 내용을 먼저 간단히 정리해 드리겠습니다.",
    "새로운 설정은 다음 주 월요일부터 적용되니 주의해 주세요.",
    "모델이 긴 글을 읽을 때 어디까지 기억할 수 있는지는 설정에 따라 다릅니다.",
    "서버가 새벽 세 시에 다시 시작되었고, 그 뒤로 모든 연결이 정상으로 돌아왔습니다.",
    "그녀는 조용히 책을 덮고 창밖에 내리는 비를 한참 동안 바라보았다.",
)
ARABIC: Final = (
    "أعيد تشغيل الخادم في الساعة الثالثة صباحا، وعادت جميع الاتصالات إلى حالتها الطبيعية.",
    "إذا كانت نافذة السياق صغيرة جدا فسوف ينسى النموذج بداية المحادثة.",
    "يرجى تلخيص محضر الاجتماع التالي في تقرير قصير مع ذكر كل المهام المطلوبة.",
    "أغلقت الكتاب وأطفأت المصباح وظلت تستمع طويلا إلى صوت المطر.",
    "ارتفع السعر من ثمانية عشر دينارا إلى اثنين وعشرين دينارا خلال عام واحد.",
)
HINDI: Final = (
    "सर्वर सुबह तीन बजे फिर से चालू हुआ और उसके बाद सभी संपर्क सामान्य हो गए।",
    "यदि संदर्भ बहुत छोटा है तो मॉडल बातचीत की शुरुआत भूल जाएगा।",
    "कृपया नीचे दिए गए विवरण को एक छोटी रिपोर्ट में बदलें और सभी काम लिखें।",
    "उसने किताब बंद की, बत्ती बुझाई और देर तक बारिश की आवाज़ सुनती रही।",
    "नई सेटिंग अगले सोमवार से लागू होगी, इसलिए कृपया ध्यान रखें।",
)
RUSSIAN: Final = (
    "Сервер перезапустился в три часа ночи, и после этого все соединения восстановились.",
    "Если окно контекста слишком мало, модель забудет начало разговора.",
    "Пожалуйста, составьте краткий отчёт по протоколу совещания и перечислите все задачи.",
    "Новые настройки начнут действовать со следующего понедельника, обратите на это внимание.",
    "Летом мы прошли пешком через горы, и погода ни разу нас не подвела.",
)
EMOJI: Final = ("🙂", "🎉", "🚀", "❤️", "👩‍👩‍👧", "🇫🇷", "✅", "→", "…", "—", "№", "½", "☕")
SCRIPTS: Final = {
    "chinese": CHINESE,
    "japanese": JAPANESE,
    "korean": KOREAN,
    "arabic": ARABIC,
    "hindi": HINDI,
    "russian": RUSSIAN,
}
"""Sentences in other scripts than Latin, which no ratio was measured on."""
KINDS: Final = {
    "english": 34,
    "code": 16,
    "json": 12,
    "log": 10,
    "listing": 6,
    "japanese": 7,
    "chinese": 4,
    "european": 6,
    "base64": 2,
    "emoji": 3,
}
"""The kinds of text, and how many of a hundred messages are of each."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and tools of one conversation."""

    name: str
    messages: Sequence[Message]
    tools: Sequence[Message] = ()


class Texts:
    """Pieces of text by kind; `seed` says which."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.code, self.prose, self.words = library()

    def of(self, kind: str, length: int) -> str:
        """Return about `length` characters of a kind."""
        if kind in ("english", "code"):
            return self.slice(self.prose if kind == "english" else self.code, length)
        parts: list[str] = []
        while sum(map(len, parts)) < length:
            parts.append(self.part(kind))
        return "".join(parts)

    def slice(self, text: str, length: int) -> str:
        """Return a piece of a long text, from the beginning of a line on."""
        start = text.find("\n", self.chance.randrange(max(1, len(text) - length))) + 1
        return text[start : start + length]

    def part(self, kind: str) -> str:
        """Return one line or sentence of a kind."""
        pick = self.chance.choice
        match kind:
            case "json":
                return json.dumps(self.record(), indent=pick([None, None, 2])) + "\n"
            case "log":
                return self.log_line()
            case "listing":
                name = f"{pick(self.words)}_{pick(self.words)}.{pick(['py', 'md', 'so.6'])}"
                size = self.chance.randint(10, 9_999_999)
                return f"-rw-r--r-- 1 {pick(['root', 'me'])} {size:>9} Mar {self.time('%d %H:%M')} {name}\n"
            case "base64":
                return "".join(self.chance.choices(string.ascii_letters + string.digits + "+/", k=76)) + "\n"
            case "emoji":
                return f"{pick(self.words)} {pick(EMOJI)} {pick(self.words)} {pick(EMOJI)}{pick(EMOJI)}! "
            case "european":
                return pick(EUROPEAN) + " "
            case _:
                return pick({"japanese": JAPANESE, "chinese": CHINESE}[kind])

    def record(self) -> dict[str, object]:
        """Return an object with values of several types."""
        chance = self.chance
        values = (chance.randint(0, 10**6), chance.choice(self.words), chance.random(), None, True)
        return {chance.choice(self.words): chance.choice(values) for _ in range(6)}

    def log_line(self) -> str:
        """Return a line with times, hexadecimal and other numbers."""
        pick, bits = self.chance.choice, self.chance.getrandbits(40)
        time = f"{self.time('%Y-%m-%dT%H:%M:%S')}.{self.chance.randint(0, 999):03}Z"
        value = f"{pick(self.words)}={self.chance.randint(0, 99999)}"
        return f"{time} {pick(['INFO', 'WARN', 'DEBUG'])} [{pick(self.words)}] 0x{bits:010x} {value}\n"

    def time(self, pattern: str) -> str:
        """Return a time of the year 2024, written by a pattern of `strftime`."""
        return datetime.fromtimestamp(1_704_067_200 + self.chance.randrange(31_536_000), UTC).strftime(pattern)

    def some(self) -> str:
        """Return a text of any kind, most of them short."""
        kind = self.chance.choices(list(KINDS), weights=list(KINDS.values()))[0]
        return self.of(kind, round(40 * 100 ** self.chance.random()))


@cache
def library() -> tuple[str, str, Sequence[str]]:
    """Return the code of the modules, their longer docstrings, and the words of these."""
    folder = Path(sysconfig.get_path("stdlib"))
    sources = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES]
    prose = "\n\n".join(docstring for source in sources for docstring in docstrings(source))
    return "\n\n".join(sources), prose, sorted({word.lower() for word in prose.split() if word.isalpha()})


def docstrings(source: str) -> Iterator[str]:
    """Yield the longer docstrings of a Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) > 200:
                yield text


def tool_definition(texts: Texts, number: int) -> Message:
    """Return the definition of a tool with one to four parameters."""
    pick = texts.chance.choice
    properties = {
        pick(texts.words): {
            "type": pick(["string", "string", "integer", "boolean", "number"]),
            "description": " ".join(texts.chance.choices(texts.words, k=8)),
        }
        for _ in range(texts.chance.randint(1, 4))
    }
    return {
        "type": "function",
        "function": {
            "name": f"{pick(texts.words)}_{pick(texts.words)}_{number}",
            "description": texts.of("english", 160).replace("\n", " "),
            "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]},
        },
    }


def generated(seed: int, exchanges: int = 6) -> Conversation:
    """Return a conversation of several exchanges, half of them with tools that are called now and then."""
    texts = Texts(seed)
    chance = texts.chance
    messages: list[Message] = []
    if chance.random() < 0.7:
        messages.append({"role": "system", "content": texts.of("english", chance.randint(60, 2000))})
    tools = [tool_definition(texts, number) for number in range(chance.randint(2, 8))] if chance.random() < 0.5 else []
    for _ in range(exchanges):
        messages.append({"role": "user", "content": texts.some()})
        if tools and chance.random() < 0.5:
            messages += tool_use(texts, chance.choice(tools)["function"]["name"])
        messages.append({"role": "assistant", "content": texts.some()})
    return Conversation(f"generated {seed}", messages, tools)


def tool_use(texts: Texts, name: str) -> list[Message]:
    """Return a call and its result."""
    identifier = "".join(texts.chance.choices(string.ascii_letters + string.digits, k=9))
    arguments = json.dumps({texts.chance.choice(texts.words): texts.chance.choice(texts.words)})
    call = {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identifier, "content": texts.some()},
    ]


def transcripts(folder: Path) -> list[Conversation]:
    """Return the recorded conversations in a folder, with ids of calls that every template takes."""
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "messages" in content:
            found.append(Conversation(path.stem, [with_short_ids(message) for message in content["messages"]]))
    return found


def with_short_ids(message: Message) -> Message:
    """Return a message whose ids of calls have nine letters and digits, and whose content is never null."""

    def short(identifier: object) -> str:
        letters = [character for character in str(identifier) if character.isalnum()]
        return "".join(letters)[-9:].rjust(9, "0")

    result = {**message, "content": message.get("content") or ""}
    if message.get("tool_calls"):
        result["tool_calls"] = [{**call, "id": short(call.get("id"))} for call in message["tool_calls"]]
    if "tool_call_id" in message:
        result["tool_call_id"] = short(message["tool_call_id"])
    return result


def plain_prompts(seed: int) -> Iterator[tuple[str, list[Message]]]:
    """Yield a kind of text and a chat with nothing else in it: single sentences and whole pages, in every script."""
    texts = Texts(seed)
    for kind, sentences in SCRIPTS.items():
        for text in (*sentences, " ".join(sentences), "\n".join(sentences * 4)):
            yield kind, [{"role": "user", "content": text}]
    for kind in ("emoji", "base64", "english", "code", "european"):
        for length in (100, 300, 1000, 3000):
            yield kind, [{"role": "user", "content": texts.of(kind, length)}]
