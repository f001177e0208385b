"""A study by this process, by several, and on a Ray cluster of two nodes: the same bytes."""

import os
import signal
import subprocess
import threading
import time

import pytest
from test_executors import Log
from test_studies import TINY

from switchpoint import executors
from switchpoint.cli.main import main
from switchpoint.executors import RayExecutor, open_executor
from switchpoint.paper import reproduce

TWO_RUNS = TINY.replace(orders=(0, 1))
STUDIES = ["memory"]

RAYLET = "sleep 1; grep PPid /proc/$PPID/status"  # the parent of the worker that runs a shell


class Unused:
    """An executor that must not be used."""

    def submit(self, *_):
        raise AssertionError


def study(out, executor="local", log=None, **options):
    """The result files of the studies; byte for byte."""
    reproduce(TWO_RUNS, out, STUDIES, log, executor=executor, **options)
    return {path.name: path.read_bytes() for path in (out / "results").glob("*.nc")}


# One test, so that there is one cluster, and one study to compare with.
@pytest.mark.slow
# The cluster has processes and threads of its own, whose sockets are closed when they end.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
# Ray starts the processes of a node by a fork, each of which runs another program at once.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_local_processes_and_ray_give_the_same_bytes(ray_cluster, tmp_path, monkeypatch, capsys):
    cluster = ray_cluster
    local = study(tmp_path / "local")
    assert set(local) == {f"{name}.nc" for name in STUDIES}
    log = Log()
    assert study(tmp_path / "processes", "processes", log, jobs=2) == local
    assert sum("done on" in note for note in log.notes) == 2
    # Finished work is not repeated.
    assert study(tmp_path / "processes", Unused()) == local
    check_nodes(cluster, tmp_path)
    with monkeypatch.context() as patch:
        check_versions(cluster, tmp_path, patch, capsys)
    log = Log()
    killer = kill_the_second_node(cluster, tmp_path / "ray" / "runs")
    executor = RayExecutor(cluster.address)
    try:
        assert study(tmp_path / "ray", executor, log) == local
    finally:
        executor.close()
    assert not killer.is_alive()
    assert sum("done on" in note for note in log.notes) == 2


def check_nodes(cluster, tmp_path):
    """Work is spread over the nodes, and errors and signals are handled as anywhere."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    handler = signal.getsignal(signal.SIGTERM)
    with open_executor("ray", ray_address=cluster.address) as executor:
        assert signal.signal(signal.SIGTERM, before) is handler  # not Ray's
        futures = [executor.submit(subprocess.getoutput, RAYLET) for _ in range(4)]
        assert len({future.result(60) for future in futures}) == 2
        with pytest.raises(FileNotFoundError):
            executor.submit(os.listdir, str(tmp_path / "none")).result(60)


def check_versions(cluster, tmp_path, monkeypatch, capsys):
    """Workers of another version are refused in one line."""
    other = {**executors.package_version(), "switchpoint": "0.0.7"}
    monkeypatch.setattr(executors, "package_version", lambda: other)
    out = tmp_path / "refused"
    options = ["--executor", "ray", "--ray-address", cluster.address, "--out", str(out)]
    assert main(["reproduce", "--scale", "quick", "--only", "memory", *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "0.0.7" in error
    assert "install" in error
    assert not (out / "results").exists()


def kill_the_second_node(cluster, runs):
    """Kill it as soon as two runs are in training: the nodes have one core each."""

    def wait_and_kill():
        while len(list(runs.glob("*/metrics.jsonl"))) < 2:
            time.sleep(0.02)
        cluster.remove_node(cluster.second, allow_graceful=False)

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread
