"""elbowroom whose requests go by the tokens that this server holds alone, beside which the cost of leases is seen."""

import sys

from elbowroom.agents.admission import Admission
from elbowroom.cli import main
from elbowroom.store import ALONE

Admission.servers = property(lambda _: ALONE, lambda *_: None)  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(main())
