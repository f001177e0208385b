"""`python -m switchpoint` is the command line."""

import sys

from switchpoint.cli import main

if __name__ == "__main__":
    sys.exit(main())
