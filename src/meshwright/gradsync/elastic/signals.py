"""Signals as wishes: noted when they arrive, granted between two steps.

SIGTERM and SIGINT (torchrun, a scheduler that takes the node back, Ctrl-C) mean: save, then stop. SIGUSR1 means: save
and go on. A second SIGTERM or SIGINT does what it would have done without us.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any

STOP = (signal.SIGTERM, signal.SIGINT)
SAVE = (signal.SIGUSR1,)


class Signals:
    """Context in which the signals set `save` and `stop`; the handlers found before come back at its end."""

    def __init__(self) -> None:
        self.save = False
        self.stop = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (*STOP, *SAVE):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.save = True
        if number in STOP:
            if self.stop:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.stop = True

    def wait_for_stop(self, seconds: float) -> bool:
        """Whether this process itself is told to stop within `seconds`.

        Ranks stop together, but the launcher tells them one after the other: who has not been told yet waits, so
        that the launcher sees its own order obeyed rather than a worker that failed.
        """
        until = time.monotonic() + seconds
        while not self.stop and time.monotonic() < until:
            time.sleep(0.05)
        return self.stop
