"""elbowroom on a machine whose clock goes ahead: `ahead_process.py SECONDS ...`, with what the command line takes."""

import sys
import time

AHEAD = float(sys.argv.pop(1))
right = time.time
time.time = lambda: right() + AHEAD

if __name__ == "__main__":
    from elbowroom.cli import main

    sys.exit(main())
