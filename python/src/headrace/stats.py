"""Where the time of reading goes, and what to change."""

from dataclasses import dataclass

# A trainer that waits less than this share of its time is fed well enough.
_FED = 0.05


@dataclass
class Stats:
    """Where the time went, in seconds, and what came. `shared` bytes of all came through memory of the same host.

    `store`, `decode` and `gateway` are what the gateway waited for: bytes out of the store, its decoder, and else
    (memory, or blocks that another stream was reading), as far as the reader here waited for that. `wire` is the rest
    of the reader's waits: gathering, encoding, network, receiving. `transform` is what all `threads` of a `Loader`
    together took to prepare batches. The trainer needed `trainer` for itself and waited `first` for its first batch,
    `wait` for the others; a `Loader` works meanwhile, so the rest overlaps with these.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    shared: int = 0
    store: float = 0.0
    decode: float = 0.0
    gateway: float = 0.0
    wire: float = 0.0
    transform: float = 0.0
    threads: int = 1
    first: float = 0.0
    wait: float = 0.0
    trainer: float = 0.0
    resumed: int = 0

    def take(self, left: float | None, asked: float, now: float) -> None:
        """Counts a batch that the trainer asked for and got, after it had left with the last one."""
        if left is None:
            self.first = now - asked
        else:
            self.wait += now - asked
            self.trainer += asked - left

    @property
    def bottleneck(self) -> str:
        """What to speed up first: store, decode, gateway, wire, transform or trainer."""
        if self.wait <= _FED * (self.wait + self.trainer):
            return "trainer"
        return max(_ADVICE, key=self._busy)

    def _busy(self, stage: str) -> float:
        seconds: float = getattr(self, stage)
        return seconds / self.threads if stage == "transform" else seconds

    def __str__(self) -> str:
        """One line: the bottleneck and what to change."""
        waited = f"{self.wait / (self.wait + self.trainer or 1.0):.0%}"
        slow = self.bottleneck
        if slow == "trainer":
            return f"trainer is the bottleneck: it waited {waited} of the time for batches; data are fine"
        seconds = self.first + self.wait + self.trainer or 1.0
        busy = f"{self._busy(slow) / seconds:.0%} of the time"
        by_memory = slow == "wire" and self.shared > self.bytes / 2
        advice = (_BY_MEMORY if by_memory else _ADVICE[slow]).format(
            busy=busy, threads=self.threads, speed=self.bytes / 1e6 / seconds
        )
        return f"{slow} is the bottleneck, the trainer waited {waited} of the time: {advice}"


# On the gateway's own host there is no network, so nothing is gained by a shorter or a narrower one.
_BY_MEMORY = (
    "{speed:.0f} MB/s came in shared memory; ask for fewer columns, or give the gateway and the trainer more processors"
)

_ADVICE = {
    "store": "the gateway waited {busy} for the store; let it cache more (memory, cache.disk), ask for fewer columns, "
    "or put it nearer to the store",
    "decode": "the gateway's decoder took {busy}; give the gateway processors or more memory to cache, ask for fewer "
    "columns, or write files that decode faster",
    "gateway": "the gateway waited {busy} for memory or for blocks that another stream was reading; give it more "
    "memory, or take a smaller window_blocks",
    "wire": '{speed:.0f} MB/s came; ask for fewer columns, put the gateway nearer, or take compression="lz4" where the '
    "network is the limit and processors are not",
    "transform": "{threads} threads were busy {busy}; give more transform_threads if there are processors and the work "
    "leaves the interpreter, or do less in transform",
}
