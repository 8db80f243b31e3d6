"""`meshwright bench hooks`: what gradient compression costs and saves here."""

from __future__ import annotations

from typing import Any

from meshwright.cli import render
from meshwright.cli.options import option, verb
from meshwright.cli.output import Answer, Screen
from meshwright.messages import N_


@verb(
    "hooks",
    help=N_(
        "Run communication hooks on a bucket of gradients between processes of this machine (or the ranks of torchrun):"
        " time per bucket, bytes each rank sent, and both against a plain all-reduce. Names that begin with torch: are"
        " torch's own hooks. Needs the extra torch."
    ),
    examples=(
        "bench hooks --ranks 2",
        "bench hooks --ranks 4 --size 25MiB --hooks allreduce,bf16,powersgd,torch:powersgd",
    ),
)
@option("--ranks", metavar="N", default="2", envvar=None, help=N_("Processes to start; torchrun sets its own."))
@option("--size", metavar="BYTES", default="25MiB", show_default=True, envvar=None, help=N_("Size of the bucket."))
@option("--hooks", metavar="NAME,…", envvar=None,
        help=N_("Only these, e.g. bf16, bf16+powersgd, torch:bf16; default: all."))  # fmt: skip
@option("--rounds", metavar="N", default="5", envvar=None, help=N_("Blocks of calls per hook."))
def command(screen: Screen, hooks: str | None, **options: Any) -> int:
    """Measure and answer; ranks other than the first of a launcher say nothing."""
    from meshwright import api
    from meshwright.serialize import document

    names = tuple(part.strip() for part in (hooks or "").split(",") if part.strip())
    found = api.bench_hooks(hooks=names, **options)
    if found is None:
        return 0
    return screen.answer(
        Answer(
            kind="bench-hooks",
            document=lambda: document("bench-hooks", found.document),
            draw=lambda view: render.bench_sync.draw_hooks(found, view),
            grid=lambda: render.bench_sync.grid(found),
            lines=lambda: found.lines,
        )
    )
