"""The examples run, and what they print is right."""

import contextlib
import io
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import clean
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from conftest import Serve

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def uri(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("examples")
    for name, table in {"points": points(), "photos": photos(), "texts": texts(), "pictures": pictures()}.items():
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "0.parquet", row_group_size=64)
    server = serve(folder)
    yield server.uri
    server.stop()


def points() -> pa.Table:
    x = np.random.default_rng(1).normal(size=(640, 8)).astype(np.float32)
    y = x @ np.arange(8, dtype=np.float32) + 3
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 8), "y": y})


def photos() -> pa.Table:
    def jpeg(shade: int) -> bytes:
        out = io.BytesIO()
        Image.new("RGB", (24, 16), (shade, shade, shade)).save(out, "JPEG")
        return out.getvalue()

    return pa.table({"image": [jpeg(n % 10 * 20) for n in range(100)], "label": [n % 10 for n in range(100)]})


def texts() -> pa.Table:
    return pa.table({"tokens": pa.array([[1 + (n * i) % 999 for i in range(n % 40)] for n in range(500)])})


def pictures() -> pa.Table:
    pixels = (np.arange(64 * 8 * 6 * 3) % 251).astype(np.uint8).reshape(64, 8, 6, 3)
    return pa.table({"pixels": pa.FixedShapeTensorArray.from_numpy_ndarray(pixels)})


def example(name: str, *args: str) -> str:
    """What an example prints."""
    sys.argv = [name, *args]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return out.getvalue()


def test_images_are_decoded_in_a_transform(uri: str) -> None:
    *lines, advice = clean.run(example, "images", uri).splitlines()
    assert lines == [f"{label} 10 {label * 20:.3f}" for label in range(10)]
    assert "is the bottleneck" in advice


def test_token_sequences_come_with_offsets(uri: str) -> None:
    tokens, ragged, padded = clean.run(example, "tokens", uri).split()
    assert int(tokens) == sum(n % 40 for n in range(500))
    assert ragged == padded


def test_fixed_shape_tensors_become_images(uri: str) -> None:
    total = int((np.arange(64 * 8 * 6 * 3) % 251).sum())
    assert clean.run(example, "pictures", uri).strip() == f"[16, 8, 6, 3] {total} [16, 4, 6, 4]"


def test_pain21_a_killed_job_goes_on_to_the_same_weights(uri: str, tmp_path: Path) -> None:
    """Two ranks train to the end; two others are killed in the middle and started again."""
    whole = Job(uri, tmp_path / "whole.pt")
    undisturbed = whole.end()
    killed = Job(uri, tmp_path / "killed.pt")
    killed.kill_after(16)
    again = Job(uri, tmp_path / "killed.pt")
    resumed = again.end()
    assert resumed == undisturbed
    losses, weights = zip(*(line.removeprefix("loss ").split(" weights ") for line in undisturbed), strict=True)
    assert len(set(weights)) == 1  # both ranks
    assert all(float(loss) < 1e-6 for loss in losses)
    assert again.steps() < whole.steps() == 3 * (640 // 64)


class Job:
    """Two ranks of the DDP example."""

    def __init__(self, uri: str, checkpoint: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.logs = [checkpoint.with_suffix(f".{rank}.{time.monotonic_ns()}.log") for rank in range(2)]
        start = get_context("forkserver").Process
        self.ranks = [start(target=train, args=(uri, str(checkpoint), r, port, str(self.logs[r]))) for r in range(2)]
        for rank, log in zip(self.ranks, self.logs, strict=True):
            log.touch()
            rank.start()

    def end(self) -> list[str]:
        """What each rank said last."""
        for rank in self.ranks:
            rank.join(timeout=120)
            assert rank.exitcode == 0
        return [log.read_text().splitlines()[-1] for log in self.logs]

    def steps(self) -> int:
        return self.logs[0].read_text().count("step")

    def kill_after(self, steps: int) -> None:
        """Kills both and all that they started, as when a container ends, once the first has taken so many steps."""
        while self.steps() < steps:
            assert all(rank.is_alive() for rank in self.ranks)
            time.sleep(0.005)
        for rank in self.ranks:
            assert rank.pid is not None
            os.killpg(rank.pid, signal.SIGKILL)  # a worker and the process that forks workers keep each other alive
            rank.join()


def train(uri: str, checkpoint: str, rank: int, port: int, log: str) -> None:
    os.setsid()
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = ["ddp", uri, checkpoint]
    with open(log, "w") as out, contextlib.redirect_stdout(out):
        runpy.run_path(str(EXAMPLES / "ddp.py"), run_name="__main__")
