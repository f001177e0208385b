"""The options of commands whose work other processes and machines may do."""

import os
from typing import Any

import typer

from switchpoint.executors import EXECUTORS, check_executor

EXECUTOR: Any = typer.Option(
    None,
    metavar="NAME",
    help=f"Where networks are trained: {', '.join(EXECUTORS)}. Workers must reach the output "
    "directory under the same path. On the same kind of device, all give the same results. "
    "The default is local, or processes if --jobs is more than 1.",
)
JOBS: Any = typer.Option(
    None,
    min=1,
    help="The number of processes, with --executor processes; by default one per GPU, or 2 "
    "without a GPU. Small networks do not fill a GPU; to run several processes on each, start "
    "nvidia-cuda-mps-control -d first, or they take turns.",
)
RAY_ADDRESS: Any = typer.Option(
    None,
    metavar="HOST:PORT",
    help="The Ray cluster, with --executor ray; by default that of RAY_ADDRESS, or one on this "
    "machine alone.",
)


def executor_arguments(
    name: str | None, jobs: int | None, ray_address: str | None
) -> dict[str, Any]:
    """The arguments of `open_executor` for these options; a `ValueError` if they are invalid."""
    name = name or ("processes" if (jobs or 1) > 1 else "local")
    jobs = None if (name, jobs) == ("local", 1) else jobs
    check_executor(name, jobs=jobs, ray_address=ray_address)
    if name != "local":
        # This process uses the GPU too, and must not take most of its memory from the workers.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return {"executor": name, "jobs": jobs, "ray_address": ray_address}
