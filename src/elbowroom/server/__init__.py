"""The wire: routes, server-sent events, the guard, and errors as OpenAI clients read them."""
