"""A sum whose order of additions is fixed by rank, whatever the buckets.

A ring adds each element in an order that depends on where the element lies in its message. DDP rebuilds its buckets
after the first step, so a resumed run and the run it continues lay the same gradient out differently for one step and
part in the last bit from three ranks on. Here every element is added rank 0, rank 1, … left to right: the bits depend
on the values and the number of ranks alone. The bytes on the wire are those of a ring.
"""

import torch
import torch.distributed as dist

from meshwright.gradsync.group import Group, all_gather_flat, world_size


def sum_in_rank_order(flat: torch.Tensor, group: Group = None) -> torch.Tensor:
    """All-reduce a flat tensor in place: scatter the pieces, add each in rank order, gather the sums.

    Half-precision pieces are added in float32 and rounded once.
    """
    ranks = world_size(group)
    if ranks == 1 or not flat.numel():
        return flat
    piece = -(-flat.numel() // ranks)
    outgoing = flat.new_zeros(ranks * piece)
    outgoing[: flat.numel()] = flat
    incoming = torch.empty_like(outgoing)
    dist.all_to_all_single(incoming, outgoing, group=group)
    wide = torch.float32 if flat.dtype in (torch.float16, torch.bfloat16) else flat.dtype
    rows = incoming.view(ranks, piece)
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total += row.to(wide)
    all_gather_flat(outgoing, total.to(flat.dtype), group=group)
    return flat.copy_(outgoing[: flat.numel()])


# DDP compares the annotations of a hook with its own types, so this file keeps them as types, not as strings.
def rank_ordered_hook(group: Group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of the gradients, each element added in rank order.

    Register with `ddp.register_comm_hook(group, rank_ordered_hook)`, `None` being the default group. The reduction does
    not overlap with the backward pass: that is the price of bits that do not depend on the buckets.
    """
    flat = bucket.buffer()
    flat.div_(world_size(group))
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(sum_in_rank_order(flat, group))
    return done
