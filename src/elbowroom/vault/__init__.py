"""The user's notes: an Obsidian vault, which is a folder of Markdown, read and changed without leaving it."""
