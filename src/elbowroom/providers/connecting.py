"""Times."""

CONNECT_SECONDS = 1.5
FIRST_BYTE_SECONDS = 1800.0  # a large prompt on a slow machine is read for many minutes
