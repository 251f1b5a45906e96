"""The user's notes: an Obsidian vault, a folder of Markdown files that is read and changed without ever leaving it."""
