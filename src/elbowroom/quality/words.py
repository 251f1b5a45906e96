"""The words of the written conversations: what is talked about, in three kinds of work and three languages."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["plan", "code", "research"]
Language = Literal["English", "German", "Japanese"]
KINDS: Final[tuple[Kind, ...]] = ("plan", "code", "research")
LANGUAGES: Final[tuple[Language, ...]] = ("English", "German", "Japanese")

LABELS: Final[dict[Kind, str]] = {
    "plan": """\
money | total budget | Gesamtbudget | 予算総額
money | deposit for the hall | Kaution für den Saal | 会場の保証金
date | day of the festival | Tag des Festes | 祭りの日
date | deadline for the permit | Frist für die Genehmigung | 許可の期限
time | start of the parade | Beginn des Umzugs | パレードの開始
time | last ferry home | letzte Fähre zurück | 最終フェリー
phone | phone of the caterer | Telefon des Caterers | 仕出し屋の電話
mail | mail of the harbour office | Mail des Hafenamts | 港湾事務所のメール
number | expected visitors | erwartete Besucher | 来場者の見込み
number | chairs that are ordered | bestellte Stühle | 注文した椅子
ticket | number of the permit | Nummer der Genehmigung | 許可番号
ticket | booking of the stage | Buchung der Bühne | 舞台の予約番号
url | page for volunteers | Seite für Helfer | 協力者のページ
word | main dish | Hauptgericht | 主な料理
word | place if it rains | Ort bei Regen | 雨天の場所
word | colour of the tents | Farbe der Zelte | テントの色
name | head of security | Leitung der Sicherheit | 警備の責任者
name | first band | erste Band | 最初の楽団
length | depth at the jetty | Tiefe am Steg | 桟橋の水深
weight | most load of the barge | Höchstlast des Kahns | はしけの最大積載量
date | rehearsal | Probe | 練習の日
money | fee of the second band | Gage der zweiten Band | 二番目の楽団の謝礼
time | end of the music | Ende der Musik | 音楽の終了
number | parking spaces | Parkplätze | 駐車場の台数
""",
    "code": """\
path | main module | Hauptmodul | 主モジュール
path | settings file | Einstellungsdatei | 設定ファイル
path | migration script | Migrationsskript | 移行スクリプト
path | test that fails | fehlschlagender Test | 失敗するテスト
address | staging server | Testserver | 検証サーバー
address | database host | Datenbankrechner | データベースのホスト
version | release that we build | gebaute Version | 作る版
version | oldest supported Python | ältestes unterstütztes Python | 対応する最古の版
ticket | ticket of the bug | Ticket des Fehlers | 不具合の票
ticket | follow-up ticket | Folgeticket | 後続の票
hash | last good commit | letzter guter Commit | 最後の正常なコミット
hash | commit to revert | zurückzunehmender Commit | 取り消すコミット
function | entry function | Einstiegsfunktion | 入口の関数
function | function that leaks | undichte Funktion | 漏れている関数
milliseconds | time-out of a request | Zeitlimit einer Anfrage | 要求の制限時間
milliseconds | pause between tries | Pause zwischen Versuchen | 再試行の間隔
number | size of the pool | Größe des Pools | プールの大きさ
number | rows in the table | Zeilen der Tabelle | 表の行数
url | page of the build | Seite des Builds | ビルドのページ
mail | owner of the service | Besitzer des Dienstes | サービスの担当者
word | way of caching | Art des Caches | キャッシュの方式
word | order of the rollout | Reihenfolge der Auslieferung | 配布の順序
date | code freeze | Code-Freeze | コード凍結日
constant | variable of the key | Variable des Schlüssels | 鍵の変数
""",
    "research": """\
url | main source | Hauptquelle | 主な情報源
url | data set | Datensatz | データセット
number | plants in the survey | Anlagen der Erhebung | 調査した施設
number | households asked | befragte Haushalte | 回答した世帯
money | price of one meter | Preis eines Zählers | 計器一台の価格
money | grant for each site | Förderung je Standort | 一か所の補助金
date | end of the survey | Ende der Erhebung | 調査の終了日
date | date of the hearing | Datum der Anhörung | 公聴会の日
percent | share of heat pumps | Anteil der Wärmepumpen | ヒートポンプの割合
percent | losses in the grid | Verluste im Netz | 送電の損失
power | peak load | Spitzenlast | 最大負荷
power | power of the new station | Leistung der neuen Station | 新しい発電所の出力
name | author of the report | Autorin des Berichts | 報告書の著者
name | person to ask | Ansprechperson | 問い合わせ先
mail | mail of the agency | Mail der Behörde | 役所のメール
phone | phone of the library | Telefon der Bibliothek | 図書館の電話
ticket | number of the report | Nummer des Berichts | 報告書の番号
ticket | call number | Signatur | 請求記号
path | file with the notes | Datei mit den Notizen | メモのファイル
path | table of results | Ergebnistabelle | 結果の表
word | method of the survey | Methode der Erhebung | 調査の方法
word | weakest point | schwächster Punkt | 最大の弱点
length | distance to the sea | Abstand zum Meer | 海までの距離
time | time of the interview | Zeit des Interviews | 面談の時刻
""",
}
"""What facts are about: the kind of the value, and its name in each language."""

WORDS: Final[dict[Language, tuple[str, ...]]] = {
    "English": (
        "smoked trout",
        "the old boathouse",
        "dark green",
        "write-through",
        "north before south",
        "door to door",
        "small sample",
        "lentil stew",
        "the gym of the school",
        "pale yellow",
        "least recently used",
        "by postal code",
    ),
    "German": (
        "geräucherte Forelle",
        "das alte Bootshaus",
        "dunkelgrün",
        "sofort durchschreiben",
        "Norden vor Süden",
        "von Tür zu Tür",
        "kleine Stichprobe",
        "Linseneintopf",
        "die Turnhalle",
        "blassgelb",
        "am längsten unbenutzt",
        "nach Postleitzahl",
    ),
    "Japanese": (
        "鱒の燻製",
        "古い艇庫",
        "深緑",
        "即時書き込み",
        "北から南へ",
        "戸別訪問",
        "標本の少なさ",
        "豆の煮込み",
        "学校の体育館",
        "薄い黄色",
        "最も古い順",
        "郵便番号順",
    ),
}
NAMES: Final[dict[Language, tuple[str, ...]]] = {
    "English": ("Ines Calder", "Tom Arkwright", "The Low Tide", "Maud Penrose", "Six Oars", "Rafe Ellison"),
    "German": ("Heike Brandes", "Jörn Petersen", "Die Deichläufer", "Marga Thiel", "Ebbe und Flut", "Uwe Lorenzen"),
    "Japanese": ("高瀬直美", "森田健", "潮騒楽団", "川端恵", "六櫂", "西尾亮"),
}

TOLD: Final[dict[Language, tuple[str, ...]]] = {
    "English": (
        "{label}: {value}.",
        "We settled on {value} for the {label}.",
        "As for the {label}, it is {value}.",
        "I checked, the {label} is {value}.",
        "Write down {value} as the {label}.",
    ),
    "German": (
        "{label}: {value}.",
        "{label} steht fest, und zwar {value}.",
        "Was {label} angeht: {value}.",
        "Ich habe nachgesehen, {label} ist {value}.",
        "Notiert: {label} {value}.",
    ),
    "Japanese": (
        "{label}は{value}です。",
        "{label}を{value}と決めました。",
        "{label}については{value}です。",
        "確認しました。{label}は{value}です。",
        "{label}：{value}。",
    ),
}
CHANGED: Final[dict[Language, tuple[str, ...]]] = {
    "English": (
        "The {label} has changed: it is {value} now.",
        "Correction about the {label}: {value}.",
        "The {label} is no longer {old} but {value}.",
    ),
    "German": (
        "{label} hat sich geändert: jetzt {value}.",
        "Korrektur zu {label}: {value}.",
        "{label} ist nicht mehr {old}, sondern {value}.",
    ),
    "Japanese": (
        "{label}が変わりました。今は{value}です。",
        "{label}の訂正です：{value}。",
        "{label}は{old}ではなく{value}になりました。",
    ),
}

CONSTRAINTS: Final[dict[tuple[Kind, Language], tuple[str, ...]]] = {
    ("plan", "English"): (
        "Never book anything without asking me first.",
        "I am allergic to walnuts.",
        "All prices include tax, please.",
        "Nobody under sixteen works after ten at night.",
        "Keep my sister out of the mails.",
    ),
    ("plan", "German"): (
        "Buche nie etwas, ohne mich vorher zu fragen.",
        "Ich vertrage keine Walnüsse.",
        "Alle Preise bitte mit Steuer.",
        "Niemand unter sechzehn arbeitet nach zehn Uhr abends.",
        "Meine Schwester bleibt aus den Mails heraus.",
    ),
    ("plan", "Japanese"): (
        "私に聞かずに予約しないでください。",
        "私はくるみにアレルギーがあります。",
        "価格は必ず税込みで書いてください。",
        "十六歳未満の人は夜十時以降働けません。",
        "妹にはメールを送らないこと。",
    ),
    ("code", "English"): (
        "Do not touch the public interface.",
        "Tabs, four wide, everywhere.",
        "No new dependencies.",
        "Every change needs a test that fails before it.",
        "Our customers still run the old format.",
    ),
    ("code", "German"): (
        "Die öffentliche Schnittstelle darf sich nicht ändern.",
        "Überall Tabulatoren, vier breit.",
        "Keine neuen Abhängigkeiten.",
        "Jede Änderung braucht einen Test, der vorher fehlschlägt.",
        "Unsere Kunden nutzen noch das alte Format.",
    ),
    ("code", "Japanese"): (
        "公開インターフェースは変更しないでください。",
        "字下げは必ずタブで。",
        "新しい依存は増やさない。",
        "変更には先に失敗するテストが必要です。",
        "顧客はまだ古い形式を使っています。",
    ),
    ("research", "English"): (
        "Quote only sources from after the reform.",
        "I need figures in metric units.",
        "Leave the press releases aside.",
        "The report may not exceed eleven pages.",
        "My readers know nothing about power grids.",
    ),
    ("research", "German"): (
        "Zitiere nur Quellen aus der Zeit nach der Reform.",
        "Zahlen brauche ich in metrischen Einheiten.",
        "Pressemitteilungen lassen wir beiseite.",
        "Der Bericht darf elf Seiten nicht überschreiten.",
        "Meine Leser wissen nichts über Stromnetze.",
    ),
    ("research", "Japanese"): (
        "改革より後の資料だけを引用してください。",
        "数値はメートル法で必要です。",
        "報道発表は使わない。",
        "報告書は十一ページ以内にしてください。",
        "読者は送電網を知りません。",
    ),
}
TODOS: Final[dict[tuple[Kind, Language], tuple[str, ...]]] = {
    ("plan", "English"): ("ask the fire brigade about the lanterns", "order the wristbands", "find a second boat"),
    ("plan", "German"): (
        "die Feuerwehr wegen der Laternen fragen",
        "die Armbänder bestellen",
        "ein zweites Boot finden",
    ),
    ("plan", "Japanese"): ("提灯について消防に聞く", "腕章を注文する", "二隻目の船を探す"),
    ("code", "English"): ("write the notes on the release", "bring the flaky test to rest", "measure the cold start"),
    ("code", "German"): ("die Versionshinweise schreiben", "den wackligen Test beruhigen", "den Kaltstart messen"),
    ("code", "Japanese"): ("変更履歴を書く", "不安定なテストを直す", "起動時間を測る"),
    ("research", "English"): ("compare with the older survey", "call the agency back", "draw the map of the sites"),
    ("research", "German"): ("mit der älteren Erhebung vergleichen", "die Behörde zurückrufen", "die Karte zeichnen"),
    ("research", "Japanese"): ("古い調査と比べる", "役所に折り返し電話する", "地図を描く"),
}


@dataclass(frozen=True, slots=True)
class Phrases:
    """The sentences of one language around the facts; `letters` is about how many letters make a token."""

    system: str
    todo: str
    done: str
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    filler: tuple[str, ...]
    letters: float


PHRASES: Final[dict[Language, Phrases]] = {
    "English": Phrases(
        "You are a careful assistant. You help one person with a longer piece of work and keep track of it.",
        "Still to do: {todo}.",
        "That is done now: {todo}.",
        ("Where do we stand?", "What comes next?", "Can you go through it once more?", "Does that fit together?"),
        ("I have looked at it.", "That works.", "Here is how it stands.", "Let me put it in order."),
        (
            "The weather has been mixed and the people whom I asked see it in different ways.",
            "Line {n} of the list says {m}, which is close to what was expected.",
            "Somebody should look at the corner by the window, where the light is better in the evening.",
            "In the meeting it was said that most of this had been tried before, with fair results.",
            "The figure in column {n} went from {m} to a little more, and nobody could say why.",
            "It took longer than planned, but the second half went well and the mood was good.",
            "There is an older note on this in doc_{n}.txt, which repeats what is known.",
            "We talked about it at length and came back to where we had begun.",
        ),
        4.4,
    ),
    "German": Phrases(
        "Du bist ein sorgfältiger Assistent. Du hilfst jemandem bei einer längeren Arbeit und behältst den Überblick.",
        "Noch zu tun: {todo}.",
        "Das ist jetzt erledigt: {todo}.",
        ("Wie ist der Stand?", "Was kommt als Nächstes?", "Gehst du es noch einmal durch?", "Passt das zusammen?"),
        ("Ich habe es mir angesehen.", "Das geht.", "So steht es.", "Ich ordne das einmal."),
        (
            "Das Wetter war wechselhaft, und die Leute, die ich gefragt habe, sehen es verschieden.",
            "In Zeile {n} der Liste steht {m}, und das liegt nah an dem, was erwartet war.",
            "Jemand könnte sich die Ecke am Fenster ansehen, wo das Licht am Abend besser ist.",
            "In der Sitzung hieß es, das meiste davon sei schon versucht worden, mit ordentlichem Erfolg.",
            "Die Zahl in Spalte {n} stieg von {m} auf etwas mehr, und keiner wusste, weshalb.",
            "Es dauerte länger als geplant, aber die zweite Hälfte lief gut, und die Stimmung war es auch.",
            "Dazu gibt es eine ältere Notiz in doc_{n}.txt, die wiederholt, was bekannt ist.",
            "Wir haben lange darüber gesprochen und kamen dorthin zurück, wo wir begonnen hatten.",
        ),
        3.4,
    ),
    "Japanese": Phrases(
        "あなたは注意深い助手です。一人の利用者の長い作業を手伝い、全体を把握します。",
        "まだやること：{todo}。",
        "これは終わりました：{todo}。",
        ("今どうなっていますか。", "次は何ですか。", "もう一度見てもらえますか。", "これで合っていますか。"),
        ("見ておきました。", "それで大丈夫です。", "現状はこうです。", "一度整理します。"),
        (
            "天気は変わりやすく、聞いた人たちの意見もさまざまでした。",
            "一覧の{n}行目には{m}とあり、予想に近い値です。",
            "窓際の角は夕方の光がよいので、誰かが見ておくとよいでしょう。",
            "会議では、その多くは前にも試され、結果はまずまずだったという話でした。",
            "{n}列目の数字は{m}から少し増えましたが、理由は誰にも分かりませんでした。",
            "予定より長くかかりましたが、後半は順調で雰囲気もよかったです。",
            "これについてはdoc_{n}.txtに古いメモがあり、知られていることが書かれています。",
            "長く話し合いましたが、結局は最初のところに戻りました。",
        ),
        1.35,
    ),
}
