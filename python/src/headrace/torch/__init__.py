"""Training loops in PyTorch: batches of tensors from a gateway, for ranks and workers, resumable from a checkpoint."""

from headrace.torch.tensors import Categories, Masked, Ragged

__all__ = ["Categories", "Masked", "Ragged"]
