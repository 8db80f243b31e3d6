"""Asynchronous collectives: where a body of blocking messages runs while the caller goes on.

On the CPU each process group has one thread that runs bodies in the order they were given: every rank has the same
order, so messages match. On a GPU a message only makes a stream wait, so the body runs at once on a side stream.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import MeshwrightError

Body = Callable[[], Any]


class Work:
    """Handle of a collective under way, as torch's: `wait()`, `is_completed()`, `get_future()`."""

    def __init__(self, future: torch.futures.Future[Any], error: list[BaseException]) -> None:
        self._future, self._error = future, error

    def wait(self) -> Any:
        """Block until done (on a GPU: make the current stream wait) and give the result; a failure raises here."""
        try:
            return self._future.wait()
        except Exception:
            if self._error:
                raise self._error[0] from None
            raise

    def is_completed(self) -> bool:
        """Whether the collective has ended, well or not."""
        return bool(self._future.done())

    def get_future(self) -> torch.futures.Future[Any]:
        """The future of the result, to chain on."""
        return self._future


class _Thread:
    """Runs bodies one after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Body, Work]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._thread = threading.Thread(target=self._serve, name=f"gradsync-{name}", daemon=True)
        self._thread.start()

    def submit(self, body: Body) -> Work:
        work = Work(torch.futures.Future(), [])
        with self._lock:
            self._waiting += 1
        self._jobs.put((body, work))
        return work

    def idle(self) -> bool:
        """Whether a body may run in the caller's thread without overtaking another."""
        return self._waiting == 0 and threading.current_thread() is not self._thread

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _serve(self) -> None:
        while True:
            body, work = self._jobs.get()
            _settle(body, work)
            del body, work
            with self._lock:
                self._waiting -= 1


def _settle(body: Body, work: Work) -> None:
    try:
        result = body()
    except Exception as error:
        work._error.append(error)
        # torch passes an exception through C++ and back as text, so it has to be one that text can make
        work._future.set_exception(error if type(error) is RuntimeError else RuntimeError(_said(error)))
    else:
        work._future.set_result(result)


def _said(error: Exception) -> str:
    return str(error.text) if isinstance(error, MeshwrightError) else f"{type(error).__name__}: {error}"


_threads: dict[str, _Thread] = {}
_streams: dict[torch.device, Any] = {}
_creation = threading.Lock()


def _thread_of(group: dist.ProcessGroup) -> _Thread:
    with _creation:
        if group.group_name not in _threads:
            _threads[group.group_name] = _Thread(group.group_name)
        return _threads[group.group_name]


def start(group: dist.ProcessGroup, device: torch.device, body: Body) -> Work:
    """Run `body` in the background; its result becomes the future's value."""
    if device.type != "cuda":
        return _thread_of(group).submit(body)
    stream = _streams.setdefault(device, torch.cuda.Stream(device))
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        work = Work(torch.futures.Future(devices=[device]), [])
        _settle(body, work)
    return work


def run(group: dist.ProcessGroup, device: torch.device, body: Body) -> Any:
    """Run `body` now, after whatever is under way on this group."""
    if device.type == "cuda":
        return start(group, device, body).wait()
    thread = _thread_of(group)
    if thread.is_current() or thread.idle():
        return body()
    return thread.submit(body).wait()
