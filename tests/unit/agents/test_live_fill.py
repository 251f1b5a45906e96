"""How full the window of a running step is: counted when somebody asks, each piece once."""

import pytest
from vocabulary_kinds import byte_level, write_header

from elbowroom.agents.turn.sending import Unwatched, fill_now
from elbowroom.context.budget import Budget, Measure
from elbowroom.context.conversation import ContextFill
from elbowroom.context.manager import AgentContextManager
from elbowroom.tokens.files import StreamCounter
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.tokenizer import Tokenizer

WORDS = "The last ferry leaves from the ninth pier. " * 20


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte-level tokenizer with a small vocabulary."""
    path = write_header(tmp_path_factory.mktemp("model") / "m.gguf", byte_level("qwen2"))
    return build_tokenizer(read_gguf_header(path))


def test_from_the_first_measure_to_the_end(tokenizer: Tokenizer) -> None:
    """Unknown, measured, sent, with what is said behind it, and what is left when it has been compacted."""
    manager = AgentContextManager(Budget(4096))
    pieces = [WORDS]
    assert fill_now(manager, 0) is None
    manager.before_request(Measure(700, 100))
    trigger, stop_at = manager.budget.compacts_at, manager.budget.stop_at
    assert fill_now(manager, 0) == ContextFill(700, 4096, trigger, stop_at)
    manager.sent(720)
    answer = Unwatched(lambda: pieces, StreamCounter(tokenizer))
    assert fill_now(manager, answer.generated) == ContextFill(720 + tokenizer.count(WORDS), 4096, trigger, stop_at)
    assert fill_now(manager, 0) == ContextFill(720, 4096, trigger, stop_at)
    manager.compacted(720, 300)
    assert fill_now(manager, 0) == ContextFill(300, 4096, trigger, stop_at)


def test_what_grows_is_counted_as_one_text(tokenizer: Tokenizer) -> None:
    """However often somebody looks at it, and wherever its pieces are cut."""
    pieces: list[str] = []
    looked_at = Unwatched(lambda: pieces, StreamCounter(tokenizer))
    for start in range(0, len(WORDS), 7):
        pieces.append(WORDS[start : start + 7])
        assert looked_at.generated == tokenizer.count(WORDS[: start + 7])
