"""`elbowroom status`: asks the running server for its state, and shows it in a terminal."""
