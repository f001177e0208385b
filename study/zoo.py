"""Build the zoo from finished runs: the best seed of each architecture and source.

    python study/zoo.py runs/full/lstm runs/full/rnn
    python study/zoo.py pieces/*.safetensors

The best is the one with the lowest excess on the validation sequences of its run. It is then
measured on the test sequences, which takes about an hour on two cores for all twenty. What
is in the zoo already is not measured again, so that the command can be stopped and repeated.
"""

import argparse
from pathlib import Path

from switchpoint.zoo import Zoo, build
from switchpoint.zoo.building import TEST_SEQUENCES
from switchpoint.zoo.manifest import PACKAGED


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="directories of runs, or their files")
    parser.add_argument("--out", type=Path, default=PACKAGED, help="the directory of the zoo")
    parser.add_argument("--sequences", type=int, default=TEST_SEQUENCES)
    given = parser.parse_args()
    zoo = Zoo(given.out)
    for name in build(given.runs, zoo, given.sequences, _tell):
        test = zoo.card(name)["test"]
        print(f"{name}: {test['excess']:.3f} ± {test['excess_error']:.3f} bits", flush=True)
    size = sum(entry.size for entry in zoo.entries.values())
    print(f"{zoo.directory}: {len(zoo.entries)} networks, {size / 2**20:.1f} MiB")


def _tell(name: str, done: int, total: int) -> None:
    end = "\n" if done == total else "\r"
    print(f"{name}: measured on {done} of {total} sequences", end=end, flush=True)


if __name__ == "__main__":
    main()
