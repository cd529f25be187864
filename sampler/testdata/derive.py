"""Derives plan hashes and row sums from the written rules alone, sharing nothing with the Go code.

Reads JSON cases from standard input: {"snapshot", "shards", "ranges": [[first row, rows], ...]}; writes for each
{"hash", "sum"} in hex. numpy's wrapping 64-bit integers do the mixing, Python's own integers the adding.
"""

import hashlib
import json
import struct
import sys

import numpy as np


def plan_hash(snapshot: str, shards: list[int]) -> str:
    text = b"headrace plan\0" + struct.pack("<I", 1)
    text += struct.pack("<I", len(snapshot)) + snapshot.encode()
    text += struct.pack("<Q", len(shards)) + struct.pack(f"<{len(shards)}Q", *shards)
    text += struct.pack("<BBQQQ", 0, 0, 0, 1, 0)  # split, shuffle, window_blocks, groups, seed
    return hashlib.sha256(text).hexdigest()


def row_sum(snapshot: str, ranges: list[list[int]]) -> str:
    key = np.frombuffer(hashlib.sha256(b"headrace sum 1\0" + snapshot.encode()).digest()[:8], "<u8")[0]
    total = 0
    with np.errstate(over="ignore"):
        for first, rows in ranges:
            z = key + np.arange(first + 1, first + rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z ^= z >> np.uint64(31)
            total += sum(z.tolist())
    return f"{total % 2**128:032x}"


json.dump(
    [
        {"hash": plan_hash(c["snapshot"], c["shards"]), "sum": row_sum(c["snapshot"], c["ranges"])}
        for c in json.load(sys.stdin)
    ],
    sys.stdout,
)
