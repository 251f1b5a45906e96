"""What outlives a request: on SQLite, and in memory where that cannot be written."""
