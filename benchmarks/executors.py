"""Where the driver becomes the bottleneck: many tasks that take a millisecond each.

    python benchmarks/executors.py --tasks 2000 --executor local processes ray

For each executor: tasks per second, the time without locks and progress (`submit` alone), and the
memory of the driver before and after. Then the bytes that are sent for a run of each scale.
"""

import argparse
import os
import pickle
import resource
import tempfile
import time
from concurrent.futures import wait
from pathlib import Path

from switchpoint._progress import Progress
from switchpoint.executors import EXECUTORS, Executor, Task, open_executor, run_tasks
from switchpoint.paper.registry import STUDIES, all_runs
from switchpoint.paper.scale import SCALES
from switchpoint.paper.tasks import measurements_by_run


def work(progress: Progress) -> None:
    """A task of a millisecond."""
    time.sleep(0.001)
    progress.update("done", 1.0)


def memory() -> float:
    """The memory of this process at its largest, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(executor: Executor, tasks: int) -> tuple[float, float]:
    """The seconds of so many tasks by `submit` alone, and by `run_tasks`."""
    wait([executor.submit(time.sleep, 0.001) for _ in range(50)])  # the workers are started
    begun = time.perf_counter()
    wait([executor.submit(time.sleep, 0.001) for _ in range(tasks)])
    alone = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        every = [Task(f"task-{number}", work, ()) for number in range(tasks)]
        assert not run_tasks(executor, every, Path(directory)).failed
    return alone, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--executor", nargs="*", choices=EXECUTORS, default=list(EXECUTORS))
    parser.add_argument("--ray-address")
    options = parser.parse_args()
    print(f"{options.tasks} tasks of 1 ms, {os.cpu_count()} cores")
    for name in options.executor:
        before = memory()
        address = options.ray_address if name == "ray" else None
        with open_executor(name, ray_address=address) as executor:
            alone, queued = measure(executor, options.tasks)
        rates = [f"{options.tasks / each:.0f}" for each in (alone, queued)]
        print(
            f"{name}: {rates[0]} tasks/s by submit alone, {rates[1]} with locks and progress; "
            f"driver {before:.0f} MiB before, {memory():.0f} MiB at most"
        )
    for scale in (SCALES["quick"], SCALES["full"]):
        begun = time.perf_counter()
        runs, wanted = all_runs(scale), measurements_by_run(scale, STUDIES.values())
        sizes = [
            len(pickle.dumps((scale, run, wanted.get(name, ())))) for name, run in runs.items()
        ]
        print(
            f"{scale.name}: {len(sizes)} runs, {min(sizes):,} to {max(sizes):,} bytes each, "
            f"planned in {time.perf_counter() - begun:.1f} s"
        )


if __name__ == "__main__":
    main()
