"""Brings batches to where the trainer computes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from headrace.errors import RequestError
from headrace.torch.tensors import Ragged

Sent = tuple[Any, "torch.cuda.Event | None"]


class Device:
    """Copies batches to a device ahead of need: for CUDA out of pinned memory, on a stream beside the trainer's."""

    def __init__(self, device: torch.device | str | None, *, pin_memory: bool) -> None:
        self._device = None if device is None else torch.device(device)
        self._pin = pin_memory
        self._side: torch.cuda.Stream | None = None
        if self._device is not None and self._device.type == "cuda":
            _need_cuda(f"device {self._device}")
            self._pin = True  # a copy out of memory that can be paged out waits for the host
            self._side = torch.cuda.Stream(self._device)
        elif pin_memory:
            _need_cuda("pin_memory")

    @property
    def idle(self) -> bool:
        """Whether batches stay where they are."""
        return self._device is None and not self._pin

    def send(self, batch: Any) -> Sent:
        """Begins to copy a batch, in any thread."""
        if self._pin:
            batch = each(batch, lambda part: part.pin_memory())
        if self._device is None:
            return batch, None
        if self._side is None:
            return each(batch, lambda part: part.to(self._device)), None
        with torch.cuda.stream(self._side):
            moved = each(batch, lambda part: part.to(self._device, non_blocking=True))
            return moved, self._side.record_event()

    def receive(self, sent: Sent) -> Any:
        """Returns a batch to the trainer's thread, whose stream waits for the copy; the thread itself does not."""
        batch, copied = sent
        if copied is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copied)
            each(batch, lambda part: _used_by(part, current))
        return batch


def each(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a batch with all its tensors changed; what is no tensor stays."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Ragged):
        return Ragged(each(batch.values, change), each(batch.offsets, change))
    if isinstance(batch, Mapping):
        changed = {name: each(value, change) for name, value in batch.items()}
        if not isinstance(batch, dict):
            return changed
        copy = batch.copy() if type(batch) is dict else _like(batch)
        copy.update(changed)
        return copy
    if isinstance(batch, tuple):
        parts = [each(part, change) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if isinstance(batch, list):
        return [each(part, change) for part in batch]
    return batch


def _like(batch: dict[str, Any]) -> dict[str, Any]:
    copy = type(batch)()
    copy.__dict__.update(batch.__dict__)
    return copy


def _used_by(part: torch.Tensor, stream: "torch.cuda.Stream") -> torch.Tensor:
    """Keeps the memory of a tensor from being used again before a stream has done with it."""
    part.record_stream(stream)
    return part


def _need_cuda(what: str) -> None:
    if not torch.cuda.is_available():
        raise RequestError(
            f"{what} was asked for, but this PyTorch ({torch.__version__}) finds no CUDA device: leave it out to train "
            "on the CPU, or see torch.cuda.is_available()"
        )
