"""What other loaders call things, and what to say here instead."""

import difflib
from collections.abc import Iterable

from headrace.client import Options
from headrace.errors import RequestError

# Of MosaicML StreamingDataset, HF datasets, WebDataset, torchdata, DataLoader and DistributedSampler. Words of the wire
# are answered by the gateway.
_RIVALS = {
    "remote": "uri and dataset: the gateway knows where data lie",
    "local": "`cache.disk.dir` of the gateway: nothing is kept on this machine",
    "cache_dir": "`cache.disk.dir` of the gateway: nothing is kept on this machine",
    "cache_limit": "`memory` and `cache.disk.limit` of the gateway: nothing is kept on this machine",
    "cache_size": "`memory` and `cache.disk.limit` of the gateway: nothing is kept on this machine",
    "predownload": "nothing: the gateway reads ahead by itself",
    "download_retry": "retry_for, in seconds",
    "download_timeout": "read_timeout, in seconds",
    "timeout_s": "timeout",
    "shuffle_seed": "seed",
    "shuffle_algo": 'shuffle: "window" or "full"',
    "shuffle_block_size": "window_blocks, counted in blocks of about 4 MiB",
    "shuffle_buffer_size": "window_blocks, counted in blocks of about 4 MiB",
    "buffer_size": "window_blocks, counted in blocks of about 4 MiB",
    "shuffle_files": "shuffle",
    "shardshuffle": "shuffle",
    "detshuffle": "shuffle: orders are always fixed by the seed",
    "num_canonical_nodes": "nothing: the order is the same for any number of nodes",
    "replication": "rank and world_size: pass the same rank to ranks that are to read the same",
    "streams": "one data set: several with proportions are not there yet",
    "partition_algo": "nothing: the order is the same for any number of nodes",
    "batching_method": "nothing: there is one data set",
    "sampling_method": "nothing: an epoch has each row once",
    "sampling_granularity": "nothing: an epoch has each row once",
    "validate_hash": "nothing: receipts are always compared, and checksums where files have some",
    "keep_zip": "nothing: nothing is kept on this machine",
    "allow_unsafe_types": "nothing: no pickled objects are read",
    "epoch_size": "nothing: break off the pass, or take a split",
    "data_files": "shards",
    "urls": "uri and dataset",
    "streaming": "nothing: everything is streamed",
    "name": "dataset",
    "nodesplitter": "nothing: ranks share by themselves",
    "workersplitter": "nothing: workers share by themselves",
    "resampled": "num_epochs=-1",
    "num_replicas": "world_size",
    "num_shards": "world_size",
    "index": "rank",
    "drop_last": 'tail: "drop", "pad" or "keep"',
    "batch": "batch_size",
    "epochs": "num_epochs",
    "features": "columns",
    "transforms": "transform, of headrace.torch.Loader",
    "transform": "transform, of headrace.torch.Loader",
    "collate_fn": "collate, of headrace.torch.Loader",
    "prefetch_factor": "prefetch, of headrace.torch.Loader",
    "pin_memory": "pin_memory, of the DataLoader or of headrace.torch.Loader",
    "sampler": "shuffle and seed: the gateway decides which rows come",
    "generator": "seed",
    "worker_init_fn": "nothing: workers need no preparation",
}

# Fields of a request that are not for the caller to set.
_OURS = {
    "num_workers": "DataLoader(dataset, batch_size=None, num_workers=...)",
    "worker_id": "DataLoader(dataset, batch_size=None, num_workers=...)",
    "epoch": "set_epoch(epoch)",
    "start": "load_state_dict(state)",
    "after": "load_state_dict(state)",
}


def check(options: Iterable[str]) -> None:
    """Raises RequestError for an option that does not exist here, and says what does."""
    for name in options:
        if name in _OURS:
            raise RequestError(f"{name} is not an option of the dataset: here it is {_OURS[name]}")
        if name not in Options.__annotations__:
            raise RequestError(f"there is no option {name}: {_instead(name)}")


def _instead(name: str) -> str:
    if name in _RIVALS:
        return f"here it is {_RIVALS[name]}"
    known = sorted(set(Options.__annotations__) - set(_OURS))
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
