"""`meshwright bench KIND`: measure the machine at hand. A kind is one file here, one in `render`, one line below."""

from __future__ import annotations

from meshwright.cli.click_parts import Kind, Kinds
from meshwright.cli.options import language
from meshwright.messages import N_

KINDS: dict[str, Kind] = {
    "device": Kind(
        "meshwright.cli.commands.bench.device",
        N_("kernels, copies, collectives and one training step of the accelerator here"),
    ),
    "allreduce": Kind(
        "meshwright.cli.commands.bench.allreduce",
        N_("all-reduce algorithms against the backend's own and the cost model"),
    ),
    "hooks": Kind(
        "meshwright.cli.commands.bench.hooks",
        N_("gradient compression hooks against plain all-reduce: time and bytes"),
    ),
}

command = Kinds(
    "bench",
    kinds=KINDS,
    help=N_("Measure the machine at hand, and compare with what is predicted for it."),
    examples=("bench device", "bench device --help"),
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[language()],
)
