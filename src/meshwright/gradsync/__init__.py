"""Gradient synchronisation on torch.distributed: all-reduce algorithms, DDP communication hooks, averages, scales,
clipping, local SGD, drift; `elastic` trains on.

Needs the extra `torch`. Nothing else of the package imports this one.
"""

from __future__ import annotations

from meshwright.errors import MissingExtraError
from meshwright.messages import N_, Text

try:
    import torch.distributed  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        Text(N_("{what} needs the extra '{extra}', which is not installed"), what="gradsync", extra="torch"),
        where="gradsync",
        fix=Text(N_("install it: {command}"), command="pip install 'meshwright[torch]'"),
    ) from error

from meshwright.gradsync.accumulate import MicroBatch, accumulate, no_sync
from meshwright.gradsync.allreduce import all_gather, all_reduce, reduce_scatter
from meshwright.gradsync.averaging import average_gradients, average_parameters
from meshwright.gradsync.clipping import clip_grad_norm_, total_norm
from meshwright.gradsync.compose import compose
from meshwright.gradsync.diloco import DiLoCo
from meshwright.gradsync.drift import Drift, ReplicaDriftError, check_replicas, find_drift
from meshwright.gradsync.flat import Reduction, all_reduce_coalesced_flat
from meshwright.gradsync.group import my_rank, world_size
from meshwright.gradsync.hooks import *  # noqa: F403
from meshwright.gradsync.hooks import __all__ as _hooks
from meshwright.gradsync.local_sgd import LocalSGD
from meshwright.gradsync.noise_scale import GradientNoiseScale
from meshwright.gradsync.nonfinite import NonFiniteGradientError, all_finite, check_finite
from meshwright.gradsync.ordered import rank_ordered_hook, sum_in_rank_order
from meshwright.gradsync.peers import PeerError
from meshwright.gradsync.registration import register_comm_hook
from meshwright.gradsync.runner import Work
from meshwright.gradsync.scaling import global_token_count, scale_loss, token_count
from meshwright.gradsync.state import CommHookState, CostlierThanDense
from meshwright.gradsync.uneven import Window, shadow_join, uneven_windows

__all__ = [
    "all_reduce", "reduce_scatter", "all_gather", "Work", "PeerError",
    "register_comm_hook", "compose", "CommHookState", "CostlierThanDense", *_hooks,
    "token_count", "global_token_count", "scale_loss",
    "accumulate", "no_sync", "MicroBatch", "uneven_windows", "shadow_join", "Window",
    "average_gradients", "average_parameters", "all_reduce_coalesced_flat", "Reduction",
    "sum_in_rank_order", "rank_ordered_hook",
    "clip_grad_norm_", "total_norm", "all_finite", "check_finite", "NonFiniteGradientError",
    "LocalSGD", "DiLoCo", "GradientNoiseScale",
    "my_rank", "world_size",
    "check_replicas", "find_drift", "Drift", "ReplicaDriftError",
]  # fmt: skip
