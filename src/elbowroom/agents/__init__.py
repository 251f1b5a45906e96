"""Who answers: the catalog of agents and raw models, and the run of one answer with the OpenAI Agents SDK."""
