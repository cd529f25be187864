"""Training loops are given the same samples through shared memory as without it, in every kind of worker."""

import itertools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clean
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from conftest import Serve
from headrace.torch import Loader, StreamingDataset

ROWS, STEP = 1200, 8  # far more steps than a ring has slots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory can be handed over on Linux alone")


@pytest.fixture(scope="module")
def uri(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data") / "samples"
    folder.mkdir()
    random = np.random.default_rng(0)
    columns = {
        "id": np.arange(ROWS),
        "image": pa.FixedShapeTensorArray.from_numpy_ndarray(random.random((ROWS, 3, 8, 8), np.float32)),
        "tokens": [list(range(n % 9)) for n in range(ROWS)],
        "flag": [n % 3 == 0 for n in range(ROWS)],
        "text": [f"row {n}" for n in range(ROWS)],
    }
    pq.write_table(pa.table(columns), folder / "0.parquet", row_group_size=100)
    server = serve(folder)
    yield server.uri
    server.stop()


def make(uri: str, shared: bool) -> StreamingDataset:
    return StreamingDataset(
        uri, "samples", batch_size=STEP, shuffle=True, seed=1, window_blocks=4, shared_memory=shared
    )


def sample(batch: Any) -> tuple[Any, ...]:
    """A batch as values that are compared, with its state."""
    image, tokens = batch["image"], batch["tokens"]
    return (
        batch["id"].tolist(), image.numpy().tobytes(), tuple(image.shape), tokens.values.tolist(),
        tokens.offsets.diff().tolist(), batch["flag"].tolist(), list(batch["text"]), batch.state,
    )  # fmt: skip


def of_workers(dataset: StreamingDataset, kind: str, start: str, persistent: bool) -> list[Any]:
    loader: Any = (DataLoader if kind == "plain" else StatefulDataLoader)(
        dataset,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=start,
        persistent_workers=persistent,
        prefetch_factor=4,
    )
    out = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        out += [sample(batch) for batch in list(loader)]  # all are kept
    return out


@pytest.mark.parametrize("kind", ["plain", "stateful"])
@pytest.mark.parametrize(("start", "persistent"), [("fork", False), ("fork", True), ("spawn", True)])
def test_workers_give_the_same_samples(uri: str, kind: str, start: str, persistent: bool) -> None:
    near, far = (clean.run(of_workers, make(uri, shared), kind, start, persistent) for shared in (True, False))
    assert len(near) == 2 * ROWS // STEP
    assert near == far


def test_a_loader_that_keeps_many_gives_the_same_samples(uri: str) -> None:
    def double(batch: Any) -> Any:
        batch["image"] *= 2.0  # in the received memory, in any of the threads
        return batch

    kept = []
    for shared in (True, False):
        loader = Loader(make(uri, shared), transform=double, transform_threads=3)
        kept.append([sample(batch) for batch in list(loader)])
        assert (loader.stats().shared > 0) is shared
    assert kept[0] == kept[1]


def test_writing_into_a_batch_changes_no_other(uri: str) -> None:
    dataset = make(uri, shared=True)
    held: list[Any] = []
    for number, batch in enumerate(dataset):
        batch["image"].fill_(number)
        batch["id"].fill_(-number)
        held.append(batch)
        if number % 2:
            del held[len(held) // 2]  # its memory is used again
    numbers = [int(batch["image"].flatten()[0]) for batch in held]
    assert len(set(numbers)) == len(held) > 60
    for number, batch in zip(numbers, held, strict=True):
        assert bool((batch["image"] == number).all())
        assert bool((batch["id"] == -number).all())
    again = [batch["id"].tolist() for batch in make(uri, shared=True)]  # nobody got what was written
    assert sorted(itertools.chain.from_iterable(again)) == list(range(ROWS))


def test_a_fork_of_a_loop_that_goes_on(uri: str) -> None:
    assert clean.run(forks, uri) == list(range(ROWS))


def forks(uri: str) -> list[int]:
    """Forks again and again while a loop holds batches; the children look at them, and write into them."""
    rows: list[int] = []
    held: list[tuple[torch.Tensor, list[int]]] = []
    for number, batch in enumerate(make(uri, shared=True)):
        ids = batch["id"].tolist()
        rows += ids
        held = [*held[-3:], (batch["id"], ids)]
        if number % 30 == 10:
            child = os.fork()
            if child == 0:
                os._exit(0 if all(tensor.tolist() == want for tensor, want in held) else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert all(tensor.tolist() == want for tensor, want in held)
    return sorted(rows)


def test_streams_in_many_threads(uri: str) -> None:
    want = [sample(batch) for batch in make(uri, shared=False)]
    got: list[list[Any]] = []

    def read() -> None:
        got.append([sample(batch) for batch in make(uri, shared=True)])

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 6


def test_a_state_of_either_goes_on_with_the_other(uri: str, tmp_path: Path) -> None:
    want = [sample(batch)[:-1] for batch in make(uri, shared=False)]
    first, second = make(uri, shared=True), make(uri, shared=False)
    begun = list(itertools.islice(first, 40))
    second.load_state_dict(begun[-1].state)
    assert [sample(batch)[:-1] for batch in (*begun, *second)] == want
