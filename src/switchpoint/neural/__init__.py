"""Networks with memory, which learn to predict as well as the exact optimum."""

from switchpoint.neural.forgetful import Markov, Memoryless
from switchpoint.neural.names import MODEL_OPTIONS, network_from_name
from switchpoint.neural.network import Network
from switchpoint.neural.recurrent import Recurrent
from switchpoint.neural.storage import (
    best_member,
    count_parameters,
    load,
    load_members,
    load_with_card,
    read_card,
    save_networks,
)
from switchpoint.neural.transformer import Transformer

__all__ = [
    "MODEL_OPTIONS",
    "Markov",
    "Memoryless",
    "Network",
    "Recurrent",
    "Transformer",
    "best_member",
    "count_parameters",
    "load",
    "load_members",
    "load_with_card",
    "network_from_name",
    "read_card",
    "save_networks",
]
