"""Where the time goes: whatever is slow is named, with what to change."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bucket import Bucket

import headrace
from conftest import Serve
from gateway import Data, Gateway
from headrace.torch import Loader, StreamingDataset

Read = Callable[..., headrace.Stats]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight row groups of 12 MB each, which take a while to decompress."""
    path = tmp_path_factory.mktemp("data") / "packed"
    path.mkdir()
    letters = np.random.default_rng(0).integers(0, 16, (800, 120_000), dtype=np.uint8)
    columns = {"id": range(800), "packed": pa.array([row.tobytes() for row in letters])}
    pq.write_table(
        pa.table(columns), path / "0.parquet", row_group_size=100, use_dictionary=False, compression="gzip",
        compression_level=1,
    )  # fmt: skip
    return path


def by_stream(uri: str, name: str, **options: Any) -> headrace.Stats:
    with headrace.connect(uri) as client, client.stream(name, **options) as stream:
        assert {row for batch in stream for row in batch["id"].to_pylist()}
        return stream.stats()


def by_loader(uri: str, name: str, trainer: Callable[[], object] = lambda: None, **options: Any) -> headrace.Stats:
    wanted = {name: options.pop(name) for name in ("transform", "transform_threads") if name in options}
    loader = Loader(StreamingDataset(uri, name, **options), **wanted)
    consume(loader, trainer)
    return loader.stats()


def consume(batches: Iterable[Any], trainer: Callable[[], object]) -> None:
    for _ in batches:
        trainer()


@pytest.fixture
def late(serve: Serve, folder: Path) -> Iterator[str]:
    """A gateway whose store takes 50 ms for each answer."""
    with closing(Bucket(folder, late=0.05)) as bucket:
        server = serve(bucket.url)
        yield server.uri
        server.stop()


@pytest.fixture
def quick(serve: Serve, folder: Path) -> Iterator[str]:
    server = serve(folder)
    yield server.uri
    server.stop()


def windows(**options: Any) -> dict[str, Any]:
    """A pass over many windows, so that there is something to wait for after the first batch."""
    return {"shuffle": True, "window_blocks": 1, "batch_size": 25, **options}


@pytest.mark.parametrize("read", [by_stream, by_loader])
def test_a_slow_store_is_named(late: str, read: Read) -> None:
    stats = read(late, "data", columns=["id"], **windows(window_blocks=3))
    assert stats.bottleneck == "store", stats
    assert stats.store > 8 * 0.05 * 0.9
    assert "the gateway waited" in str(stats)
    assert "for the store" in str(stats)


@pytest.mark.parametrize("read", [by_stream, by_loader])
def test_a_slow_codec_is_named(quick: str, read: Read) -> None:
    stats = read(quick, "packed", **windows(split=(1, 0, 400), batch_size=4))
    assert stats.bottleneck == "decode", stats
    assert "the gateway's decoder took" in str(stats)


def test_a_slow_transform_is_named(quick: str) -> None:
    def transform(batch: Any) -> Any:
        time.sleep(0.02)
        return batch

    stats = by_loader(quick, "packed", columns=["id"], transform=transform, transform_threads=1, **windows())
    assert stats.bottleneck == "transform", stats
    assert stats.transform >= stats.batches * 0.02
    assert "1 threads were busy" in str(stats)


def test_a_slow_trainer_is_named(quick: str) -> None:
    stats = by_loader(quick, "packed", lambda: time.sleep(0.05), columns=["id"], **windows(window_blocks=8))
    assert stats.bottleneck == "trainer", stats
    assert stats.trainer >= (stats.batches - 1) * 0.05
    assert "data are fine" in str(stats)


@pytest.mark.parametrize(
    ("store", "decode", "slow"), [(0.07, 0.02, "store"), (0.02, 0.07, "decode"), (0, 0, "gateway")]
)
def test_what_the_gateway_waited_for_is_told_apart(gateway: Gateway, store: float, decode: float, slow: str) -> None:
    gateway.data = Data(rows=50, wait=0.1, store=store, decode=decode)
    stats = by_stream(gateway.uri, "team/numbers")
    assert stats.bottleneck == slow
    waited = stats.store + stats.decode + stats.gateway
    assert 0.1 < waited <= 5 * 0.1 * 1.001  # less where the reader here came late
    assert stats.store == pytest.approx(waited * store / 0.1)
    assert stats.decode == pytest.approx(waited * decode / 0.1)
    assert stats.wire >= 0


def test_a_slow_user_of_a_stream_is_named(gateway: Gateway) -> None:
    gateway.data = Data(rows=50)
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        consume(stream, lambda: time.sleep(0.1))
        assert stream.stats().bottleneck == "trainer", stream.stats()
        assert stream.stats().trainer >= 4 * 0.1


def test_what_was_not_waited_for_here_does_not_count(gateway: Gateway) -> None:
    gateway.data = Data(rows=50, wait=0.05, store=0.05)
    with headrace.connect(gateway.uri) as client:
        stream = client.stream("team/numbers")
        consume(stream, lambda: time.sleep(0.2))
        assert stream.stats().store < 3 * 0.05  # but for the first ones, it was over when they were asked for


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({"wait": 0.1, "trainer": 9.9}, "trainer is the bottleneck: it waited 1% of the time"),
        ({"wait": 5, "trainer": 5, "store": 6, "wire": 1}, "store is .* 50% .*waited 60% .* for the store; .*cache"),
        ({"wait": 5, "trainer": 5, "decode": 6, "wire": 1}, "decode is .* 50% .*decoder took 60% .*decode faster"),
        ({"wait": 5, "trainer": 5, "gateway": 6, "wire": 1}, "gateway is .*waited 60% .* for memory .*window_blocks"),
        ({"wait": 5, "trainer": 5, "wire": 4, "bytes": 3 * 10**9}, "wire is .*300 MB/s came.*fewer columns"),
        ({"wait": 5, "trainer": 5, "wire": 4, "bytes": 9, "shared": 4}, "wire is .*nearer, or take compression"),
        ({"wait": 5, "trainer": 5, "wire": 4, "bytes": 9, "shared": 5}, "came in shared memory; ((?!nearer|compr).)*$"),
        ({"wait": 9, "trainer": 1, "transform": 38, "threads": 4, "wire": 2}, "4 threads were busy 95%.*transform_thr"),
        ({}, "trainer is the bottleneck: it waited 0%"),
    ],
)
def test_stats_say_in_one_line_what_to_change(times: dict[str, Any], words: str) -> None:
    line = str(headrace.Stats(**times))
    assert re.search(words, line), line
    assert "\n" not in line
