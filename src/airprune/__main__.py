"""python -m airprune: the same as the command airprune."""

import sys

from airprune.cli import main

if __name__ == "__main__":
    sys.exit(main())
