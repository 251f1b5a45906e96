"""How much does a compaction keep? Written conversations whose facts are known, and grades of what is left of them."""
