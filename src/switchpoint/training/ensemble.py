"""One function for all members of an ensemble, in the way that suits the machine."""

import itertools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def over_members(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` of each member's arguments, which have a leading axis of members.

    A GPU takes all members at once. A CPU takes them one after another, since one member's
    numbers fit in its caches and all of them do not, in as many rows as there are cores.
    """
    if jax.default_backend() != "cpu":
        return jax.vmap(function)(*arguments)
    members = len(jax.tree.leaves(arguments)[0])
    rows = min(members, os.cpu_count() or 1, _MOST_ROWS)
    bounds = [members * row // rows for row in range(rows + 1)]
    results = [
        lax.map(lambda member: function(*member), _part(arguments, *ends))
        for ends in itertools.pairwise(bounds)
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *results)


def _part(tree: Any, first: int, last: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[first:last], tree)


_MOST_ROWS = 8  # each row is compiled anew
