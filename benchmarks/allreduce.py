"""All-reduce algorithms and hooks of `meshwright.gradsync` against torch's, on real gloo processes of this machine.

    python benchmarks/allreduce.py [--ranks 2,4,8] [--most 67108864] [--rounds 7]

Prints, per world and size, `dist.all_reduce` over the best of ours (bars: 0.9 from 4 MiB on, 0.8 below) and `auto` over
the best of ours (bar: 1.1), then bf16 and PowerSGD over torch's (bar: 1.1). Needs the extra `torch`. Times are medians
of interleaved blocks, the slowest rank's; on a machine that does other work run it under `chrt -r 5`.
"""

from __future__ import annotations

import argparse

KIB, MIB = 1 << 10, 1 << 20


def main() -> None:
    from meshwright.gradsync.allreduce import ALGORITHMS
    from meshwright.gradsync.measure import all_reduce_timings, hook_timings, in_processes

    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--most", type=int, default=64 * MIB)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    names = ["backend", "auto", *ALGORITHMS]
    payloads = [KIB * 4**i for i in range(9) if KIB * 4**i <= options.most]
    missed = 0
    for ranks in map(int, options.ranks.split(",")):
        local = 2 if ranks > 2 else 1
        found = in_processes(ranks, all_reduce_timings, payloads, names, options.rounds, local, True)
        print(f"\n{ranks} ranks: µs per call, median of {options.rounds} blocks")
        print("  bytes".rjust(10), *(n[:10].rjust(10) for n in names), "best/torch  auto/best")
        for payload in payloads:
            seconds = {t.name: t.seconds for t in found if t.payload == payload}
            best = min(seconds[n] for n in ALGORITHMS)
            ratio, slack = seconds["backend"] / best, seconds["auto"] / best
            bar = 0.9 if payload >= 4 * MIB else 0.8
            missed += (ratio < bar) + (slack > 1.1)
            marks = f"{ratio:9.2f}{' ' if ratio >= bar else '!'} {slack:9.2f}{' ' if slack <= 1.1 else '!'}"
            print(f"{payload:>10}", *(f"{seconds[n] * 1e6:10.0f}" for n in names), marks)
    for ranks in map(int, options.ranks.split(",")):
        pairs = [("bf16", "torch:bf16"), ("powersgd", "torch:powersgd"), ("allreduce", "torch:allreduce")]
        found = in_processes(ranks, hook_timings, 16 * MIB, [n for pair in pairs for n in pair], options.rounds)
        seconds = {t.name: t.seconds for t in found}
        print(f"\n{ranks} ranks: hooks on a bucket of 16 MiB, ms per call")
        for ours, theirs in pairs:
            ratio = seconds[ours] / seconds[theirs]
            missed += ratio > 1.1
            print(f"{ours:>10} {seconds[ours] * 1e3:8.2f}  torch {seconds[theirs] * 1e3:8.2f}  ours/torch {ratio:.2f}")
    print(f"\nbars missed: {missed}")


if __name__ == "__main__":
    main()
