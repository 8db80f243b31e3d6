"""torchtitan's own ConfigManager as judge of the files that we write and of our table of fields."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.judge_frameworks
pytest.importorskip("torch")
pytest.importorskip("tyro")
if importlib.util.find_spec("torchtitan") is None:
    pytest.skip("torchtitan is not installed", allow_module_level=True)

import meshwright.rules  # noqa: E402, F401  (registers the rules)
from meshwright.frameworks.records import Surroundings  # noqa: E402
from meshwright.frameworks.torchtitan.fields import SCHEDULES, TABLE, VERSION  # noqa: E402
from meshwright.frameworks.torchtitan.read import read  # noqa: E402
from meshwright.frameworks.torchtitan.write import write  # noqa: E402
from meshwright.rules.configuration import check_configuration  # noqa: E402
from meshwright.rules.versions import covers  # noqa: E402

from .strategies import fsdp as strategies  # noqa: E402

GRID = strategies(pipeline=True)


def config_package() -> Any:
    """`torchtitan.config`, without what the package imports beside it (Triton kernels, quantization)."""
    if "torchtitan" not in sys.modules:
        spec = importlib.util.find_spec("torchtitan")
        assert spec is not None and spec.submodule_search_locations
        package = types.ModuleType("torchtitan")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["torchtitan"] = package
    return importlib.import_module("torchtitan.config")


def parsed(text: str, folder: Path) -> Any:
    """The configuration as torchtitan's command line reads it; SystemExit where it refuses."""
    path = folder / "train_config.toml"
    path.write_text(text)
    return config_package().ConfigManager().parse_args(["--job.config_file", str(path)])


def loaded(text: str, folder: Path) -> Any:
    """The same without building the command line of 200 options anew: the part of the manager that reads the file."""
    path = folder / "train_config.toml"
    path.write_text(text)
    manager = config_package().ConfigManager()
    values = manager._maybe_load_toml(["--job.config_file", str(path)])
    return manager._dict_to_dataclass(manager.config_cls, values)


def test_the_version_is_the_pinned_one() -> None:
    assert importlib.metadata.version("torchtitan") == VERSION


def test_every_emitted_file_is_accepted(tmp_path: Path) -> None:
    assert len(GRID) >= 300
    for number, (problem, strategy) in enumerate(GRID):
        read_by = loaded if number % 25 else parsed
        config = read_by(write(problem, strategy).files[0].text, tmp_path)
        p = config.parallelism
        sizes = (p.data_parallel_replicate_degree, p.data_parallel_shard_degree, p.context_parallel_degree,
                 p.tensor_parallel_degree, p.pipeline_parallel_degree)  # fmt: skip
        product = 1
        for size in sizes:
            product *= size
        assert product == 64
        assert config.training.global_batch_size == problem.job.global_batch
        assert config.activation_checkpoint.mode == strategy.recompute
        # what its trainer asserts: the global batch is a multiple of the local one over all data-parallel ranks
        assert config.training.global_batch_size % (config.training.local_batch_size * strategy.data) == 0


def test_our_schedules_are_those_of_torch() -> None:
    from torch.distributed.pipelining.schedules import get_schedule_class

    for name in SCHEDULES:
        assert get_schedule_class(name)


def test_the_table_has_every_setting_and_no_other() -> None:
    config = config_package().JobConfig()
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        theirs = {f.name for f in dataclasses.fields(value)}
        known = {n.rpartition(".")[2] for n in TABLE.siblings(f"{section.name}.x")}
        here = {n for n in known if covers(getattr(TABLE.find(f"{section.name}.{n}"), "versions", ""), VERSION)}
        assert theirs - here == set(), section.name


# The second of each: whether torchtitan itself refuses it; types and words it does not check, and fails later.
CHANGES = (
    ("[training]\nseq_len = 4096", False, False), ("[training]\nseqlen = 4096", True, True),
    ("[training]\nseq_len = 'long'", True, False), ("[nonsense]\na = 1", True, True),
    ("[parallelism]\ntensor_parallel_degree = 2", False, False),
    ("[training]\ntensor_parallel_degree = 2\n[parallelism]", True, True),
    ("[activation_checkpoint]\nmode = 'all'", True, False),
    ("[activation_checkpoint]\nmode = 'memory_budget'", False, False),
    ("[parallelism]\nfsdp_reshard_after_forward = true", True, False),
    ("[experimental]\npipeline_parallel_degree = 2\n[parallelism]", True, True),
    ("[optimizer]\nname = 'AdamW'\nlr = 1e-3", False, False),
)  # fmt: skip


@pytest.mark.parametrize(("text", "we", "they"), CHANGES)
def test_we_refuse_what_torchtitan_refuses_and_what_it_fails_on(
    text: str, we: bool, they: bool, tmp_path: Path
) -> None:
    try:
        parsed(text, tmp_path)
        raised = False
    except (SystemExit, Exception):
        raised = True
    back = read(text, Surroundings())
    codes = [f.code for f in (*back.findings, *check_configuration(back.configuration)) if f.severity == "error"]
    assert (bool(codes), raised) == (we, they)
