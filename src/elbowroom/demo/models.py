"""The models on the simulated LM Studio's disk, and their downloads."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from elbowroom.demo.tokenizer import Tokenizer

ModelType = Literal["llm", "vlm", "embedding"]
ReasoningField = Literal["reasoning_content", "reasoning"]


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """One downloaded model; window sizes are in tokens.

    `loaded_context_length` loads it when the simulator is made. `auto_fit` is the window that every load is
    granted, whatever was asked for. `tokenizer` overrides the simulator's own. `reasoning_field` is the
    name under which its thoughts are sent.
    """

    key: str
    display_name: str = ""
    type: ModelType = "llm"
    publisher: str = "lmstudio-community"
    architecture: str = "qwen2"
    format: Literal["gguf", "mlx"] = "gguf"
    quantization: str = "Q4_K_M"
    params: str = "7B"
    size_bytes: int = 4_680_000_000
    max_context_length: int = 32_768
    default_context_length: int = 4_096
    loaded_context_length: int | None = None
    auto_fit: int | None = None
    load_seconds: float = 0.0
    parallel: int = 4
    tool_use: bool = True
    reasoning: bool = False
    reasoning_field: ReasoningField = "reasoning_content"
    embedding_length: int = 64
    tokenizer: "Tokenizer | None" = None

    @property
    def vision(self) -> bool:
        """Whether it takes images."""
        return self.type == "vlm"

    @property
    def name(self) -> str:
        """The name that people see."""
        return self.display_name or self.key

    def granted(self, asked: int | None) -> int:
        """Return the window that a load is granted, which may be larger or smaller than the one asked for."""
        if self.auto_fit is not None:
            return self.auto_fit
        return min(asked or self.default_context_length, self.max_context_length)


def demo_models() -> tuple[SimulatedModel, ...]:
    """Return what `elbowroom demo` shows: one model loaded, one to load, one that sees, one to embed."""
    return (
        SimulatedModel("qwen2.5-7b-instruct", "Qwen2.5 7B Instruct", publisher="qwen", loaded_context_length=8_192),
        SimulatedModel(
            "llama-3.2-3b-instruct",
            "Llama 3.2 3B Instruct",
            architecture="llama",
            params="3B",
            size_bytes=2_020_000_000,
            max_context_length=131_072,
            load_seconds=1.5,
        ),
        SimulatedModel(
            "gemma-3-4b-it",
            "Gemma 3 4B",
            type="vlm",
            publisher="google",
            architecture="gemma3",
            params="4B",
            size_bytes=3_340_000_000,
            max_context_length=131_072,
            load_seconds=1.5,
        ),
        SimulatedModel(
            "text-embedding-nomic-embed-text-v1.5",
            "Nomic Embed Text v1.5",
            type="embedding",
            publisher="nomic-ai",
            architecture="nomic-bert",
            params="137M",
            size_bytes=84_000_000,
            max_context_length=2_048,
            default_context_length=2_048,
            tool_use=False,
        ),
    )


@dataclass(frozen=True, slots=True)
class Download:
    """One download that takes `seconds`; `began` is by `clock`, `started_at` by the calendar."""

    id: str
    model: SimulatedModel
    seconds: float
    clock: Callable[[], float]
    began: float
    started_at: datetime

    @property
    def is_complete(self) -> bool:
        """Tell whether the download has finished."""
        return self._elapsed >= self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return the download as LM Studio reports it."""
        size = self.model.size_bytes
        told: dict[str, Any] = {
            "job_id": self.id,
            "status": "completed" if self.is_complete else "downloading",
            "total_size_bytes": size,
            "downloaded_bytes": size if self.is_complete else int(size * self._elapsed / self.seconds),
            "started_at": self.started_at.isoformat(),
        }
        return told if self.is_complete else {**told, "bytes_per_second": int(size / self.seconds)}

    @property
    def _elapsed(self) -> float:
        return self.clock() - self.began


@dataclass(slots=True)
class Downloads:
    """All downloads by their ids; each takes `seconds`."""

    clock: Callable[[], float]
    seconds: float = 0.0
    jobs: dict[str, Download] = field(default_factory=dict)

    def begin(self, model: SimulatedModel) -> Download:
        """Begin the download of a model."""
        name = f"job_{len(self.jobs) + 1:010x}"
        job = Download(name, model, self.seconds, self.clock, self.clock(), datetime.now(UTC))
        self.jobs[name] = job
        return job
