"""`elbowroom connect`: sets chat programs and coding agents up for elbowroom."""
