"""Where models live: LM Studio, Ollama, and any other server that speaks OpenAI's chat completions."""
