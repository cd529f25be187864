"""Reads JPEG files that are the rows of a column, and decodes them in threads.

images.py grpc://127.0.0.1:8815
"""

import io
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image

from headrace.torch import Loader, StreamingDataset


def decode(row: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a tensor [channels, height, width] of a row; it runs in a thread, and PIL leaves the interpreter."""
    image = Image.open(io.BytesIO(row["image"].numpy())).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), row["label"]


def collate(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a batch of rows."""
    images, labels = zip(*rows, strict=True)
    return torch.stack(images), torch.stack(labels)


def main(uri: str) -> None:
    """Prints the mean of each label's pixels."""
    dataset = StreamingDataset(uri, "photos", batch_size=8, columns=["image", "label"], shuffle=True, seed=3)
    loader = Loader(dataset, transform=decode, collate=collate, transform_threads=2)
    sums, counts = torch.zeros(10, dtype=torch.float64), torch.zeros(10)
    for images, labels in loader:
        sums.index_add_(0, labels, images.double().mean(dim=(1, 2, 3)))
        counts.index_add_(0, labels, torch.ones(len(labels)))
    for label in range(10):
        print(label, int(counts[label]), f"{float(sums[label] / counts[label]):.3f}")
    print(loader.stats())


if __name__ == "__main__":
    main(sys.argv[1])
