"""`python -m switchpoint.paper`: the commands of those who train and record the studies."""

import sys

from switchpoint.cli.main import main

if __name__ == "__main__":
    sys.exit(main(application="switchpoint.paper.commands", name="python -m switchpoint.paper"))
