"""Training loops in PyTorch: batches of tensors from a gateway, for ranks and workers, resumable from a checkpoint."""

from headrace.torch.dataset import StreamingDataset
from headrace.torch.loader import Loader
from headrace.torch.passes import Batch
from headrace.torch.tensors import Categories, Masked, Ragged

__all__ = ["Batch", "Categories", "Loader", "Masked", "Ragged", "StreamingDataset"]
