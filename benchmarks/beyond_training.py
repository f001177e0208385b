"""Why networks lose beyond their training length: two explanations that do not hold.

    python benchmarks/beyond_training.py

Prints the mean regret above PTW_9, in bits, of the networks of the zoo on sequences of 512, and of
the same networks with every state clipped to the range that it has on sequences of 256, or with
attention to no more than 256 tokens; and how many of the states are outside that range. If networks
lost because their states or positions leave the range of training, either would help.
"""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import switchpoint as sp
from switchpoint.neural.network import encoded

TRAINED, LENGTH, SEQUENCES, BATCH = 256, 512, 500, 100


@jax.jit
def run(network: Any, symbols: Any, limits: Any) -> tuple[Any, Any]:
    """The states (time, batch, ...) of a recurrent network within limits, and log probabilities."""
    inputs = network.input(encoded(network.tokens_before(symbols).T, network.alphabet + 1))

    def step(carry: Any, now: Any) -> Any:
        carry = network.cell.step(carry, network.cell.split(now))
        if limits is not None:
            carry = jax.tree.map(jnp.clip, carry, *limits)
        return carry, (carry, network.cell.output(carry))

    _, (states, outputs) = jax.lax.scan(step, network.cell.start(len(symbols)), inputs)
    return states, jnp.swapaxes(jax.nn.log_softmax(network.output(outputs)), 0, 1)


def outside(states: Any, limits: Any) -> float:
    """The share of states beyond the training length that are outside the limits."""
    beyond = jax.tree.map(lambda x, low, high: ((x < low) | (x > high))[TRAINED:], states, *limits)
    return float(np.mean(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(beyond)])))


def main() -> None:
    trained_on, source = (sp.Source(sp.PTW(depth), sp.Bernoulli()) for depth in (8, 9))
    training = trained_on.sample(jax.random.key(1), batch=1000, length=TRAINED)
    draw = source.sample(jax.random.key(2), batch=SEQUENCES, length=LENGTH)
    optimum = np.asarray(sp.regret(draw, sp.bayes_optimal(source).log_probs(draw.symbols)))

    def show(name: str, log_probs: Any, more: str = "") -> None:
        excess = (np.asarray(sp.regret(draw, log_probs)) - optimum).sum(-1)
        error = excess.std(ddof=1) / len(excess) ** 0.5
        print(f"{name:40} {excess.mean():.2f} ± {error:.2f}{more}", flush=True)

    halves = draw.symbols.reshape(-1, TRAINED)
    restarted = np.asarray(sp.bayes_optimal(trained_on).log_probs(halves))
    show("PTW_8, restarted at 256", restarted.reshape(SEQUENCES, LENGTH, -1))
    for model in ("rnn", "lstm", "stack-rnn", "stack-lstm"):
        network = sp.load(f"{model}-ptw")
        states, _ = run(network, training.symbols, None)
        limits = tuple(
            jax.tree.map(lambda x, extreme=extreme: extreme(x, (0, 1)), states)
            for extreme in (jnp.min, jnp.max)
        )
        parts = jnp.split(draw.symbols, SEQUENCES // BATCH)
        share = outside(run(network, parts[0], None)[0], limits)
        show(model, network.log_probs(draw.symbols))
        clipped = np.concatenate([run(network, part, limits)[1] for part in parts])
        show(f"{model}, clipped", clipped, f" ({share:.2%} of the states were outside)")
    network = sp.load("transformer-ptw")
    show("transformer", network.log_probs(draw.symbols))
    bounded = copy.copy(network)
    object.__setattr__(bounded, "context", TRAINED)  # modules are frozen
    show("transformer, context of 256", bounded.log_probs(draw.symbols))


if __name__ == "__main__":
    main()
