"""Server-sent events, read tolerantly: any split of the bytes gives the same events.

Comments are dropped, LF and CRLF end a line, several `data:` lines are joined, a space after the colon is
optional, a byte order mark is skipped, and `event:` names the event that follows.
"""

from typing import NamedTuple

from elbowroom.errors import StreamCut

MAX_EVENT_BYTES = 16 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event: its data as it was sent, and its name where it has one."""

    data: bytes
    name: str | None = None


class EventReader:
    """Turns bytes as they arrive into events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = bytearray()
        self._at_start = True
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name: str | None = None

    def feed(self, received: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete.

        Raises StreamCut where a single event has grown beyond the limit and still goes on.
        """
        self._check_size()
        self._rest += received
        if self._at_start and not self._is_past_mark():
            return []
        if b"\n" not in received:
            return []
        complete, _, rest = self._rest.rpartition(b"\n")
        self._rest = rest
        events: list[ServerSentEvent] = []
        for line in bytes(complete).split(b"\n"):
            if line[:6] == b"data: " and line[-1:] != b"\r":  # nearly all lines that are not empty
                self._data.append(line[6:])
                self._data_bytes += len(line)
            else:
                self._read_line(line, events)
        return events

    def close(self) -> list[ServerSentEvent]:
        """Return the event that was not followed by its blank line, if the stream ended there."""
        self._check_size()
        events: list[ServerSentEvent] = []
        for line in (bytes(self._rest), b""):
            self._read_line(line, events)
        self._rest.clear()
        return events

    def _is_past_mark(self) -> bool:
        """Skip a byte order mark; tell whether enough has come to know."""
        if len(self._rest) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._rest):
            return False
        self._at_start = False
        if self._rest.startswith(BYTE_ORDER_MARK):
            del self._rest[: len(BYTE_ORDER_MARK)]
        return True

    def _read_line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if line[-1:] == b"\r":
            line = line[:-1]
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._data_bytes += len(line)
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace") or None
        elif not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(ServerSentEvent(data, self._name))
                self._data.clear()
                self._data_bytes = 0
            self._name = None

    def _check_size(self) -> None:
        if len(self._rest) + self._data_bytes > self._max_event_bytes:
            raise StreamCut(
                f"The upstream sent a single event of more than {self._max_event_bytes // 2**20} MiB; "
                "elbowroom stopped reading."
            )
