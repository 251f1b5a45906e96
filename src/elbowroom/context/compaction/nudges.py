"""Tells messages that only nudge a running task on, such as "go on" or "thanks", from those that ask for something."""

import re
import unicodedata

LONGEST_NUDGE = 80
LONGEST_WITHOUT_WORDS = 8
WORDS = {
    "English": (
        "a ahead alright and answer carry continue correct do exactly fine finish further go going good great "
        "it just keep let's lets more next no nope now ok okay on one perfect please proceed resume retry "
        "right same so step sure thank thanks that the then thing this try again with work writing yeah yep "
        "yes you your"
    ),
    "German": (
        "also antwort bitte danke das die du es fahr fort fortfahren fortsetzen gerne genau gut ja jetzt jo "
        "klar los mach mache machen mehr mit nächste nächsten nächster nein noch nochmal einmal passt schritt "
        "schreib so super und weiter weitermachen weiterschreiben"
    ),
    "French": (
        "accord allez bien bon c'est continuer continuez d'accord encore et la le merci mais non oui plaît "
        "plus poursuis poursuivez reprends s'il stp suite svp te va vas vas-y vous y ça"
    ),
    "Spanish": (
        "adelante bueno claro con continua continuar continúa continúe dale de eso está favor gracias más muy "
        "otra por prosigue que sí si siga sigue siguiente vale vez ya"
    ),
    "Portuguese": "avançar continue faça isso mais manda obrigado pode prossiga próximo segue seguir sim vai",
    "Italian": "ancora avanti bene certo continuare esatto fallo grazie per piacere procedi prosegui sì va vai",
    "Dutch": "alsjeblieft doe doorgaan door ga goed graag ja maar nee verder volgende",
    "Polish": "dalej dobrze kontynuuj nie proszę tak",
    "Russian and Ukrainian": (
        "ага да давай далее дальше ещё еще конечно нет ок пожалуйста продовжуй продолжай продолжайте продолжи "
        "спасибо так хорошо"
    ),
    "Turkish": "devam et evet hadi lütfen tamam",
    "Arabic": "استمر أكمل اكمل تابع حسنا لا من فضلك نعم واصل",
    "Hindi": "आगे करें कृपया जारी ठीक बढ़ें रखें रखो हाँ है",
    "Korean": "계속 계속해 계속해줘 계속해주세요 계속하세요 네 다음 부탁해요 아니요 예 응 이어서 좋아 좋아요",
    "Vietnamese": "tiếp tục làm ơn vâng được đi",
    "Indonesian": "baik lanjut lanjutkan silakan tolong ya",
}
NUDGING = frozenset(word for words in WORDS.values() for word in words.split())
PHRASES = re.compile(
    # Chinese and Japanese put no spaces between words: these may follow one another.
    r"(?:请|請)?(?:继续|繼續|接着|接著|往下)(?:吧|说|說|写|寫|做|下去)?|下一步|下一个|下一個|好的?|行|可以|是的?|对|對|不|没问题|"
    r"谢谢|謝謝|嗯|"
    r"(?:続|つづ)(?:けて?|き[をは]?)|(?:お願|おねが)い(?:します|いたします)?|(?:ください|下さい)|次(?:へ|に|は)?|進めて|"
    r"どうぞ|はい|うん|ええ|いいえ|了解(?:です|しました)?|わかりました|ありがとう(?:ございます)?|もっと|もう一度|さらに|です|それで"
)


def is_nudge(text: str) -> bool:
    """Tell whether a message only says to go on, agrees, declines or thanks, in one of many languages.

    A nudge means nothing without the request before it. A doubtful message counts as one: that costs one pinned message
    more, the other mistake would lose the task.
    """
    if len(text) > LONGEST_NUDGE:
        return False
    said = PHRASES.sub(" ", unicodedata.normalize("NFC", text).casefold().replace("’", "'"))
    words = re.findall(r"(?:[^\W_]|['\-\u0900-\u0903\u093a-\u094f])+", said)
    if not words or all(word.isdecimal() and len(word) <= 2 for word in words):
        return len("".join(said.split())) <= LONGEST_WITHOUT_WORDS
    return all(word in NUDGING for word in words)
