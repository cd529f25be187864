"""Reads token sequences of different lengths: as values and offsets, with nothing padded, or padded where a model must.

tokens.py grpc://127.0.0.1:8815
"""

import sys

import torch
from torch import nn

from headrace.torch import StreamingDataset

PADDING = 0


def main(uri: str) -> None:
    """Prints how many tokens there are, and twice the sum of a bag of embeddings over all sequences."""
    torch.manual_seed(0)
    dataset = StreamingDataset(uri, "texts", batch_size=32, columns=["tokens"], shuffle=True, seed=5)
    bag = nn.EmbeddingBag(1000, 4, mode="sum", padding_idx=PADDING)
    ragged_sum = padded_sum = 0.0
    tokens = 0
    for batch in dataset:
        sequences = batch["tokens"]
        tokens += len(sequences.values)
        # What takes values and offsets needs no padding: bags, jagged tensors, attention over variable lengths.
        ragged_sum += bag(sequences.values, sequences.offsets[:-1]).sum().item()
        padded_sum += bag(sequences.padded(PADDING)).sum().item()
    print(tokens, f"{ragged_sum:.2f} {padded_sum:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
