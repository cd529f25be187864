"""Make Arrow files of zeros that take next to no disk: sparse.py FOLDER BYTES PARTS.

FOLDER/large has so many bytes, FOLDER/small one of so many parts of them.
"""

import os
import sys

import numpy as np
import pyarrow as pa

BATCH = 3_932_160  # bytes: a block


class Holes:
    """Writes a file, but what is large and zero only as a hole."""

    closed = False

    def __init__(self, path: str) -> None:
        self.file = open(path, "wb")  # noqa: SIM115

    def write(self, data: bytes) -> int:
        """Write, or move on."""
        if len(data) >= BATCH:
            return self.file.seek(len(data), os.SEEK_CUR) and len(data)
        return self.file.write(data)

    def flush(self) -> None:
        """Do nothing: close does."""

    def close(self) -> None:
        """End the file."""
        self.file.close()


def make(folder: str, size: int) -> None:
    """Write batches of one column."""
    os.makedirs(folder)
    batch = pa.record_batch({"values": np.zeros(BATCH // 8, np.int64)})
    out = Holes(f"{folder}/data.arrow")
    with pa.ipc.new_file(pa.PythonFile(out, "w"), batch.schema) as writer:
        for _ in range(max(1, size // BATCH)):
            writer.write_batch(batch)
    out.close()


def main(folder: str, size: str, parts: str) -> None:
    """Write both data sets."""
    make(f"{folder}/large", int(size))
    make(f"{folder}/small", int(size) // int(parts))


if __name__ == "__main__":
    main(*sys.argv[1:])
