"""Expert-parallel all-to-all: how many copies of a token cross which wire, and the time of dispatch and combine.

Copies are counted for balanced routing; imbalance multiplies the tokens of the busiest rank before these formulas.
"""

from __future__ import annotations

from meshwright.formulas.numeric import Bytes, BytesPerSecond, Count, Fraction, Seconds, maximum, minimum
from meshwright.formulas.registry import formula

DEEPEP = "deepseek-ai/DeepEP docs/legacy.md"
DEEPSEEK_V3 = "DeepSeek-V3 technical report 2024, arXiv 2412.19437, section 3.2.2"


@formula("moe.distinct_places", source=DEEPEP, equation="E = M (1 - (1 - 1/M)^k)")
def expected_distinct_places(places: Count, top_k: Count) -> Count:
    """Expected number of different places (ranks or nodes) that the `top_k` experts of a token fall on.

    Parameters
    ----------
    places : ranks or nodes the experts are spread over
    top_k : experts per token

    Notes
    -----
    Assumes: uniform, independent routing. A little low for few experts per place (experts are drawn without
    replacement).

    Examples
    --------
    >>> round(expected_distinct_places(8, 8), 2)
    5.25
    """
    return places * (1.0 - (1.0 - 1.0 / places) ** top_k)


@formula("moe.remote_nodes", source=DEEPSEEK_V3, equation="E = (N-1)/N M (1 - (1 - 1/M)^k), M = min(N, limit)")
def expected_remote_nodes(nodes: Count, top_k: Count, max_nodes: Count) -> Count:
    """Expected number of other nodes a token is sent to.

    Parameters
    ----------
    nodes : nodes of the expert group
    top_k : experts per token
    max_nodes : nodes a token may visit (node-limited routing); pass `nodes` for no limit

    Examples
    --------
    >>> round(expected_remote_nodes(8, 8, 8), 3), round(expected_remote_nodes(8, 8, 4), 2)
    (4.595, 3.15)
    """
    reach = minimum(nodes, max_nodes)
    return reach * (1.0 - (1.0 - 1.0 / reach) ** top_k) * ((nodes - 1) / nodes)


@formula("moe.dispatch_bytes", source=DEEPEP, equation="x = T E h b")
def dispatch_bytes(tokens: Count, copies: Count, hidden: Count, bytes_per_element: Bytes) -> Bytes:
    """Bytes one rank sends when each of its tokens leaves in `copies` copies.

    Parameters
    ----------
    tokens : tokens of the rank
    copies : copies per token
    hidden : elements per token
    bytes_per_element : 2 for bf16; 1 + 4/128 for fp8 with a 4-byte scale per 128 elements

    Examples
    --------
    >>> dispatch_bytes(128, 8, 7168, 1 + 4 / 128) / 1e6
    7.569408
    """
    return tokens * copies * hidden * bytes_per_element


@formula("moe.all_to_all", source=DEEPEP, equation="t = a + max(x_out/B_out, x_in/B_in)")
def expert_all_to_all(
    bytes_out: Bytes,
    bytes_in: Bytes,
    latency: Seconds,
    bandwidth_out: BytesPerSecond,
    bandwidth_in: BytesPerSecond,
) -> Seconds:
    """Dispatch or combine that crosses the network once per node and fans out inside it, both at once.

    Parameters
    ----------
    bytes_out : bytes a rank sends to other nodes
    bytes_in : bytes a rank moves inside its node
    latency : seconds
    bandwidth_out, bandwidth_in : bytes/s of its network card and of its scale-up link

    Examples
    --------
    >>> round(expert_all_to_all(81.8e6, 190e6, 0.0, 44e9, 122e9) * 1e3, 2)
    1.86
    """
    return latency + maximum(bytes_out / bandwidth_out, bytes_in / bandwidth_in)


@formula("moe.off_rank_share", source=DEEPEP, equation="(p-1)/p")
def off_rank_share(ranks: Count) -> Fraction:
    """Share of evenly spread copies that leave the rank.

    Parameters
    ----------
    ranks : members of the group

    Examples
    --------
    >>> off_rank_share(8)
    0.875
    """
    return (ranks - 1) / ranks
