"""Runs the command line: `python -m elbowroom`."""

import sys

from elbowroom.cli import main

if __name__ == "__main__":
    sys.exit(main())
