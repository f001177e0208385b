"""Strict tests: shapes are checked at run time, warnings are errors, seeds are shown."""

import random

from jaxtyping import install_import_hook

install_import_hook("switchpoint", "typechecking.check")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("switchpoint", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("switchpoint")


@pytest.fixture
def float64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key(request):
    """A random key of the test's own, the same in every run."""
    seed = random.Random(request.node.nodeid).randrange(2**31)
    print(f"key seed: {seed}")
    return jax.random.key(seed)
