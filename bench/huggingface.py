"""The client of the datasets bench that needs no gateway: Hugging Face datasets, streaming local Parquet files.

huggingface.py read FOLDER BUFFER BATCH FORMAT   read one shuffled pass out of a buffer of so many rows, in batches of
                                                 so many, as FORMAT (arrow or numpy), touch every byte, and print
                                                 the same JSON as client.py train
huggingface.py version                           print the version
"""

import os
import sys
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets  # type: ignore[import-not-found]
import numpy as np
from client import numbers, report

# A pass over Parquet ends with a sleep of five seconds, which is there to let threads end and is not what is measured.
datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0


def read(folder: str, buffer: str, batch: str, form: str) -> None:
    """Read one pass."""
    source = datasets.load_dataset("parquet", data_files=f"{folder}/*.parquet", split="train", streaming=True)
    shuffled = source.shuffle(seed=1, buffer_size=int(buffer)).with_format(form)

    def arrow() -> Iterator[list[np.ndarray]]:
        for table in shuffled.iter(batch_size=int(batch)):
            yield from (numbers(b) for b in table.combine_chunks().to_batches())

    def numpy() -> Iterator[list[np.ndarray]]:
        for columns in shuffled.iter(batch_size=int(batch)):
            yield list(columns.values())

    report({"arrow": arrow, "numpy": numpy}[form]())


if __name__ == "__main__":
    if sys.argv[1] == "version":
        print("Hugging Face datasets", datasets.__version__)
    else:
        read(*sys.argv[2:])
