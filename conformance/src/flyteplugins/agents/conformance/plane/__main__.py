"""`python -m flyteplugins.agents.conformance.plane up --data DIR --port N`."""

from __future__ import annotations

import sys

from ._cli import main

if __name__ == "__main__":
    sys.exit(main())
