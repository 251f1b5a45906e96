"""Texts of many scripts and of many kinds of material, that no ratio and no bound was measured on."""

import base64
import json
import random
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

SCRIPTS = Path(__file__).with_name("many_scripts.txt")
MINIFIED = (
    '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?module.exports=t():e.Till=t()}(this,function()'
    '{"use strict";var e=function(e,t){this.n=e||0,this.q=[],this.o=t||{}};e.prototype.add=function(e){return this.q.push('
    "e),this.n+=e.p*(e.k||1),this},e.prototype.sum=function(){for(var e=0,t=0,r=this.q.length;t<r;t++)e+=this.q[t].p;retu"
    "rn Math.round(100*e)/100},e.from=function(t){return Array.isArray(t)?t.reduce(function(e,t){return e.add(t)},new e):n"
    "ull};const a=t=>({...t,x:t?.x??1}),o=(e,t)=>e?.[t]!==void 0&&!1;for(let i=0;i<9;i++){if(i%2==0)continue;r[i]=i<<2|1}"
    'try{JSON.parse("{\\"a\\":[1,2,{\\"b\\":null}]}")}catch(s){console.error(s)}return e.version="1.4.2",e});\n'
)
STYLES = (
    ".a,.b>li:not(:first-child){margin:0 auto;padding:.5em 1.25rem;background:#f7f7f9 url(data:image/png;base64,iVBORw0K"
    "GgoAAAANSUhEUgAA)no-repeat 50%/cover;-webkit-transform:translate3d(0,-50%,0)}@media(max-width:640px){.c{display:none"
    "!important;color:rgba(0,0,0,.65)}}\n"
)
BOXES = (
    "┌──────────────┬─────────┬────────┐\n│ name         │ count   │ share  │\n├──────────────┼─────────┼────────┤\n"
    "│ parcels      │   1 204 │ 61,2 % │\n│ letters      │     764 │ 38,8 % │\n└──────────────┴─────────┴────────┘\n"
    "╔════╦════╗\n║ on ║ of ║\n╚════╩════╝\n├── src\n│   ├── main.rs\n│   └── lib.rs\n└── Cargo.toml\n▁▂▃▄▅▆▇█ ░░▒▒▓▓██ ●○◆◇\n"
)
MATHS = (
    "∀ε>0 ∃δ>0: |x−a|<δ ⇒ |f(x)−f(a)|<ε; ∑ₖ₌₁ⁿ k² = n(n+1)(2n+1)⁄6, ∫₀^∞ e^{−x²} dx = √π⁄2, ℝ ⊂ ℂ, α·β ≠ γ∕δ, ⟨u,v⟩ ≤ ‖u‖‖v‖\n"
    "\\begin{align} \\nabla \\times \\vec{E} &= -\\frac{\\partial \\vec{B}}{\\partial t} \\\\ \\int_\\Omega f\\,d\\mu &\\le 1 \\end{align}\n"
)
EMOJI = "😀 😅 🤖 🐍 🧪 🔥 💡 ⚠️ ✅ ❌ 👩🏽‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇯🇵 🇧🇷 🇰🇪 ☎️ ♻️ ⏱️ 🥨 🪴 🦥 → ⇒ ↑ ★ ☆ ♪ ™ © • … “q” ‘s’ — ½ €\n"
BRAILLE = "⠠⠁⠇⠇ ⠓⠥⠍⠁⠝ ⠃⠑⠬⠎ ⠜⠑ ⠃⠕⠗⠝ ⠋⠗⠑⠑ ⣿⣿⡿⠿⠛⠉⠉⠛⠻⢿⣿⣿ ⣷⣄⡀ ⢀⣠⣾\n"
ZALGO = "T̴̡̛o̶͎͗ ̷̲͝i̸̧̕n̵̤̎v̴͖̈o̷̖̊k̶̰̀e̸̜͒ the café é ñ ＡＢＣ　ｆｕｌｌ　ｗｉｄｔｈ １２３ 𝓯𝓪𝓷𝓬𝔂 𝔹𝕠𝕝𝕕 ⓐⓑⓒ ʇxǝʇ\n"
CODE = (
    "fn main() -> Result<(), Box<dyn Error>> {\n    let mut till = Till::new(3);\n    for (i, item) in items.iter().enumerate() {\n"
    '        till.add(item.price * i as f64)?;\n    }\n    println!("{:>8.2}", till.sum());\n    Ok(())\n}\n'
    "SELECT o.id, SUM(l.price * l.amount) AS total FROM orders o JOIN lines l ON l.order_id = o.id GROUP BY o.id HAVING "
    "total > 100 ORDER BY total DESC LIMIT 20;\n"
    '<ul class="list">\n\t<li v-for="p in parts" :key="p.id">{{ p.name }}</li>\n</ul>\n'
)
DIFF = (
    "@@ -12,7 +12,9 @@ class Till:\n     def close(self) -> None:\n-        self.drawer.shut()\n+        if self.drawer:\n"
    "+            self.drawer.shut()\n         self.is_open = False\n \n"
)
MARKDOWN = (
    "## Steps\n\n1. **Stop** the service: `systemctl stop till`\n2. Copy `~/.config/till/*.toml` to the new machine\n\n"
    "| option | default | what it does |\n|--------|--------:|--------------|\n| `retries` | 3 | how often it is tried |\n\n"
    "> See [the manual](https://example.org/docs/till?page=2#retry) — it says *why*.\n"
)


def languages() -> Iterator[tuple[str, str]]:
    """Yield each language and the same sentences in it."""
    for line in SCRIPTS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, text = line.partition("\t")
            yield name, text


def kinds() -> Iterator[tuple[str, str]]:
    """Yield kinds of material and a text of each."""
    chance = random.Random(33)
    records = [
        {
            "id": chance.randrange(10**6),
            "at": f"2026-0{n % 9 + 1}-1{n % 9}T0{n % 9}:12:44Z",
            "ok": n % 3 > 0,
            "rate": chance.random(),
        }
        for n in range(12)
    ]
    blob = zlib.compress(json.dumps(records).encode() * 3) + bytes(chance.randrange(256) for _ in range(600))
    yield "minified JavaScript", MINIFIED
    yield "minified CSS", STYLES
    yield "box drawing", BOXES
    yield "mathematics", MATHS
    yield "emoji and signs", EMOJI
    yield "braille", BRAILLE
    yield "odd letters", ZALGO
    yield "code", CODE
    yield "a diff", DIFF
    yield "markdown", MARKDOWN
    yield "JSON", json.dumps(records)
    yield "indented JSON", json.dumps(records, indent=4)
    yield (
        "YAML",
        "".join(
            f"- id: {each['id']}\n  rate: {each['rate']:.3f}\n  tags: [a{each['id'] % 7}, b]\n" for each in records
        ),
    )
    yield "CSV", "".join(f'{each["id"]};{each["at"]};{each["rate"]:.5f};;"x, y"\n' for each in records)
    yield "base64", base64.b64encode(blob).decode()
    yield "hexadecimal", blob.hex()
    yield "identifiers", "".join(f"{uuid.UUID(int=chance.getrandbits(128))}\n" for _ in range(20))
    yield (
        "a log",
        "".join(
            f"{each['at']} ERROR [worker-{n}] order={each['id']} took {each['rate'] * 900:.1f}ms\n"
            for n, each in enumerate(records)
        ),
    )
    yield "long numbers", " ".join(str(chance.getrandbits(90)) for _ in range(30))
    yield "white space", "a\n\n\n\n        b\t\t\tc      d\n" * 12
    yield (
        "rules of signs",
        "=" * 70 + "\n" + "-" * 50 + "\n" + "*~" * 30 + "\n" + "#" * 20 + "!?" * 12 + "." * 45 + "\n",
    )
    yield (
        "addresses",
        "https://example.org/a/b-c_d/e?q=%E2%82%AC%20x&p=12#top\nC:\\Users\\Me\\AppData\\Local\\till.exe\n/usr/lib/x86_64-linux-gnu/libtill.so.6\n",
    )
