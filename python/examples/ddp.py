"""Trains on all ranks of a job, and goes on from its checkpoint when it is started again: the same weights come out.

torchrun --nproc-per-node 2 ddp.py grpc://127.0.0.1:8815 checkpoint.pt
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from headrace.torch import StreamingDataset

EPOCHS = 3
SAVE_EVERY = 7  # steps


def main(uri: str, checkpoint: Path) -> None:
    """Trains a linear model on the data set `points`: x, vectors of eight, and y."""
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.1)
    # With a process group rank 0 asks the gateway which files there are, and tells the others.
    dataset = StreamingDataset(uri, "points", batch_size=32, shuffle=True, seed=1)

    epoch, steps = 0, 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["data"])
        epoch, steps = saved["data"]["epoch"], saved["steps"]

    loader = DataLoader(dataset, batch_size=None, num_workers=1)
    loss = torch.tensor(0.0)
    for number in range(epoch, EPOCHS):
        dataset.set_epoch(number)  # in the epoch of the checkpoint: behind its last batch
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % SAVE_EVERY == 0 and distributed.get_rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                save(checkpoint, state | {"data": batch.state})  # the same on all ranks
            print("step", steps, flush=True)

    weights = torch.cat([part.flatten() for part in model.parameters()]).detach()
    print("loss", loss.item(), "weights", weights.numpy().tobytes().hex(), flush=True)
    distributed.destroy_process_group()


def save(checkpoint: Path, state: dict[str, Any]) -> None:
    """Writes a checkpoint that is either the old one or the new one, whenever the job dies."""
    new = checkpoint.with_suffix(".new")
    torch.save(state, new)
    new.rename(checkpoint)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
