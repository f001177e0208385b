"""Networks that learn to predict: recurrent ones, state spaces, Transformers, and baselines."""

from switchpoint.neural.density import DensityNetwork, ValueSpec
from switchpoint.neural.network import Network
from switchpoint.neural.networks.baselines import Markov, Memoryless
from switchpoint.neural.networks.gru import GRU
from switchpoint.neural.networks.lru import LRU
from switchpoint.neural.networks.mamba import Mamba
from switchpoint.neural.networks.recurrent import Recurrent
from switchpoint.neural.networks.transformer import Transformer
from switchpoint.neural.registry import MODEL_OPTIONS, network_from_name
from switchpoint.neural.storage import (
    best_member,
    count_parameters,
    load,
    load_members,
    load_with_card,
    read_card,
    save_networks,
)

__all__ = [
    "GRU",
    "LRU",
    "MODEL_OPTIONS",
    "DensityNetwork",
    "Mamba",
    "Markov",
    "Memoryless",
    "Network",
    "Recurrent",
    "Transformer",
    "ValueSpec",
    "best_member",
    "count_parameters",
    "load",
    "load_members",
    "load_with_card",
    "network_from_name",
    "read_card",
    "save_networks",
]
