"""What a loop over a StreamingDataset promises, with every kind of worker, at a real gateway."""

import copy
import itertools
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import clean
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bucket import Bucket
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace
from conftest import Serve
from headrace import child, connection
from headrace.connection import Connection
from headrace.torch import Batch, StreamingDataset, names, ranks

ROWS = 1000
STEP = 32
STEPS = 32  # the last one is short


@pytest.fixture(scope="module")
def uri(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data") / "numbers"
    folder.mkdir()
    for shard in range(4):
        number = np.arange(250) + 250 * shard
        columns = {"id": number, "label": (number // 100).astype(np.int32), "text": [f"row {n}" for n in number]}
        pq.write_table(pa.table(columns), folder / f"{shard}.parquet", row_group_size=25)
    server = serve(folder)
    yield server.uri
    server.stop()


def make(uri: str, **options: Any) -> StreamingDataset:
    shuffled = {"batch_size": STEP, "shuffle": True, "seed": 1, "window_blocks": 8}
    return StreamingDataset(uri, "numbers", **(shuffled | options))


def ids(batches: Iterable[Any]) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def flat(steps: Iterable[list[int]]) -> list[int]:
    return [row for step in steps for row in step]


def want(uri: str, epoch: int = 0) -> list[list[int]]:
    """The epoch's steps, by the client that is no part of this."""
    with headrace.connect(uri) as client:
        stream = client.stream("numbers", shuffle=True, seed=1, window_blocks=8, batch_size=STEP, epoch=epoch)
        return [batch["id"].to_pylist() for batch in stream]


def fresh(dataset: StreamingDataset) -> StreamingDataset:
    """As if made anew."""
    return copy.deepcopy(dataset)


def two_passes(dataset: StreamingDataset, workers: int, start: str, persistent: bool) -> list[list[list[int]]]:
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=start if workers else None,
        persistent_workers=persistent,
    )
    out = [ids(loader)]
    dataset.set_epoch(1)
    return [*out, ids(loader)]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True), (4, True)])
def test_pain22_forked_workers_give_the_same_batches(uri: str, workers: int, persistent: bool) -> None:
    got = clean.run(two_passes, make(uri), workers, "fork", persistent)
    assert got == [want(uri), want(uri, 1)]
    assert sorted(flat(got[0])) == list(range(ROWS))
    assert got[0] != got[1]


@pytest.mark.parametrize(("start", "persistent"), [("forkserver", False), ("spawn", True)])
def test_pain22_workers_of_other_starts_do_not_mind_what_their_parent_used(
    uri: str, start: str, persistent: bool
) -> None:
    assert want(uri)  # uses gRPC in this process
    assert two_passes(make(uri), 2, start, persistent) == [want(uri), want(uri, 1)]


def test_b40_a_data_set_opens_nothing_before_its_first_batch(uri: str) -> None:
    assert clean.run(opened, uri) == (False, STEPS, True)


def opened(uri: str) -> tuple[bool, int, bool]:
    dataset = make(uri)
    steps, before = len(dataset), connection._grpc_process is not None
    next(iter(dataset))
    return before, steps, connection._grpc_process is not None


def test_b40_forked_workers_of_a_parent_that_used_grpc_say_so(uri: str) -> None:
    with pytest.raises(headrace.HeadraceError, match=r"was forked from process .* 'spawn' or 'forkserver': DataLoader"):
        clean.run(fork_too_late, uri)


def fork_too_late(uri: str) -> None:
    with headrace.connect(uri) as client:
        client.datasets()
        next(iter(DataLoader(make(uri), batch_size=None, num_workers=2, multiprocessing_context="fork")))


def test_b87_workers_share_the_rows_of_their_rank(uri: str) -> None:
    seen = [clean.run(rank_of_two, uri, rank) for rank in range(2)]
    assert len(seen[0]) == len(seen[1]) == ROWS // (2 * STEP)
    assert len(set(flat(seen[0] + seen[1]))) == len(seen[0]) * 2 * STEP


def rank_of_two(uri: str, rank: int) -> list[list[int]]:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    with pytest.warns(
        UserWarning, match="looks up the newest snapshot .* by itself.* same snapshot=, which `headrace peek"
    ):
        dataset = make(uri)
    return ids(DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork"))


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"WORLD_SIZE": "2"}, r"one of 2 \(WORLD_SIZE"),
        ({"RANK": "1"}, "RANK is 1, but WORLD_SIZE is not set"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, r"one of 4 \(SLURM_NTASKS.*rank=int\(os.environ\['SLURM_PROCID"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI"),
        ({"PMI_SIZE": "2"}, "each would read every row"),
    ],
)
def test_b87_ranks_that_do_not_know_themselves_are_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(headrace.RequestError, match=words):
        ranks.find(None, None, environment)
    assert ranks.find(0, 1, environment) == (0, 1)


def test_ranks_as_told() -> None:
    assert ranks.find(None, None, {}) == (0, 1)
    assert ranks.find(None, None, {"RANK": "1", "WORLD_SIZE": "3", "SLURM_NTASKS": "3"}) == (1, 3)
    assert ranks.find(None, None, {"SLURM_NTASKS": "1"}) == (0, 1)
    with pytest.raises(headrace.RequestError, match="pass both"):
        ranks.find(1, None, {})


@pytest.mark.parametrize("tail", ["drop", "pad", "keep"])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_pain14_ranks_take_equally_many_steps(uri: str, world: int, tail: str) -> None:
    of_ranks = [make(uri, rank=r, world_size=world, tail=tail, snapshot=make(uri).snapshot) for r in range(world)]
    taken = [ids(dataset) for dataset in of_ranks]
    steps = ROWS // (world * STEP) if tail == "drop" else -(-ROWS // (world * STEP))
    assert [len(steps_of_rank) for steps_of_rank in taken] == [steps] * world
    assert [len(dataset) for dataset in of_ranks] == [steps] * world
    rows = [row for steps_of_rank in taken for row in flat(steps_of_rank)]
    assert len(set(rows)) == (steps * world * STEP if tail == "drop" else ROWS)
    assert len(rows) == (ROWS if tail == "keep" else steps * world * STEP)


def test_pain12_a_state_of_any_batch_goes_on_behind_it_and_again(uri: str) -> None:
    all_of_them = want(uri)
    dataset = make(uri)
    for taken in range(STEPS + 1):
        dataset.set_epoch(7)
        dataset.set_epoch(0)
        got = ids(itertools.islice(dataset, taken))
        for more in (3, STEPS):  # interrupted a second time
            state = dataset.state_dict()
            dataset = make(uri)
            dataset.load_state_dict(state)
            assert len(dataset) == STEPS - len(got)
            assert dataset.state_dict() == state
            got += ids(itertools.islice(dataset, more))
        assert got == all_of_them, f"cut after {taken}"


@pytest.mark.parametrize("workers", [2, 3])
def test_pain12_a_batch_knows_its_place_however_far_workers_read_ahead(uri: str, workers: int) -> None:
    assert clean.run(cut_in_workers, make(uri), workers) == [want(uri)] * 5


def cut_in_workers(new: StreamingDataset, workers: int) -> list[list[list[int]]]:
    out = []
    for taken in (1, 2, 5, 17, STEPS):
        dataset = fresh(new)
        got = []
        for batch in itertools.islice(loader(dataset, workers), taken):
            assert isinstance(batch, Batch)
            got += ids([batch])
            state = batch.state
        with pytest.raises(headrace.HeadraceError, match="keep `state` of the last batch"):
            dataset.state_dict()
        again = fresh(new)
        again.load_state_dict(state)
        out.append(got + ids(loader(again, 5 - workers)))
    return out


def loader(dataset: StreamingDataset, workers: int) -> DataLoader[Any]:
    return DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context="fork" if workers else None
    )


def test_a_state_that_was_loaded_reaches_workers_that_run(uri: str) -> None:
    assert clean.run(load_into_persistent, make(uri)) == [want(uri), want(uri, 3)[4:], want(uri, 3)[4:], want(uri, 4)]


def load_into_persistent(dataset: StreamingDataset) -> list[list[list[int]]]:
    workers = DataLoader(
        dataset, batch_size=None, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    out = [ids(workers)]
    dataset.set_epoch(3)
    *_, batch = itertools.islice(workers, 4)
    dataset.load_state_dict(batch.state)
    out.append(ids(workers))
    dataset.load_state_dict(batch.state)
    dataset.set_epoch(3)  # as a loop over epochs does, which begins at the state's own
    out.append(ids(workers))
    dataset.set_epoch(4)
    return [*out, ids(workers)]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (3, True)])
def test_pain11_stateful_data_loader_goes_on_behind_what_was_consumed(uri: str, workers: int, persistent: bool) -> None:
    for taken, got, after in clean.run(cut_stateful, make(uri), workers, persistent):
        assert got == want(uri), f"cut after {taken}"
        assert after == want(uri, 1)


def cut_stateful(
    new: StreamingDataset, workers: int, persistent: bool
) -> list[tuple[int, list[list[int]], list[list[int]]]]:
    def begin() -> tuple[StreamingDataset, StatefulDataLoader[Any]]:
        dataset = fresh(new)
        context = "fork" if workers else None
        return dataset, StatefulDataLoader(
            dataset, None, num_workers=workers, multiprocessing_context=context, persistent_workers=persistent
        )

    out = []
    for taken in (0, 1, 4, STEPS):
        _, stateful = begin()
        got = ids(itertools.islice(stateful, taken))
        for more in (2, STEPS):  # interrupted a second time
            state = stateful.state_dict()
            dataset, stateful = begin()
            stateful.load_state_dict(state)
            dataset.set_epoch(0)
            if len(got) < STEPS:  # else torchdata begins another pass at once
                got += ids(itertools.islice(stateful, more))
        dataset.set_epoch(1)
        out.append((taken, got, ids(stateful) or ids(stateful)))  # the end of a pass that was not quite taken is empty
    return out


def test_stateful_data_loader_needs_as_many_workers(uri: str) -> None:
    dataset = make(uri)
    begin = {**dataset.state_dict(), "start": None, "worker": [1, 2]}
    with pytest.raises(headrace.RequestError, match="one worker's own"):
        dataset.load_state_dict(begin)
    with pytest.raises(headrace.RequestError, match="no state of a StreamingDataset: cursor"):
        dataset.load_state_dict({"snapshot": "", "epoch": 0})


@pytest.mark.parametrize(("old", "new"), [((2, 2), (3, 1)), ((3, 1), (1, 0)), ((1, 2), (2, 3))])
def test_pain11_goes_on_with_other_ranks_and_workers(uri: str, old: tuple[int, int], new: tuple[int, int]) -> None:
    rows, states = [], []
    for rank in range(old[0]):
        got, state = clean.run(run_rank, elastic(uri, rank, old[0]), old[1], 5, None)
        rows += got
        states.append(state)
    assert all(state == states[0] for state in states)
    for rank in range(new[0]):
        got, _ = clean.run(run_rank, elastic(uri, rank, new[0]), new[1], STEPS, states[0])
        rows += got
    assert sorted(rows) == list(range(ROWS))


def elastic(uri: str, rank: int, world: int) -> StreamingDataset:
    snapshot = make(uri).snapshot
    return make(uri, batch_size=None, global_batch_size=90, rank=rank, world_size=world, tail="keep", snapshot=snapshot)


def run_rank(
    dataset: StreamingDataset, workers: int, steps: int, state: dict[str, Any] | None
) -> tuple[list[int], dict[str, Any] | None]:
    if state:
        dataset.load_state_dict(state)
    rows: list[int] = []
    for batch in itertools.islice(loader(dataset, workers), steps):
        rows += batch["id"].tolist()
        state = batch.state
    return rows, state


def test_pain10_a_rank_that_never_comes_holds_up_nobody(uri: str) -> None:
    snapshot = make(uri).snapshot
    alone = make(uri, rank=1, world_size=4, snapshot=snapshot)
    assert len(ids(alone)) == ROWS // (4 * STEP)
    half = iter(make(uri, rank=0, world_size=4, snapshot=snapshot))
    next(half)  # and goes no further
    assert len(ids(make(uri, rank=2, world_size=4, snapshot=snapshot))) == ROWS // (4 * STEP)


def test_pain8_how_well_batches_are_mixed_is_known_and_true_to_the_end(uri: str) -> None:
    dataset = make(uri, window_blocks=40)  # labels are sorted in the files
    assert dataset.plan.design_effect is not None
    assert dataset.plan.design_effect < 2
    labels = np.concatenate([np.arange(10)] * 100)
    for label in range(10):
        share = [float((batch["label"] == label).double().mean()) for batch in dataset][:-1]
        dataset.set_epoch(label + 1)
        # The variance of a batch's share of a label, against that of batches drawn at random.
        assert np.var(share) < dataset.plan.design_effect * 3 * labels.var() / labels.mean() / STEP
        assert np.mean(share[-5:]) < 0.5


def test_pain16_the_first_batch_comes_before_a_buffer_is_filled(serve: Serve, tmp_path: Path) -> None:
    number = np.arange(ROWS)
    noise = np.random.default_rng(0).integers(0, 256, (ROWS, 4000), dtype=np.uint8)
    columns = {"id": number, "noise": [row.tobytes() for row in noise]}
    pq.write_table(pa.table(columns), tmp_path / "0.parquet", row_group_size=25, compression=None, use_dictionary=False)
    # The footer, its length, and what two windows of two row groups take; forty would have to be read to mix all rows.
    with closing(Bucket(tmp_path, most=12)) as bucket:
        server = serve(bucket.url)
        options: Any = {"batch_size": STEP, "shuffle": True, "seed": 1, "window_blocks": 2, "retry_for": 0.0}
        dataset = StreamingDataset(server.uri, "data", read_timeout=30.0, **options)
        assert dataset.plan.blocks == 40
        batches = iter(dataset)
        first = next(batches)["id"].tolist()
        assert len({row // 25 for row in first}) <= 4
        bucket.more.set()
        assert sorted(first + flat(ids(batches))) == list(range(ROWS))
        server.stop()


def test_len(uri: str) -> None:
    assert len(make(uri)) == len(DataLoader(make(uri), batch_size=None)) == STEPS
    assert len(make(uri, num_epochs=3)) == 3 * STEPS
    with pytest.raises(TypeError):
        len(make(uri, num_epochs=-1))
    dataset = make(uri, num_epochs=3)
    for taken, batch in enumerate(dataset, 1):
        if taken in (1, 20, STEPS, STEPS + 1, 3 * STEPS - 1, 3 * STEPS):
            rest = make(uri, num_epochs=3)
            rest.load_state_dict(batch.state)
            assert len(rest) == 3 * STEPS - taken == len(ids(rest))


def test_epochs_in_one_pass(uri: str) -> None:
    batches = list(make(uri, num_epochs=2))
    assert ids(batches) == want(uri) + want(uri, 1)
    assert [batch.epoch for batch in batches] == [0] * STEPS + [1] * STEPS
    cursors = [batch.state["cursor"].split(":")[2:] for batch in batches]
    assert cursors[STEPS - 1 : STEPS + 1] == [["1", "0"], ["1", str(STEP)]]


def test_a_pass_that_is_made_again_is_warned_of(uri: str) -> None:
    dataset = make(uri)
    first = ids(dataset)
    with pytest.warns(UserWarning, match=r"begins at epoch 0 of numbers.*set_epoch") as caught:
        assert ids(dataset) == first
    assert caught[0].filename == __file__
    dataset.load_state_dict(dataset.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ordered = make(uri, shuffle=False, seed=None, window_blocks=None)
        assert ids(ordered) == ids(ordered)  # as for validation
    ids(dataset)
    with pytest.warns(UserWarning, match="begins at the state that was loaded"):
        ids(dataset)


def test_what_is_set_is_for_the_next_pass(uri: str) -> None:
    dataset = make(uri)
    batches = iter(dataset)
    dataset.set_epoch(1)
    assert ids(batches) == want(uri)
    assert ids(dataset) == want(uri, 1)


def test_a_state_of_an_epochs_end(uri: str) -> None:
    dataset = make(uri)
    dataset.set_epoch(2)
    ids(dataset)
    state = dataset.state_dict()
    for begin, expected in ((2, []), (3, want(uri, 3))):
        again = make(uri)
        again.load_state_dict(state)
        again.set_epoch(begin)
        assert len(again) == len(expected)
        assert ids(again) == expected


def test_record_batches(uri: str) -> None:
    dataset = make(uri, format="arrow", columns=["id", "text"])
    batches = list(itertools.islice(dataset, 3))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert [batch["id"].to_pylist() for batch in batches] == want(uri)[:3]
    again = make(uri, format="arrow")
    again.load_state_dict(dataset.state_dict())
    assert next(iter(again))["id"].to_pylist() == want(uri)[3]


def test_columns_split_and_tensors(uri: str) -> None:
    parts = [make(uri, columns=["id", "label"], split=(7, *bounds)) for bounds in ((0, 9000), (9000, 10000))]
    batches = [batch for part in parts for batch in part]
    assert sorted(flat(ids(batches))) == list(range(ROWS))
    assert (batches[0]["label"].dtype, set(batches[0])) == (torch.int32, {"id", "label"})


def test_steps_longer_than_a_message_come_whole(uri: str) -> None:
    dataset = make(uri, max_message_bytes=1024)
    assert ids(dataset) == want(uri)


def test_a_broken_off_pass_leaves_no_thread(uri: str) -> None:
    before = threading.active_count()
    for _ in range(3):
        for _ in itertools.islice(make(uri), 2):
            pass
    batches = iter(make(uri))
    next(batches)
    del batches
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_replicas": 2}, "no option num_replicas: here it is world_size"),
        ({"shuffle_seed": 2}, "here it is seed"),
        ({"cache_limit": "1gb"}, "`cache.disk.limit` of the gateway"),
        ({"num_workers": 2}, r"here it is DataLoader\(dataset, batch_size=None, num_workers"),
        ({"epoch": 2}, "set_epoch"),
        ({"rank": 4, "world_size": 4}, "rank 4 of world_size 4: ranks count from 0"),
        ({"shufle": True}, r"no option shufle: did you mean shuffle\?"),
        ({"nonsense": True}, "no option nonsense: options are batch_size, columns"),
        ({"format": "numpy"}, 'format is "torch" or "arrow"'),
        ({"batch_size": None}, "batch_size is missing"),
        ({"batch_size": 0}, "^batch_size must be a whole number of rows, at least 1, not 0"),
        ({"batch_size": -8}, "^batch_size must be .*, not -8"),
        ({"batch_size": "64"}, "^batch_size must be .*, not '64'"),
        ({"batch_size": 64.0}, r"^batch_size must be .*, not 64\.0"),
        ({"batch_size": True}, "^batch_size must be .*, not True"),
        ({"batch_size": None, "global_batch_size": -8}, "^global_batch_size must be .*, not -8"),
        ({"global_batch_size": 33}, "give one of the two sizes"),
        ({"fill": {"nothing": 0}}, "fill and mask name column nothing"),
        ({"columns": ["nothing"]}, "nothing"),
        ({"window_blocks": -1}, "window_blocks"),
        ({"split": "train"}, r'split is \(seed, from, to\).*; a folder "train" is named by the data set'),
    ],
)
def test_mistakes_are_told_when_the_data_set_is_made(uri: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(headrace.HeadraceError, match=words):
        make(uri, **options)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_of_batches_are_refused(uri: str, num_workers: int) -> None:
    context = "spawn" if num_workers else None
    loader = DataLoader(make(uri), batch_size=2, num_workers=num_workers, multiprocessing_context=context)
    with pytest.raises(headrace.RequestError, match="batch_size=None"):
        next(iter(loader))


def test_names_of_other_loaders_are_answered_with_ours() -> None:
    text = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    before = re.findall("# before\n(.*?)# after", text, re.DOTALL)
    used = set(re.findall(r"(\w+)=", "".join(before)))
    assert len(before) == 3
    assert {"remote", "shuffle_seed", "data_files", "buffer_size", "nodesplitter"} <= used
    for name in (used - set(headrace.Options.__annotations__)) | set(names._RIVALS) | set(names._OURS):
        with pytest.raises(headrace.RequestError, match=f"{name}.*: here it is "):
            names.check([name])


def test_the_first_line_of_another_loader_is_answered(uri: str) -> None:
    with pytest.raises(headrace.RequestError, match="no option remote: here it is uri and dataset"):
        StreamingDataset(remote="s3://data/train", local="/tmp/cache", batch_size=64)  # type: ignore[call-arg]
    for named in (("", ""), (uri, ""), ("", "numbers")):
        with pytest.raises(headrace.RequestError, match="the gateway or the data set is missing: Streaming"):
            StreamingDataset(*named, batch_size=64)
    with pytest.raises(headrace.RequestError, match="no row 3: iterate; `headrace peek numbers`"):
        make(uri)[3]


def test_a_data_set_that_is_not_there(uri: str) -> None:
    with pytest.raises(headrace.NotFoundError, match="nothing"):
        StreamingDataset(uri, "nothing", batch_size=1)


def test_ranks_of_torch_distributed_follow_rank_0(uri: str, tmp_path: Path) -> None:
    both = clean.run(two_ranks, uri, str(tmp_path / "meet"), "numbers")
    assert [told["rank"] for told in both] == [0, 1]
    assert [told["asked"] for told in both] == [1, 0]
    assert both[0]["plan"] == both[1]["plan"]
    assert len(set(flat(both[0]["rows"] + both[1]["rows"]))) == 2 * len(flat(both[0]["rows"]))


def test_ranks_of_torch_distributed_fail_together(uri: str, tmp_path: Path) -> None:
    both = clean.run(two_ranks, uri, str(tmp_path / "meet"), "nothing")
    assert [type(told) for told in both] == [headrace.NotFoundError] * 2


def two_ranks(uri: str, meet: str, name: str) -> list[Any]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        return list(pool.map(one_rank, [uri] * 2, [meet] * 2, [name] * 2, range(2)))


def one_rank(uri: str, meet: str, name: str, rank: int) -> Any:
    from torch import distributed

    asked = []
    ask = child.plan

    def counted(connection: Connection, dataset: str, options: headrace.Options) -> headrace.Plan:
        asked.append(dataset)
        return ask(connection, dataset, options)

    child.plan = counted
    distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    try:
        dataset = StreamingDataset(uri, name, batch_size=STEP, shuffle=True)
        return {"rank": dataset.rank, "asked": len(asked), "plan": dataset.plan, "rows": ids(dataset)}
    except headrace.HeadraceError as error:
        return error
    finally:
        distributed.destroy_process_group()
