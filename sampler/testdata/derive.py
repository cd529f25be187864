"""Derives plan hashes, row sums, permutations and whole orders from docs/order.md alone, sharing nothing with the Go code.

Reads {"hashes": [...], "permutations": [...], "orders": [...]} from standard input and writes the same lists with what
is derived added to each case. Everything is done the long way round, row by row, on Python's own integers.
"""

import hashlib
import json
import math
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

WORD = 2**64
GAMMA = 0x9E3779B97F4A7C15
SHUFFLES = {"none": 0, "window": 1, "full": 2}


def mix64(k: int, i: int) -> int:
    z = (k + (i + 1) * GAMMA) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def plan_hash(plan: dict[str, Any]) -> str:
    text = (
        b"headrace plan\0"
        + struct.pack("<II", 1, len(plan["snapshot"]))
        + plan["snapshot"].encode()
    )
    text += struct.pack("<Q", len(plan["shards"])) + struct.pack(
        f"<{len(plan['shards'])}Q", *plan["shards"]
    )
    text += (
        struct.pack("<B", 0)
        if plan["split"] is None
        else struct.pack("<BQII", 1, *plan["split"])
    )
    text += struct.pack(
        "<BQQQ",
        SHUFFLES[plan["shuffle"]],
        plan["window_blocks"],
        plan["groups"],
        plan["seed"],
    )
    return hashlib.sha256(text).hexdigest()


def row_sum(snapshot: str, rows: Iterator[int]) -> str:
    key = int.from_bytes(
        hashlib.sha256(b"headrace sum 1\0" + snapshot.encode()).digest()[:8], "little"
    )
    return f"{sum(mix64(key, row) for row in rows) % 2**128:032x}"


def make_key(seed: int, epoch: int, purpose: str) -> bytes:
    return hashlib.sha256(
        b"headrace order\0" + struct.pack("<IQQ", 1, seed, epoch) + purpose.encode()
    ).digest()


def words(eight: bytes) -> Iterator[int]:
    k = int.from_bytes(eight, "little")
    i = 0
    while True:
        yield mix64(k, i)
        i += 1


def below(draws: Iterator[int], n: int) -> int:
    while True:
        product = next(draws) * n
        if product % WORD >= WORD % n:
            return product // WORD


def permutation(key: bytes, n: int) -> Callable[[int], int]:
    draws = words(key[:8])
    if n <= 65536:
        table = list(range(n))
        for i in range(n - 1, 0, -1):
            j = below(draws, i + 1)
            table[i], table[j] = table[j], table[i]
        return table.__getitem__
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    keys = [next(draws) for _ in range(8)]

    def walk(x: int) -> int:
        while True:
            left, right = divmod(x, b)
            for i, k in enumerate(keys):
                if i % 2 == 0:
                    left = (left + mix64(k, right) * a // WORD) % a
                else:
                    right = (right + mix64(k, left) * b // WORD) % b
            x = left * b + right
            if x < n:
                return x

    return walk


@dataclass
class Block:
    number: int
    """In the plan's shards as stored."""
    rows: list[int]
    """Their numbers in the snapshot."""


def blocks_of(plan: dict[str, Any]) -> list[list[Block]]:
    """Lists the segments, and of each the blocks of which the split leaves something."""
    segments, number = [], 0
    for shard in plan["layout"]:
        first, in_object = shard["row"], 0
        for rows, blocks in shard["segments"]:
            segment = []
            for i in range(blocks):
                numbers = range(
                    first + i * rows // blocks, first + (i + 1) * rows // blocks
                )
                kept = split(plan["split"], shard["identity"], in_object, list(numbers))
                if kept:
                    segment.append(Block(number, kept))
                number, in_object = number + 1, in_object + 1
            if segment:
                segments.append(segment)
            first += rows
    return segments


def split(
    what: list[int] | None, identity: str, block: int, rows: list[int]
) -> list[int]:
    if what is None:
        return rows
    seed, start, end = what
    key = make_key(seed, 0, f"split/{identity}/{block}")
    u = below(words(key[8:16]), 10_000)
    place = permutation(key, len(rows))
    low, high = (start * len(rows) + u) // 10_000, (end * len(rows) + u) // 10_000
    return [row for x, row in enumerate(rows) if low <= place(x) < high]


def spans_of(blocks: list[Block], groups: int) -> list[list[Block]]:
    """Cuts a list of blocks by rows."""
    total = sum(len(block.rows) for block in blocks)
    spans, begin = [], 0
    for c in range(min(groups, total)):
        end = begin + -(-(total - c) // groups)
        span, at = [], 0
        for block in blocks:
            rows = block.rows[max(begin - at, 0) : max(end - at, 0)]
            if rows:
                span.append(Block(block.number, rows))
            at += len(block.rows)
        spans.append(span)
        begin = end
    return spans


def windows_of(span: list[Block], n: int) -> list[list[Block]]:
    m = len(span)
    t = -(-m // n)
    windows: list[list[Block]] = [[] for _ in range(t)]
    for b, block in enumerate(span):
        windows[(b * n) % m * t // m].append(block)
    return windows


def shuffled(key: bytes, blocks: list[Block]) -> list[int]:
    rows = [row for block in blocks for row in block.rows]
    place = permutation(key, len(rows))
    return [rows[place(i)] for i in range(len(rows))]


def order_of(
    plan: dict[str, Any], epoch: int
) -> tuple[list[int], list[list[list[int]]]]:
    """Lists the row at every position, and the numbers of the blocks of every window of every span."""
    segments = blocks_of(plan)
    stored = [block for segment in segments for block in segment]
    seed = plan["seed"]
    if plan["shuffle"] == "none":
        return [row for block in stored for row in block.rows], [
            [[block.number] for block in stored]
        ]
    if plan["shuffle"] == "full":
        return shuffled(make_key(seed, epoch, "rows"), stored), [
            [[block.number for block in stored]]
        ]
    place = permutation(make_key(seed, epoch, "segments"), len(segments))
    listed = [block for i in range(len(segments)) for block in segments[place(i)]]
    given, numbers = [], []
    for c, span in enumerate(spans_of(listed, plan["groups"])):
        windows = windows_of(span, plan["window_blocks"])
        numbers.append([[block.number for block in window] for window in windows])
        given.append(
            [
                row
                for t, window in enumerate(windows)
                for row in shuffled(make_key(seed, epoch, f"window/{c}/{t}"), window)
            ]
        )
    total = sum(len(rows) for rows in given)
    groups = plan["groups"]
    return [given[p % groups][p // groups] for p in range(total)], numbers


def steps_of(
    plan: dict[str, Any], cut: dict[str, Any], order: list[int]
) -> list[list[list[int]]]:
    """Lists, for every step of the epoch from the start on, what each rank takes."""
    steps, n, size, ranks = [], len(order), cut["batch"], cut["world_size"]
    for position in range(cut["start"], n, size):
        positions = list(range(position, min(position + size, n)))
        positions.sort(key=lambda p: (p % plan["groups"], p))
        if len(positions) < size:
            if cut["tail"] == "drop":
                break
            if cut["tail"] == "pad":
                positions += [n - 1 - i % n for i in range(size - len(positions))]
        r = len(positions)
        steps.append(
            [
                [order[p] for p in positions[k * r // ranks : (k + 1) * r // ranks]]
                for k in range(ranks)
            ]
        )
    return steps


def derive_hash(case: dict[str, Any]) -> dict[str, Any]:
    plain = {
        "split": None,
        "shuffle": "none",
        "window_blocks": 0,
        "groups": 1,
        "seed": 0,
    }
    rows = (
        row for first, count in case["ranges"] for row in range(first, first + count)
    )
    return case | {
        "hash": plan_hash(plain | case),
        "sum": row_sum(case["snapshot"], rows),
    }


def derive_permutation(case: dict[str, Any]) -> dict[str, Any]:
    key = make_key(case["seed"], case["epoch"], case["purpose"])
    place = permutation(key, case["items"])
    return case | {"key": key.hex(), "to": [place(i) for i in case["at"]]}


def derive_order(case: dict[str, Any]) -> dict[str, Any]:
    order, windows = order_of(case, case["epoch"])
    return case | {
        "hash": plan_hash(case),
        "windows": windows if order else [],
        "order": order,
        "sum": row_sum(case["snapshot"], iter(order)),
        "steps": steps_of(case, case["cut"], order),
    }


if __name__ == "__main__":
    cases = json.load(sys.stdin)
    json.dump(
        {
            "hashes": [derive_hash(case) for case in cases["hashes"]],
            "permutations": [
                derive_permutation(case) for case in cases["permutations"]
            ],
            "orders": [derive_order(case) for case in cases["orders"]],
        },
        sys.stdout,
    )
