"""What the tests of commands share."""

import pytest

from switchpoint.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Runs a command, and returns its status, standard output and standard error."""

    def run(*arguments):
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run
