"""Reads pictures that are stored as fixed-shape tensors: they are images at once, over the received memory.

pictures.py grpc://127.0.0.1:8815
"""

import sys

import torch
from torch import nn

from headrace.torch import Loader, StreamingDataset


def main(uri: str) -> None:
    """Prints the shape of a batch, its pixels' sum over the data set, and the shape that a convolution makes of it."""
    dataset = StreamingDataset(uri, "pictures", batch_size=16)
    layer = nn.Conv2d(3, 4, kernel_size=3)
    total = 0
    for batch in Loader(dataset):
        pixels = batch["pixels"]  # uint8, [rows, height, width, channels]
        total += int(pixels.sum(dtype=torch.int64))
        features = layer(pixels.permute(0, 3, 1, 2).float() / 255)
    print(list(pixels.shape), total, list(features.shape))


if __name__ == "__main__":
    main(sys.argv[1])
