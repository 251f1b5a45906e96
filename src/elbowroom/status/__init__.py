"""`elbowroom status`: asks the running server how it is, and shows that in a terminal."""
