"""`elbowroom status` and `elbowroom memories`: what the server does and what agents remember, in a terminal."""
