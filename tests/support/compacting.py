"""What a ladder needs, without an engine: a counter over a trained vocabulary, and scripted pruning agents."""
