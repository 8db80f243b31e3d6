"""Constants of matrix products from published kernel measurements (905 kernels of SimuMax, Apache-2.0).

Run: `python benchmarks/fit_kernels.py ../shared/validation/kernel_efficiency.csv` (needs scipy, extra `fit`).
Prints, per device and output tile, the ceiling (share of the peak), the k ramp and the residuals; the values chosen
stand in
src/meshwright/catalog/data/kernels/{ampere,blackwell,default}.toml.
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from meshwright.formulas.roofline import matmul_flops, matmul_time, wave_utilisation

DEVICES = {  # peak FLOP/s, compute units, memory bandwidth
    "A100-PCIe": (312e12, 108, 1.94e12),
    "B200-SXM": (2250e12, 148, 8.0e12),
}
TILES = ((128, 128), (256, 128), (128, 256), (256, 256))
MEMORY_EFFICIENCY = 0.8


def products(path: Path, device: str) -> dict[str, Any]:
    """Shapes and measured efficiencies of a device's plain matrix products."""
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] == device and row["op"] == "matmul":
                shape = dict(re.findall(r"(\w+)=([\w.]+)", row["shape"]))
                rows.append((shape, float(row["efficiency_of_peak"])))
    columns: dict[str, Any] = {k: np.array([float(s[k]) for s, _ in rows]) for k in ("m", "n", "k", "b")}
    columns["weight_gradient"] = np.array([s["layout"] == "NT" for s, _ in rows])
    columns["out_bytes"] = np.array([4.0 if s["out_dtype"] == "fp32" else 2.0 for s, _ in rows])
    columns["measured"] = np.array([e for _, e in rows])
    return columns


def fit(c: dict[str, Any], device: str, tile: tuple[int, int]) -> tuple[Any, Any]:
    """Ceiling and k ramp that fit best, and the relative residuals."""
    peak, units, bandwidth = DEVICES[device]
    flops = matmul_flops(c["m"], c["n"], c["k"], c["b"])
    traffic = c["b"] * (2 * (c["m"] * c["k"] + c["k"] * c["n"]) + c["out_bytes"] * c["m"] * c["n"])
    used = np.minimum(wave_utilisation(c["m"], c["n"], c["b"], *tile, units), 1.0)

    def efficiency(p: Any) -> Any:
        seconds = matmul_time(flops, traffic, c["k"], used, peak * p[0], bandwidth * MEMORY_EFFICIENCY, p[1])
        return flops / seconds / peak

    found = least_squares(
        lambda p: np.log(efficiency(p) / c["measured"]), [0.7, 100.0], bounds=([0.2, 0.0], [1.2, 2000.0]),
        loss="soft_l1", f_scale=0.05,
    )  # fmt: skip
    return found.x, efficiency(found.x) / c["measured"] - 1


def main() -> None:
    """Print the fits."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", type=Path)
    path = parser.parse_args().csv
    for device in DEVICES:
        c = products(path, device)
        for tile in TILES:
            (ceiling, ramp), residual = fit(c, device, tile)
            size, w = np.abs(residual), c["weight_gradient"]
            print(
                f"{device:10} tile {tile[0]}x{tile[1]}: ceiling {ceiling:.3f}, k ramp {ramp:5.0f}; error median"
                f" {np.median(size):.1%}, mean {size.mean():.1%}; weight gradients {np.median(residual[w]):+.1%},"
                f" others {np.median(residual[~w]):+.1%} ({len(size)} kernels)"
            )


if __name__ == "__main__":
    main()
