"""Notices on the wire: in ASCII whatever they say, and never left open."""

from elbowroom.agents.answer import Notice
from elbowroom.errors import ElbowroomError
from elbowroom.server.encode import FrameEncoder


def test_comment_is_ascii() -> None:
    """A tool's name of any letters does not break the stream."""
    frames = FrameEncoder("m", "comment").events([Notice("tight", "taken by buscar_a\u00f1o")])
    assert b": taken by buscar_a\\xf1o\n\n" in frames


def test_failure_closes_an_open_notice() -> None:
    """What shimmers in a client ends with the stream; where nothing is open, nothing is closed."""
    encoder = FrameEncoder("m")
    encoder.events([Notice("compacting", "Compacting conversation history...", is_done=False)])
    assert b'"done":true' in encoder.failure(ElbowroomError("Stopped."))
    assert b'"done":true' not in FrameEncoder("m").failure(ElbowroomError("Stopped."))
