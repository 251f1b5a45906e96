"""Server-sent events, read tolerantly: any split of the bytes gives the same events.

Comments are dropped, LF and CRLF end a line, several `data:` lines are joined, a space after the colon is
optional, a byte order mark is skipped, and `event:` names the event that follows.
"""

from dataclasses import dataclass

from elbowroom.errors import StreamCut

MAX_EVENT_BYTES = 16 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its data as it was sent, and its name where it has one."""

    data: bytes
    name: str | None = None


class EventReader:
    """Turns bytes as they arrive into events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._at_start = True
        self._data: list[bytes] = []
        self._name: str | None = None

    def feed(self, received: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete.

        Raises StreamCut where a single event grows beyond the limit.
        """
        buffer = self._rest + received
        if self._at_start and len(buffer) >= len(BYTE_ORDER_MARK):
            self._at_start = False
            buffer = buffer.removeprefix(BYTE_ORDER_MARK)
        if b"\n" not in received:
            self._rest = buffer
            self._check_size()
            return []
        *lines, self._rest = buffer.split(b"\n")
        events: list[ServerSentEvent] = []
        for line in lines:
            self._read_line(line, events)
        self._check_size()
        return events

    def close(self) -> list[ServerSentEvent]:
        """Return the event that was not followed by its blank line, if the stream ended there."""
        events: list[ServerSentEvent] = []
        for line in (self._rest, b""):
            self._read_line(line, events)
        self._rest = b""
        return events

    def _read_line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace") or None
        elif not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(ServerSentEvent(data, self._name))
                self._data.clear()
            self._name = None

    def _check_size(self) -> None:
        if len(self._rest) + sum(map(len, self._data)) > self._max_event_bytes:
            raise StreamCut(
                f"The upstream sent a single event of more than {self._max_event_bytes // 2**20} MiB; "
                "elbowroom stopped reading."
            )
