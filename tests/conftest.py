"""Strict tests: shapes are checked at run time, warnings are errors, seeds are shown."""

# ruff: noqa: E402

import contextlib
import ctypes
import fcntl
import gc
import logging
import mmap
import os
import random
import tempfile
from pathlib import Path

import jaxlib

# Most of a test is compilation, so compile with little effort on a CPU. Turning the fusion emitters
# off saves most; XLA aborts on a flag it does not know, and versions of jaxlib differ.
FAST_COMPILE = {
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": "true",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}


def known_flags(flags):
    """The options for those flags that this jaxlib knows; retired ones are still reserved names."""
    for library in Path(jaxlib.__file__).parent.glob("*jax_common.*"):
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code,
        ):
            known = [flag for flag in flags if code.find(f"\0{flag}\0".encode()) >= 0]
        return [f"--{flag}={flags[flag]}" for flag in known]
    return []


HAS_GPU = Path("/proc/driver/nvidia").exists()
if "PYTEST_XDIST_WORKER" not in os.environ and not HAS_GPU:  # workers inherit the environment
    flags = [os.environ.get("XLA_FLAGS", ""), *known_flags(FAST_COMPILE)]
    os.environ["XLA_FLAGS"] = " ".join(flags)
# The rest of compilation is tracing, in Python: without the records of callers, and with fewer
# garbage collections (below), it takes a quarter less.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
if "PYTEST_XDIST_WORKER" not in os.environ and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="switchpoint-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

from jaxtyping import install_import_hook

install_import_hook("switchpoint", "typechecking.check")

import jax
import pytest
from hypothesis import settings

settings.register_profile("switchpoint", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("switchpoint")


def pytest_collection_finish():
    """Exclude what was imported from garbage collections, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


MEMORY = Path("/proc/self/statm")  # of Linux
clear_above = 3 * 2**29  # bytes


def pytest_runtest_logfinish():
    """Drop the compiled programs of earlier tests once they take a GiB of memory."""
    global clear_above
    if MEMORY.exists() and resident_bytes() > clear_above:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # or else the C library keeps what was freed
        clear_above = max(clear_above, resident_bytes() + 2**30)


def resident_bytes():
    """The memory of this process."""
    return int(MEMORY.read_text().split()[1]) * mmap.PAGESIZE


@pytest.fixture
def float64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def tiny_studies(tmp_path_factory):
    """All studies at the tiny scale, computed once for all processes: copy them before changes."""
    from test_studies import compute_tiny_studies  # it imports most of the package

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "tiny-studies.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "tiny-studies").exists():
            compute_tiny_studies(shared / "tiny-studies.new")
            (shared / "tiny-studies.new").rename(shared / "tiny-studies")
    return shared / "tiny-studies"


@pytest.fixture
def key(request):
    """A random key for each test, the same in every run."""
    seed = random.Random(request.node.nodeid).randrange(2**31)
    print(f"key seed: {seed}")
    return jax.random.key(seed)


@pytest.fixture
def compilations():
    """A context that yields a list with an entry for each compiled program."""

    @contextlib.contextmanager
    def record():
        compiled = []

        def count(event, duration, **_):
            if event == "/jax/core/compile/backend_compile_duration":
                compiled.append(duration)

        jax.monitoring.register_event_duration_secs_listener(count)
        try:
            yield compiled
        finally:
            jax.monitoring.unregister_event_duration_listener(count)

    return record


def pytest_collection_modifyitems(config, items):
    """Skip tests that need a GPU where there is none; deselect the fuzz tests unless asked for."""
    for item in items:
        if item.get_closest_marker("gpu") and jax.default_backend() != "gpu":
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    if "fuzz" not in config.option.markexpr:
        fuzz_tests = [item for item in items if item.get_closest_marker("fuzz")]
        config.hook.pytest_deselected(items=fuzz_tests)
        items[:] = [item for item in items if item not in fuzz_tests]


@pytest.fixture
def ray_cluster():
    """Two nodes on this machine, of one core each."""
    ray = pytest.importorskip("ray")
    utils = pytest.importorskip("ray.cluster_utils")
    logging.getLogger("ray").setLevel(logging.ERROR)
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.second = cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
