"""Which of the job's processes this one is, and what they agree on before they begin."""

import os
import warnings
from collections.abc import Mapping

from torch import distributed

from headrace import child
from headrace.client import Options, Plan
from headrace.connection import Connection
from headrace.errors import HeadraceError, RequestError

# By launcher: the variables for the number of processes and for this one's.
_LAUNCHERS = {
    "SLURM": ("SLURM_NTASKS", "SLURM_PROCID"),
    "Open MPI": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "MPI": ("PMI_SIZE", "PMI_RANK"),
}


def find(rank: int | None, world_size: int | None, environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns rank and world size: as given, as torch.distributed says, as in the environment, or 0 of 1.

    Raises:
        RequestError: this process is one of several, and nothing says which; or there is no such rank.
    """
    if (rank is None) != (world_size is None):
        raise RequestError("rank and world_size go together: pass both, or neither to take them from torch.distributed")
    if rank is not None and world_size is not None:
        if not 0 <= rank < world_size:
            raise RequestError(f"rank {rank} of world_size {world_size}: ranks count from 0 to world_size - 1")
        return rank, world_size
    if _up():
        return distributed.get_rank(), distributed.get_world_size()
    told = environment.get("RANK"), environment.get("WORLD_SIZE")
    if None not in told:
        return int(told[0] or 0), int(told[1] or 1)
    _refuse_copies(environment)
    return 0, 1


def _refuse_copies(environment: Mapping[str, str]) -> None:
    """Every process would read every row, and training would go on as if nothing were wrong."""
    found = {"the environment": ("WORLD_SIZE", "RANK"), **_LAUNCHERS}
    for launcher, (size, place) in found.items():
        if environment.get(size, "1") != "1":
            raise RequestError(
                f"this process is one of {environment[size]} ({size}, set by {launcher}), but neither "
                "torch.distributed nor RANK and WORLD_SIZE say which, so each would read every row: call "
                f"init_process_group first, set RANK and WORLD_SIZE, or pass rank=int(os.environ[{place!r}]) and "
                f"world_size=int(os.environ[{size!r}]); rank=0, world_size=1 if each is meant to read everything"
            )
    if "RANK" in environment:
        raise RequestError(f"RANK is {environment['RANK']}, but WORLD_SIZE is not set: set both, or pass both")


def resolve(connection: Connection, dataset: str, options: Options, named: bool, world_size: int) -> Plan:
    """Returns the plan that all ranks are to follow: asked for once, so that nobody sees files that others do not.

    Args:
        connection: to the gateway.
        dataset: its name.
        options: of all ranks together.
        named: the ranks were passed by the caller, who may not have made this data set on all of them.
        world_size: how many there are.
    """
    if options.get("snapshot") or world_size == 1 or not _up() or named:
        if not options.get("snapshot") and world_size > 1:
            warnings.warn(
                f"each of {world_size} ranks looks up the newest snapshot of {dataset} by itself, and they differ if "
                "files arrive now: call torch.distributed.init_process_group first, or pass all the same "
                f"snapshot=, which `headrace peek {dataset}` prints; a state that is loaded has its own",
                stacklevel=3,
            )
        return child.plan(connection, dataset, options)
    return _together(connection, dataset, options)


def _together(connection: Connection, dataset: str, options: Options) -> Plan:
    """Rank 0 asks and tells the others, also what went wrong, for they wait for it."""
    told: list[Plan | HeadraceError | None] = [None]
    if distributed.get_rank() == 0:
        try:
            told = [child.plan(connection, dataset, options)]
        except HeadraceError as error:
            told = [error]
    distributed.broadcast_object_list(told, src=0)
    if isinstance(told[0], Plan):
        return told[0]
    raise told[0] or HeadraceError("rank 0 told nothing")


def _up() -> bool:
    return distributed.is_available() and distributed.is_initialized()
