"""How many tokens a text or a whole prompt takes, counted with the model's own files. Knows no server."""
