"""Real gloo processes that stay alive between tests: started once per world size, handed functions to run.

A function is named by file and name and imported in each process; it gets whatever arguments it was sent and may use
the default process group. Results come back in rank order; exceptions of ranks are raised here, with their text.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TIMEOUT = 120.0


class RankError(AssertionError):
    """A rank failed; says which and shows its traceback."""


class Ranks:
    """`size` processes in one gloo group."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("forkserver")  # imports torch once for all of them
        context.set_forkserver_preload(["torch", "torch._dynamo", "meshwright.gradsync"])
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(rank, size, str(Path(self._folder.name) / "store"), theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any, timeout: float = TIMEOUT) -> list[Any]:
        """`function(*arguments)` on every rank; what each returned."""
        where = (function.__code__.co_filename, function.__name__)
        for pipe in self._pipes:
            pipe.send((where, arguments))
        results, failures = [], []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(timeout):
                failures.append((rank, f"no answer within {timeout} s"))
                continue
            kind, value = pipe.recv()
            (results if kind == "done" else failures).append(value if kind == "done" else (rank, value))
        if failures:
            raise RankError("\n".join(f"rank {rank}: {text}" for rank, text in failures))
        return results

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def serve(rank: int, size: int, store: str, pipe: Connection) -> None:
    """Life of one process: join the group, run what comes, answer."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    while True:
        (path, name), arguments = pipe.recv()
        try:
            torch.manual_seed(0)
            answer = ("done", getattr(load(path), name)(*arguments))
        except BaseException:
            answer = ("failed", traceback.format_exc())
        pipe.send(answer)


_LOADED: dict[str, Any] = {}


def load(path: str) -> Any:
    """The module of a test file, imported once."""
    if path not in _LOADED:
        spec = importlib.util.spec_from_file_location(f"rank_side_{Path(path).stem}", path)
        assert spec is not None and spec.loader is not None
        _LOADED[path] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_LOADED[path])
    return _LOADED[path]
