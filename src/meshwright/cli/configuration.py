"""Options and requests of the verbs that read configurations of frameworks."""

from __future__ import annotations

import json
from typing import Any

from meshwright.cli.options import CONFIGURATION_FILE, JOB, RECOMPUTE_OPS, Decorator, option, partition, stack
from meshwright.cli.output import Screen
from meshwright.cli.request import sharding_of
from meshwright.errors import InputError
from meshwright.files import decode, read_bytes, read_stdin, reason_of
from meshwright.messages import N_, Text

LARGEST = 4 * 10**6
_JOB = ("seq_len", "global_batch", "precision", "optimizer", "tokens", "software", "price")

READING = stack(
    option("--from", "from_", metavar="FORMAT", section=CONFIGURATION_FILE,
           help=N_("The framework of the file, where it is not recognised: deepspeed, megatron, torchtitan or "
                   "accelerate.")),
    option("--framework-version", "version", metavar="VERSION", section=CONFIGURATION_FILE,
           help=N_("Version of the framework; default: the one its judge has.")),
    option("--trainer-args", "trainer", metavar="FILE", section=CONFIGURATION_FILE, envvar=None,
           help=N_("JSON file with the arguments of the Hugging Face Trainer, which fill in \"auto\".")),
    option("--env", "environment", metavar="NAME=VALUE", multiple=True, section=CONFIGURATION_FILE, envvar=None,
           help=N_("A variable that is set where the file runs; may be repeated.")),
    option("--devices", metavar="N", section=CONFIGURATION_FILE, help=N_("Devices of the run, where no cluster "
                                                                         "is named.")),
    option("--model", metavar="MODEL", section=CONFIGURATION_FILE, help=N_("Model, where the file does not "
                                                                           "describe it.")),
)  # fmt: skip
TARGET: Decorator = stack(READING, JOB, partition(many=False), RECOMPUTE_OPS)


def target_of(screen: Screen, options: dict[str, Any]) -> Any:
    """Take everything about the surroundings of a file out of `options`."""
    from meshwright import api

    trainer = options.pop("trainer")
    job = {name: options.pop(name) for name in _JOB if name in options}
    return api.Target(
        model=options.pop("model"), cluster=options.pop("cluster", None), devices=options.pop("devices"),
        trainer=_trainer(trainer) if trainer else {}, environment=_environment(options.pop("environment")),
        version=options.pop("version") or "", job=job,
        settings=screen.settings, strategy={"sharding": sharding_of(options), **options} if options else {},
    )  # fmt: skip


def content_of(file: str) -> tuple[Any, str]:
    """What `api` is given for a file named by the user, and what to call it."""
    if file != "-":
        return file, file
    return read_stdin(largest=LARGEST, hint="cat ds_config.json | meshwright check -"), "-"


def _trainer(path: str) -> dict[str, Any]:
    fix = Text(N_("give a JSON file with per_device_train_batch_size, gradient_accumulation_steps, …"))
    try:
        data = json.loads(decode(read_bytes(path, largest=LARGEST, fix=fix), where=path))
    except (ValueError, RecursionError) as error:
        raise InputError(Text(N_("not valid JSON: {reason}"), reason=reason_of(error)), where=path, fix=fix) from None
    if not isinstance(data, dict):
        raise InputError(Text(N_("a configuration is a table of settings, and this is none")), where=path, fix=fix)
    return data


def _environment(assignments: tuple[str, ...]) -> dict[str, str]:
    for item in assignments:
        if not item.partition("=")[0].isidentifier() or "=" not in item:
            raise InputError(
                Text(N_("'{item}' is not of the form NAME=VALUE"), item=item[:80]),
                where="--env",
                fix=Text(N_("write it like {examples}"), examples="--env CUDA_DEVICE_MAX_CONNECTIONS=1"),
            )
    return {name: value for name, _, value in (item.partition("=") for item in assignments)}
