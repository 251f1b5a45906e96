"""Looks at elbowroom's set-up on this machine, says what is wrong, and how to put each thing right."""
