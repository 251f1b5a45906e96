"""What stays in a model's window and what goes: pure decisions, without I/O, the SDK or a server."""
