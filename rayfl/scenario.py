"""`python -m rayfl.scenario`, the same as `rayfl run`; see `rayfl.cli.run`."""

from __future__ import annotations

import sys

from rayfl.cli.run import main

if __name__ == "__main__":
    sys.exit(main())
