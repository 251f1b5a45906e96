"""`elbowroom connect`: sets chat programs up for elbowroom."""
