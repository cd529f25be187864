"""Where passes over a data set begin."""

import json
from typing import Any

import torch

# Bytes of a place as JSON; it is about 250.
_ROOM = 1024


class Place:
    """An epoch, or the state of a checkpoint, in memory that workers share: they may have been started long before.

    The process that made it sets it between passes, and workers read it when they begin one.
    """

    def __init__(self) -> None:
        self._texts = torch.zeros(2, _ROOM, dtype=torch.uint8)  # the one in force and the one before, in turns
        self._numbers = torch.zeros(3, dtype=torch.int64)  # the turn, the last one read, the last one read by workers
        self._share()
        self.set(0, None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._share()  # a worker gets shared memory as it is; a copy has its own

    def _share(self) -> None:
        self._texts.share_memory_()
        self._numbers.share_memory_()

    @property
    def turn(self) -> int:
        """Changes whenever the place is set."""
        return int(self._numbers[0])

    def get(self) -> tuple[int, dict[str, Any] | None]:
        """Returns the epoch, and the state to go on from if there is one."""
        text = bytes(self._texts[self.turn % 2].tolist()).rstrip(b"\0")
        epoch, state = json.loads(text)
        return epoch, state

    def set(self, epoch: int, state: dict[str, Any] | None) -> None:
        """Sets where the next passes begin."""
        text = json.dumps([epoch, state]).encode().ljust(_ROOM, b"\0")
        self._texts[(self.turn + 1) % 2] = torch.tensor(list(text), dtype=torch.uint8)
        self._numbers[0] += 1

    def begin(self, turn: int, worker: int | None) -> bool:
        """Notes that a pass from a turn's place reads, in a worker or in none, and returns whether one has before."""
        if worker:  # all workers take part in each pass: the first one counts
            return False
        again = turn == int(self._numbers[1])
        self._numbers[1] = turn
        return again

    def work(self) -> None:
        """Notes that it is workers that make passes."""
        self._numbers[2] = self.turn

    @property
    def in_workers(self) -> bool:
        """Whether workers have made passes since the place was set."""
        return int(self._numbers[2]) == self.turn
