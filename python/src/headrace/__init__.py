"""Reads training data from a headrace gateway: streams of record batches that resume by themselves."""

from headrace.client import Client, Dataset, Options, Plan, Split, connect
from headrace.errors import (
    AuthError,
    DataError,
    HeadraceError,
    NotFoundError,
    PlanChangedError,
    RequestError,
    UnavailableError,
)
from headrace.stats import Stats
from headrace.stream import Receipt, Stream

__version__ = "0.1.0"

__all__ = [
    "AuthError",
    "Client",
    "DataError",
    "Dataset",
    "HeadraceError",
    "NotFoundError",
    "Options",
    "Plan",
    "PlanChangedError",
    "Receipt",
    "RequestError",
    "Split",
    "Stats",
    "Stream",
    "UnavailableError",
    "connect",
]
