"""What headrace.torch.Loader promises: the order, the threads, the device, and to say what is slow."""

import copy
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import headrace
from conftest import Serve
from gateway import Data, Gateway
from headrace.torch import Batch, Loader, Masked, Ragged, StreamingDataset
from headrace.torch.device import each

ROWS, STEP, STEPS = 400, 16, 25


@pytest.fixture(scope="module")
def uri(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data") / "numbers"
    folder.mkdir()
    number = np.arange(ROWS)
    columns = {"id": number, "tokens": [[n] * (n % 3) for n in number], "jpeg": [b"%d" % n for n in number]}
    pq.write_table(pa.table(columns), folder / "0.parquet", row_group_size=25)
    server = serve(folder)
    yield server.uri
    server.stop()


@pytest.fixture
def dataset(uri: str) -> StreamingDataset:
    return StreamingDataset(uri, "numbers", batch_size=STEP, shuffle=True, seed=1)


@pytest.fixture
def want(dataset: StreamingDataset) -> list[list[int]]:
    with headrace.connect(dataset._connection.uri) as client:
        stream = client.stream("numbers", shuffle=True, seed=1, batch_size=STEP)
        return [batch["id"].to_pylist() for batch in stream]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_batches_are_those_of_the_data_set(dataset: StreamingDataset, want: list[list[int]]) -> None:
    loader = Loader(dataset)
    assert len(loader) == STEPS
    batches = list(loader)
    assert [batch["id"].tolist() for batch in batches] == want
    assert all(isinstance(batch, Batch) for batch in batches)
    dataset.set_epoch(1)
    assert sorted(row for batch in loader for row in batch["id"].tolist()) == list(range(ROWS))


def test_the_order_is_kept_however_long_a_transform_takes(dataset: StreamingDataset, want: list[list[int]]) -> None:
    first = threading.Event()
    others = threading.Semaphore(0)

    def transform(batch: Batch) -> list[int]:
        rows: list[int] = batch["id"].tolist()
        if rows == want[0]:  # comes last
            others.acquire()
            others.acquire()
            first.set()
        elif not first.is_set():
            others.release()
        return rows

    assert list(Loader(dataset, transform=transform, transform_threads=3)) == want


def test_never_more_than_prefetch_batches_ahead(dataset: StreamingDataset) -> None:
    made = itertools.count()
    loader = Loader(dataset, transform=lambda batch: next(made), prefetch=2)
    for taken, number in enumerate(loader):
        assert number == taken
        assert next(copy.copy(made)) <= taken + 3


def test_rows_are_transformed_and_collated(dataset: StreamingDataset, want: list[list[int]]) -> None:
    def transform(row: dict[str, Any]) -> tuple[int, str, int]:
        return int(row["id"]), row["jpeg"].numpy().tobytes().decode(), int(row["tokens"].sum())

    for batch, rows in zip(Loader(dataset, transform=transform, collate=list), want, strict=True):
        assert batch == [(n, str(n), n * (n % 3)) for n in rows]


def test_collate_alone_gets_rows(dataset: StreamingDataset, want: list[list[int]]) -> None:
    stacked = next(iter(Loader(dataset, collate=lambda rows: torch.stack([row["id"] for row in rows]))))
    assert stacked.tolist() == want[0]


def test_record_batches_go_through_transforms(uri: str) -> None:
    dataset = StreamingDataset(uri, "numbers", batch_size=STEP, format="arrow")
    loader = Loader(dataset, transform=lambda batch: batch["id"].to_pylist())
    assert list(itertools.chain(*loader)) == list(range(ROWS))


def test_what_a_transform_raises_comes_in_its_turn(dataset: StreamingDataset, want: list[list[int]]) -> None:
    def transform(batch: Batch) -> list[int]:
        if batch["id"].tolist() == want[3]:
            raise ZeroDivisionError("no picture")
        rows: list[int] = batch["id"].tolist()
        return rows

    batches = iter(Loader(dataset, transform=transform))
    assert list(itertools.islice(batches, 3)) == want[:3]
    with pytest.raises(ZeroDivisionError, match="no picture"):
        next(batches)


def test_the_state_is_of_what_was_taken(dataset: StreamingDataset, want: list[list[int]]) -> None:
    taken = list(itertools.islice(Loader(dataset, prefetch=8, transform=lambda batch: batch["id"].tolist()), 5))
    state = dataset.state_dict()
    dataset.set_epoch(3)
    dataset.load_state_dict(state)
    assert taken + [batch["id"].tolist() for batch in Loader(dataset)] == want


def test_a_pass_may_be_broken_off_while_it_waits_for_the_gateway(gateway: Gateway) -> None:
    gateway.data = Data(rows=100)
    hold = threading.Event()

    def fault(message: int) -> None:
        if message >= 4:
            hold.wait(60)

    gateway.fault = fault
    loader = Loader(StreamingDataset(gateway.uri, "team/numbers", batch_size=10, columns=["id"]), prefetch=2)
    began = time.monotonic()
    assert len(list(itertools.islice(loader, 3))) == 3
    assert time.monotonic() - began < 30
    hold.set()


def test_a_device(dataset: StreamingDataset) -> None:
    batch = next(iter(Loader(dataset, device="cpu")))
    assert batch["id"].device == torch.device("cpu")
    dataset.set_epoch(1)
    moved = next(iter(Loader(dataset, device="meta", transform=lambda batch: [batch, batch["id"]])))
    assert moved[1].device.type == moved[0]["tokens"].values.device.type == "meta"
    assert moved[0].state["cursor"]


def test_all_tensors_of_a_batch_are_moved() -> None:
    one = torch.ones(1)
    batch = Batch(a=one, b={"c": [one, "text"]}, d=Ragged(one, one), e=Masked(one, one))
    batch.state = {"cursor": "x"}
    moved = each(batch, lambda tensor: tensor.to("meta"))
    assert (moved.state, type(moved), moved["b"]["c"][1]) == (batch.state, Batch, "text")
    parts = (moved["a"], moved["b"]["c"][0], moved["d"].values, moved["d"].offsets, *moved["e"])
    assert {part.device.type for part in parts} == {"meta"}
    assert batch["a"].device.type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("options", [{"device": "cuda"}, {"device": "cuda:1"}, {"pin_memory": True}])
def test_cuda_that_is_not_there(dataset: StreamingDataset, options: dict[str, Any]) -> None:
    with pytest.raises(headrace.RequestError, match=r"was asked for, but this PyTorch \(.*\) finds no CUDA device"):
        Loader(dataset, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda(dataset: StreamingDataset, want: list[list[int]]) -> None:
    for options in ({"device": "cuda"}, {"pin_memory": True}):
        batches = list(Loader(dataset, **options))
        assert [batch["id"].tolist() for batch in batches] == want
        assert all(batch["id"].is_cuda or batch["id"].is_pinned() for batch in batches)


def test_options_out_of_range(dataset: StreamingDataset) -> None:
    for prefetch, threads in ((0, 1), (1, 0)):
        with pytest.raises(headrace.RequestError, match="at least 1"):
            Loader(dataset, prefetch=prefetch, transform_threads=threads)


def test_stats_of_a_pass(dataset: StreamingDataset) -> None:
    loader = Loader(dataset, transform=lambda batch: time.sleep(0.01), transform_threads=2)
    assert loader.stats() == headrace.Stats()
    list(loader)
    stats = loader.stats()
    assert (stats.batches, stats.rows, stats.threads, stats.resumed) == (STEPS, ROWS, 2, 0)
    assert stats.transform >= STEPS * 0.01
    assert stats.first > 0.01
    assert stats.bytes > 8 * ROWS
