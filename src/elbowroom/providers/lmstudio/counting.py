"""Counters for LM Studio's models: the file on this machine, checked against LM Studio, else its websocket."""

import asyncio
import collections
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from elbowroom.caches import Recent
from elbowroom.elsewhere import NotAnswering, look
from elbowroom.errors import ElbowroomError, UpstreamError
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio.files import find_home, find_model_path
from elbowroom.providers.lmstudio.rpc import LMStudioRpc
from elbowroom.settings.doubts import is_loopback
from elbowroom.settings.fields import expanded
from elbowroom.tokens.anchoring import digest_of
from elbowroom.tokens.count import MOST_LETTERS, CannotCount, Counter, PromptRenderer, TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.file_counter import CountingTools, FileCounter
from elbowroom.tokens.files import LoadedModel, StreamCounter

log = logging.getLogger(__name__)
MODELS: Final = "LM Studio's folder of models"
SAMPLE: Final[tuple[dict[str, str], ...]] = (
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Which of 3 rivers is longest, and how long (in km)?"},
    {"role": "assistant", "content": "The second: 1,233 km."},
    {"role": "user", "content": "Danke! 谢谢"},
)
"""A chat that both sides render once for each load, with every role, digits and other scripts."""


PATIENCE: Final = 1.5
"""Seconds that the first count after a load waits for the comparison; after them the file is believed."""
ASK_AGAIN: Final = 30.0
"""Seconds after which a comparison that LM Studio did not answer is tried again."""


class LMStudioCounting:
    """Makes the counter of each model, and keeps it as long as the model stays loaded as it is."""

    def __init__(
        self, root: str, rpc: LMStudioRpc, tools: CountingTools, home: str, model_files: Mapping[str, str]
    ) -> None:
        self._is_local = is_loopback(urlsplit(root).hostname or "")
        self._rpc = rpc
        self._tools = tools
        self._home = home
        self._model_files = model_files
        self._counters: dict[str, tuple[ModelInfo, TokenCounter]] = {}
        self._compared: dict[str, ComparedCounter] = {}

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the model's counter; a new one where it was loaded anew, with another window or another file."""
        load = replace(info, state=None, instances=None)  # which stays while it is loaded, whatever else comes and goes
        if (known := self._counters.get(info.id)) is not None and known[0] == load:
            return known[1]
        path = await self._found_file(info)
        if (known := self._counters.get(info.id)) is not None and known[0] == load:
            return known[1]  # another request has made it meanwhile
        counter = TokenCounter(info.key or info.id, info.architecture, self._ways(info, path), describes_tools=True)
        self._counters[info.id] = (load, counter)
        return counter

    async def _found_file(self, info: ModelInfo) -> Path | None:
        """Return the model's file among LM Studio's; None where that folder does not answer."""
        try:
            return await look(self._home or MODELS, lambda: self._path_of(info))
        except NotAnswering as error:
            log.warning("The file of %s cannot be looked for: %s", info.id, error)
            return None

    async def aclose(self) -> None:
        """End the comparisons that are under way."""
        for compared in self._compared.values():
            await compared.aclose()

    def _ways(self, info: ModelInfo, path: Path | None) -> list[Counter]:
        engine = RpcCounter(self._rpc, info.id)
        if path is None:
            return [engine] if info.loaded_context else []
        file = FileCounter(path, self._tools.loader, self._tools.renderer)
        if not info.loaded_context:
            return [file]
        if before := self._compared.get(info.id):
            before.cancel()
        self._compared[info.id] = compared = ComparedCounter(file, self._rpc, info.id)
        return [compared, engine]

    def _path_of(self, info: ModelInfo) -> Path | None:
        if named := self._model_files.get(info.id) or self._model_files.get(info.key or ""):
            return expanded(named)
        home = find_home(self._home, Path.home()) if self._is_local or self._home else None
        return find_model_path(home, info) if home is not None else None


@dataclass(frozen=True, slots=True)
class Difference:
    """In words, how LM Studio differs from the model's file: in the prompts it renders, in the tokens it cuts."""

    prompt: str | None = None
    tokens: str | None = None


class ComparedCounter:
    """Counts with the model's file as long as LM Studio renders the same prompt from it.

    A person can override a model's template in LM Studio, and an index can name the wrong file. So a sample is
    compared at the first count, and again when the file has changed; where it differs, the file is not counted with.
    While LM Studio does not answer, the file is believed, and LM Studio is asked again later.
    """

    def __init__(self, file: FileCounter, rpc: LMStudioRpc, model: str) -> None:
        self.file = file
        self._rpc = rpc
        self._model = model
        self._compared: LoadedModel | None = None
        self._comparison: asyncio.Task[Difference | None] | None = None
        self._begun_at = 0.0
        self._wait_until = 0.0

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text. Raises CannotCount where LM Studio's tokens differ."""
        await self._agree_on_tokens()
        return await self.file.count_text(text)

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the whole prompt. Raises CannotCount where LM Studio renders another one."""
        difference = await self._agree_on_tokens()
        if difference.prompt:
            raise CannotCount(difference.prompt)
        return await self.file.count_chat(messages, tools, arguments)

    async def stream(self) -> StreamCounter:
        """Return a counter for an answer that grows. Raises CannotCount where LM Studio's tokens differ."""
        await self._agree_on_tokens()
        return await self.file.stream()

    async def prompt_renderer(self) -> PromptRenderer:
        """Return the file's chat template. Raises CannotCount where LM Studio uses another one."""
        if (difference := await self._difference()).prompt:
            raise CannotCount(difference.prompt)
        return await self.file.prompt_renderer()

    def cancel(self) -> None:
        """Cancel the comparison if it is under way."""
        if self._comparison is not None:
            self._comparison.cancel()

    async def aclose(self) -> None:
        """Cancel the comparison and wait for its end."""
        self.cancel()
        if self._comparison is not None:
            await asyncio.wait([self._comparison])

    async def _agree_on_tokens(self) -> Difference:
        difference = await self._difference()
        if difference.tokens:
            raise CannotCount(difference.tokens)
        return difference

    async def _difference(self) -> Difference:
        """Return the difference that the comparison has found by now, none where it is not done in time."""
        model = await self.file.load()
        now = asyncio.get_running_loop().time()
        if self._comparison is None or self._compared is not model or self._is_to_be_repeated(now):
            self.cancel()
            # Somebody waits for the first comparison only; LM Studio may be busy or gone.
            self._wait_until = now if self._compared is model else now + PATIENCE
            self._compared, self._begun_at = model, now
            self._comparison = asyncio.create_task(self._compare(model))
        comparison = self._comparison
        if not comparison.done() and now < self._wait_until:
            await asyncio.wait([comparison], timeout=self._wait_until - now)
        is_done = comparison.done() and not comparison.cancelled()
        return (comparison.result() if is_done else None) or Difference()

    def _is_to_be_repeated(self, now: float) -> bool:
        if self._comparison is None or not self._comparison.done():
            return False
        unanswered = self._comparison.cancelled() or self._comparison.result() is None
        return unanswered and now - self._begun_at > ASK_AGAIN

    async def _compare(self, model: LoadedModel) -> Difference | None:
        """Compare the sample; None where LM Studio does not answer."""
        try:
            theirs = await self._rpc.render(self._model, SAMPLE, ())
            tokens = await self._rpc.tokenize(self._model, SAMPLE[1]["content"])
        except UpstreamError as error:
            log.debug("LM Studio does not render or tokenize: %s", error)
            return None
        own = model.text.tokenizer.encode(SAMPLE[1]["content"])
        cut = None
        if own not in (tokens, tokens[1:], tokens[:-1], tokens[1:-1]):
            cut = f"LM Studio cuts {self._model}'s text in another way than {self.file.path} does."
        try:
            ours = await self.file.render(model, SAMPLE, (), {})
        except ElbowroomError:
            return Difference(tokens=cut)  # a template that fails tells so at every count
        bos = model.text.tokenizer.bos_token
        if _same_prompt(ours.removeprefix(bos), theirs.removeprefix(bos)):
            return Difference(tokens=cut)
        rendered = f"LM Studio renders {self._model}'s prompts in another way than {self.file.path} does."
        return Difference(rendered, cut)


def _same_prompt(ours: str, theirs: str) -> bool:
    """Compare prompts; LM Studio may leave the generation prompt out."""
    ours, theirs = ours.rstrip(), theirs.rstrip()
    return ours == theirs or (ours.startswith(theirs) and len(ours) - len(theirs) <= 80)


REMEMBERED: Final = 4096
CALLS_AT_ONCE: Final = 8
MARK: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|</?s>")
"""Texts that may be one token of a model: only before those that are can a prompt be cut."""
MARKS_TRIED: Final = 16
TEXTS_AT_ONCE: Final = 100
"""So many texts are asked for before others have their turn."""


class RpcCounter:
    """Asks LM Studio: it renders the prompt, and counts each piece of it once."""

    def __init__(self, rpc: LMStudioRpc, model: str) -> None:
        self._rpc = rpc
        self._model = model
        self._known = Recent[bytes, int]("engine_counts", REMEMBERED)
        self._turn = asyncio.Semaphore(CALLS_AT_ONCE)

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        return TokenCount(await self._count(text), "engine")

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the prompt that LM Studio makes of the messages, its begin-of-text token included.

        The prompt is cut before texts that are one token to this model, so that most pieces are known already.
        """
        try:
            prompt = await self._rpc.render(self._model, messages, tools)
        except UpstreamError as error:
            raise CannotCount(error.message) from error
        added = await self._count("")  # where begin-of-text is put before every text, a prompt has it once
        is_short = len(prompt) < MOST_LETTERS
        found = MARK.findall(prompt) if is_short else await asyncio.to_thread(MARK.findall, prompt)
        marks = await self._counts(dict(collections.Counter(found).most_common(MARKS_TRIED)))
        ones = [re.escape(mark) for mark, size in marks.items() if size - added == 1]
        cut = partial(re.split, f"(?={'|'.join(ones)})", prompt)
        pieces = [prompt] if not ones else cut() if is_short else await asyncio.to_thread(cut)
        times, tokens = collections.Counter(pieces), added
        for piece, size in (await self._counts(times)).items():
            tokens += (size - added) * times[piece]
        return TokenCount(tokens, "engine")

    async def _counts(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the tokens of each text; a task is begun only for one that is not known."""
        counts, each = dict[str, int](), list(texts)
        for start in range(0, len(each), TEXTS_AT_ONCE):
            await asyncio.sleep(0)
            unknown = list[str]()
            for text in each[start : start + TEXTS_AT_ONCE]:
                known = self._known.get(digest_of(text)) if len(text) < MOST_LETTERS else None
                if known is None:
                    unknown.append(text)
                else:
                    counts[text] = known
            counts |= zip(unknown, await asyncio.gather(*map(self._count, unknown)), strict=True)
        return counts

    async def _count(self, text: str) -> int:
        digest = digest_of(text) if len(text) < MOST_LETTERS else await asyncio.to_thread(digest_of, text)
        if (known := self._known.get(digest)) is not None:
            return known
        try:
            async with self._turn:
                count = len(await self._rpc.tokenize(self._model, text))
        except UpstreamError as error:
            raise CannotCount(error.message) from error
        self._known.put(digest, count)
        return count
