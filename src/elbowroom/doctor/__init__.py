"""`elbowroom doctor`: examines the set-up on this machine, and says what is wrong and how to correct it."""
