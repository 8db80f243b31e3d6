"""Options that verbs share. Each also reads MESHWRIGHT_<NAME> from the environment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from meshwright.cli.click_parts import Command, Option
from meshwright.cli.output import FORMATS, Screen
from meshwright.messages import LANGUAGES, N_

THE_JOB = N_("Model, cluster and job")
THE_STRATEGY = N_("Partition")
SURVIVAL = N_("Failures and checkpoints")
OUTPUT = N_("Output")
CONFIGURATION = N_("Project file")
CONFIGURATION_FILE = N_("Configuration file")
_LANGUAGE = N_("Language of texts; results in JSON keep English keys.")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(*declarations: str, help: str, **attributes: Any) -> Decorator:
    """A translated option with its environment variable."""
    long = next(d for d in declarations if d.startswith("--"))
    name = long.split("/")[0].lstrip("-").replace("-", "_").upper()
    attributes.setdefault("envvar", f"MESHWRIGHT_{name}")
    return click.option(*declarations, cls=Option, help=help, **attributes)


def stack(*decorators: Decorator) -> Decorator:
    """Several decorators as one, in reading order."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorate in reversed(decorators):
            function = decorate(function)
        return function

    return apply


def language() -> Option:
    """`--lang` for a group of verbs; its value was read before parsing."""
    return Option(["--lang"], type=click.Choice(LANGUAGES), expose_value=False, help=_LANGUAGE)


_FORM_HELP = N_("Form of the text.")


def _output(forms: Sequence[str]) -> Decorator:
    """The options about output; `forms` are those of a verb beside the usual ones."""
    form = option("--format", type=click.Choice((*FORMATS, *forms)), default="table", section=OUTPUT, help=_FORM_HELP)
    return stack(_OUTPUT, form)


_OUTPUT = stack(
    option("--json", is_flag=True, section=OUTPUT, help=N_("One JSON document on stdout, in base units."), envvar=None),
    option("--jsonl", is_flag=True, section=OUTPUT, help=N_("One JSON object per line, for lists."), envvar=None),
    option("-o", "--output", metavar="FILE", section=OUTPUT, envvar=None,
           help=N_("Write the result to FILE; - is stdout.")),
    option("--force", is_flag=True, section=OUTPUT, help=N_("Overwrite FILE."), envvar=None),
    option("--color", type=click.Choice(("auto", "always", "never")), default="auto", section=OUTPUT,
           help=N_("Use colours.")),
    option("--ascii", is_flag=True, section=OUTPUT, help=N_("ASCII characters only.")),
    option("--exact", is_flag=True, section=OUTPUT, help=N_("Print numbers exactly, in base units.")),
    option("-q", "--quiet", is_flag=True, section=OUTPUT, help=N_("No notes on stderr.")),
    option("-v", "--verbose", is_flag=True, section=OUTPUT, help=N_("More notes on stderr.")),
    option("--exit-zero", is_flag=True, section=OUTPUT, help=N_("Exit with 0 also when the answer is no.")),
    option("--lang", type=click.Choice(LANGUAGES), section=OUTPUT, expose_value=False, envvar=None, help=_LANGUAGE),
)  # fmt: skip

_CONFIG = stack(
    option("--config", metavar="FILE", section=CONFIGURATION,
           help=N_("Project file; default: meshwright.toml here or above.")),
    option("--no-config", is_flag=True, section=CONFIGURATION, help=N_("Ignore project and user files.")),
    option("--set", "assignments", multiple=True, metavar="KEY=VALUE", envvar=None,
           section=CONFIGURATION, help=N_("Any setting of the project file, e.g. job.dropout=true; may be repeated.")),
)  # fmt: skip

JOB = stack(
    option(
        "--cluster",
        metavar="NAME:N",
        section=THE_JOB,
        help=N_("Accelerator or node type and number of devices, e.g. h100-sxm:512."),
    ),
    option("--seq", "seq_len", metavar="TOKENS", section=THE_JOB, help=N_("Tokens of one sequence.")),
    option(
        "--gbs",
        "global_batch",
        metavar="N",
        section=THE_JOB,
        help=N_("Sequences of one optimizer step, over all devices."),
    ),
    option("--precision", metavar="NAME", section=THE_JOB, help=N_("bf16, fp16, fp8, mxfp8, nvfp4, tf32 or fp32.")),
    option(
        "--optimizer",
        metavar="NAME",
        section=THE_JOB,
        help=N_("adamw, adamw-bf16, adamw-8bit, adafactor, sgd, lion or muon."),
    ),
    option("--tokens", metavar="N", section=THE_JOB, help=N_("Length of the run in tokens, e.g. 15T.")),
    option("--software", metavar="ID", section=THE_JOB, help=N_("Software profile of the catalogue.")),
    option("--price", metavar="DOLLARS", section=THE_JOB, help=N_("Price of one device for one hour.")),
)

MODEL_ARGUMENT = click.argument("model", required=False)


def partition(*, many: bool) -> Decorator:
    """Degrees and methods: single values for a strategy, or (with `many`) lists that constrain a search."""
    metavar = "N,…" if many else "N"
    names = "NAME,…" if many else "NAME"
    return stack(
        option("--framework", metavar=names, section=THE_STRATEGY, help=N_("megatron, fsdp, deepspeed or jax.")),
        option("--tp", "tensor", metavar=metavar, section=THE_STRATEGY, help=N_("Tensor parallel degree.")),
        option("--pp", "pipeline", metavar=metavar, section=THE_STRATEGY, help=N_("Pipeline parallel degree.")),
        option("--vpp", "virtual", metavar=metavar, section=THE_STRATEGY, help=N_("Model chunks per pipeline rank.")),
        option("--cp", "context", metavar=metavar, section=THE_STRATEGY, help=N_("Context parallel degree.")),
        option("--ep", "expert", metavar=metavar, section=THE_STRATEGY, help=N_("Expert parallel degree.")),
        option(
            "--etp",
            "expert_tensor",
            metavar=metavar,
            section=THE_STRATEGY,
            help=N_("Tensor parallel degree inside experts."),
        ),
        option(
            "--dp", "data", metavar=metavar, section=THE_STRATEGY, help=N_("Data parallel degree, sharding included.")
        ),
        option("--mbs", "micro_batch", metavar=metavar, section=THE_STRATEGY, help=N_("Sequences of one micro-batch.")),
        option(
            "--zero",
            metavar="0|1|2|3",
            section=THE_STRATEGY,
            help=N_("ZeRO stage: what the data parallel ranks shard."),
        ),
        option(
            "--hsdp",
            "shard",
            metavar=metavar,
            section=THE_STRATEGY,
            help=N_("Ranks that share one sharded copy (hybrid sharding)."),
        ),
        option("--recompute", metavar=names, section=THE_STRATEGY, help=N_("none, selective or full.")),
        option(
            "--schedule",
            metavar=names,
            section=THE_STRATEGY,
            help=N_("1f1b, interleaved, gpipe, zb-h1, zbv or dualpipe."),
        ),
        option(
            "--offload", metavar=names, section=THE_STRATEGY, help=N_("none, optimizer, parameters or activations.")
        ),
    )


RECOMPUTE_OPS = option(
    "--recompute-ops",
    metavar="OPS",
    section=THE_STRATEGY,
    help=N_("What selective recomputes, e.g. core_attn,mlp."),
)
MAX_MEMORY = option("--max-memory", "max_memory_fraction", metavar="SHARE",
                    section=THE_STRATEGY, help=N_("Share of device memory that may be used, e.g. 90%."))  # fmt: skip


FAILURES = stack(
    option("--failures", metavar="NAME", section=SURVIVAL,
           help=N_("Failure rate of the catalogue, e.g. default or llama-3-405b (see `catalog list failures`).")),
    option("--rate", metavar="N", section=SURVIVAL, help=N_("Your own rate: failures in 1,000 node-days.")),
    option("--mtti", metavar="TIME", section=SURVIVAL,
           help=N_("Mean time between interruptions measured on this cluster, e.g. 3h.")),
    option("--storage", metavar="NAME", section=SURVIVAL,
           help=N_("Storage of the catalogue for checkpoints (see `catalog list storage`).")),
    option("--storage-write", "write", metavar="RATE", section=SURVIVAL,
           help=N_("What storage takes from all nodes together, e.g. 200GB/s.")),
    option("--storage-read", "read", metavar="RATE", section=SURVIVAL,
           help=N_("What storage gives to all nodes together; default: as it writes.")),
)  # fmt: skip
SAVING = stack(
    option("--incidents", metavar="FILE", section=SURVIVAL, envvar=None,
           help=N_("Take the failure rate from an incident log (CSV).")),
    option("--policy", metavar="NAME", section=SURVIVAL,
           help=N_("blocking, async, two-tier, peer or replicas; default async.")),
    option("--interval", metavar="TIME", section=SURVIVAL,
           help=N_("Work between checkpoints, e.g. 30min; default: the best.")),
    option("--steps", metavar="N", section=SURVIVAL, help=N_("The same in steps.")),
    option("--recovery", metavar="NAME", section=SURVIVAL, help=N_("automatic or manual.")),
    option("--spares", "spare_kind", metavar="NAME", section=SURVIVAL,
           help=N_("hot (running), warm (booted) or cold spare nodes.")),
    option("--spare-nodes", metavar="N", section=SURVIVAL,
           help=N_("How many; default: enough in 99 % of cases.")),
    option("--repair", metavar="TIME", section=SURVIVAL, help=N_("How long a broken node is away, e.g. 2d.")),
    option("--slow", "slowdown", metavar="SHARE", section=SURVIVAL,
           help=N_("Extra time of the slowest rank over the others, e.g. 5%.")),
    option("--keep", "kept", metavar="N", section=SURVIVAL, help=N_("Checkpoints to keep (default 2).")),
    option("--hook-bytes", metavar="N", section=SURVIVAL,
           help=N_("State of gradient hooks per gradient on every rank, e.g. 4 for fp32 error feedback.")),
    option("--measured", metavar="SHARE", section=SURVIVAL,
           help=N_("Useful share that a run reached: what the model does not explain is shown.")),
    option("--trials", metavar="N", section=SURVIVAL, help=N_("Simulated runs (default 200).")),
)  # fmt: skip


def verb(
    name: str, *, help: str, examples: Sequence[str], forms: Sequence[str] = ()
) -> Callable[[Callable[..., int]], click.Command]:
    """A verb with the standard options; its function receives a `Screen` first and returns the exit code."""

    def decorate(function: Callable[..., int]) -> click.Command:
        @functools.wraps(function)
        def callback(**options: Any) -> int:
            return function(screen_of(options), **options)

        # Click keeps parameters in reverse: the standard ones are put first so that they come last in the help.
        own = callback.__dict__.pop("__click_params__", [])
        decorated = stack(_CONFIG, _output(forms))(callback)
        decorated.__click_params__ = [*decorated.__click_params__, *own]  # type: ignore[attr-defined]
        return click.command(name, cls=Command, help=help, examples=examples)(decorated)

    return decorate


_SCREEN = ("json", "jsonl", "format", "output", "force", "color", "ascii", "exact", "quiet", "verbose", "exit_zero")


def screen_of(options: dict[str, Any]) -> Screen:
    """Take the standard options out of `options`; read the project file they point to."""
    from meshwright import settings

    config, without, assignments = (options.pop(name) for name in ("config", "no_config", "assignments"))
    loaded = settings.load(config, discover=not without)
    loaded = loaded.overlaid(settings.parse_assignments(assignments))
    return Screen(settings=loaded, **{name: options.pop(name) for name in _SCREEN})
