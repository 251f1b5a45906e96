"""A thousand damaged headers: each is read or refused, in bounded time and memory, and nothing crashes."""

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from vocabulary_kinds import byte_level, sentencepiece, write_header

resource = pytest.importorskip("resource", reason="limits on memory need a Unix system")

MEMORY = 500 << 20
INTERESTING = (0, 1, 8, 9, 0x7F, 0xFF, 0xFFFF, 1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1)
PROGRAM = """
import resource, sys
from pathlib import Path
from elbowroom.tokens.errors import TokenizerError
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer

used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
outcomes = {"read": 0, "refused": 0}
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        build_tokenizer(read_gguf_header(path)).count("Some text, 123.")
    except TokenizerError as error:
        assert str(path) in error.message
        outcomes["refused"] += 1
    else:
        outcomes["read"] += 1
print(outcomes["read"], outcomes["refused"])
"""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a header with some bytes or numbers changed, a part doubled, moved or cut out."""
    result = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        place = chance.randrange(min(len(result), chance.choice((64, 1024, len(result)))))
        match chance.randrange(5):
            case 0:
                result[place] = chance.randrange(256)
            case 1:
                number = struct.pack("<Q", chance.choice(INTERESTING))
                result[place : place + 8] = number[: len(result) - place]
            case 2:
                del result[place : place + chance.randrange(1, 64)]
            case 3:
                result[place:place] = result[place : place + chance.randrange(1, 64)]
            case _:
                number = struct.pack("<I", chance.choice(INTERESTING) & 0xFFFFFFFF)
                result[place : place + 4] = number[: len(result) - place]
        if not result:
            return b""
    return bytes(result)


@pytest.mark.threat("GGUF headers", "read or refused, in bounded memory")
@pytest.mark.skipif(sys.platform != "linux", reason="the limit counts on /proc")
@pytest.mark.parametrize("mutations", [200, pytest.param(1_000, marks=pytest.mark.long)])
def test_damaged_headers_are_read_or_refused(tmp_path: Path, mutations: int) -> None:
    """With 500 MB at most, every damaged file ends in a tokenizer or in an error that names the file."""
    chance = random.Random(20)
    originals = [
        write_header(tmp_path / "a.gguf", byte_level("qwen2", size=330)).read_bytes(),
        write_header(tmp_path / "b.gguf", sentencepiece()).read_bytes(),
    ]
    folder = tmp_path / "mutated"
    folder.mkdir()
    for number in range(mutations):
        (folder / f"{number:04}.gguf").write_bytes(mutated(chance.choice(originals), chance))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, str(MEMORY)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert read + refused == mutations
    assert refused > mutations // 5
