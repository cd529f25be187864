"""Runs functions of a test in a fresh process that has PyTorch ready and has never used gRPC, so that it may fork."""

import multiprocessing
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["headrace.torch", "torchdata.stateful_dataloader", "torch.distributed"])


def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what a function of a module returns, and raises what it raises."""
    with ProcessPoolExecutor(1, mp_context=_CONTEXT, initializer=_strict) as pool:
        return pool.submit(function, *args, **kwargs).result(timeout=120)


def _strict() -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata calls it
    warnings.filterwarnings("ignore", "This DataLoader will create . worker processes")  # more than processors
