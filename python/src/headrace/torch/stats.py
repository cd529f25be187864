"""Where the time of a training loop goes, and what to change."""

from dataclasses import dataclass

from headrace import stream

# A trainer that waits less than this share of its time is fed well enough.
_FED = 0.05


@dataclass
class Stats:
    """Where the time of a pass went, in seconds, and what it brought.

    `server` and `wire` are what was waited for the gateway's data and for their way here, `transform` is what all
    threads together took to prepare batches, `wait` is the trainer's for batches, but for the first one, which took
    `first`, and `trainer` what it needed for itself. All but the last three overlap.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    server: float = 0.0
    wire: float = 0.0
    transform: float = 0.0
    first: float = 0.0
    wait: float = 0.0
    trainer: float = 0.0
    threads: int = 1
    resumed: int = 0

    def note(self, stream: stream.Stats, left: float | None, asked: float, now: float) -> None:
        """Counts a batch that the trainer asked for and got, after it had left with the last one."""
        if left is None:
            self.first = now - asked
        else:
            self.wait += now - asked
            self.trainer += asked - left
        self.batches += 1
        self.rows, self.bytes, self.resumed = stream.rows, stream.bytes, stream.resumed
        self.server, self.wire = stream.server, stream.wire

    @property
    def seconds(self) -> float:
        """From the first batch to the last."""
        return self.wait + self.trainer

    @property
    def bottleneck(self) -> str:
        """What to speed up first: server, wire, transform or trainer."""
        if self.wait <= _FED * self.seconds:
            return "trainer"
        busy = {"server": self.server, "wire": self.wire, "transform": self.transform / self.threads}
        return max(busy, key=lambda stage: busy[stage])

    def __str__(self) -> str:
        """One line: the bottleneck and what to change."""
        total = self.seconds or 1.0
        slow = self.bottleneck
        if slow == "trainer":
            return (
                f"trainer is the bottleneck: it waited {self.wait / total:.0%} of the time for batches; data are fine"
            )
        return f"{slow} is the bottleneck, the trainer waited {self.wait / total:.0%} of the time: {self._advice(slow)}"

    def _advice(self, slow: str) -> str:
        total = self.seconds or 1.0
        if slow == "transform":
            return (
                f"{self.threads} threads were busy {self.transform / self.threads / total:.0%} of the time; give more "
                "transform_threads if there are processors and the work leaves the interpreter, or do less in transform"
            )
        if slow == "server":
            return (
                f"the gateway waited {self.server / total:.0%} of the time for the store and the decoder; give it more "
                "memory to cache, ask for fewer columns, or take files that decode faster"
            )
        return (
            f"{self.bytes / 1e6 / total:.0f} MB/s came; ask for fewer columns, put the gateway nearer, or take "
            'compression="lz4" where the network is the limit and processors are not'
        )
