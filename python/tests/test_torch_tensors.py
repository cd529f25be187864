"""The table of types in docs/torch.md, a test for each row of it."""

import datetime
import gc
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import headrace
from conftest import Serve
from headrace.torch import Categories, Masked, Ragged
from headrace.torch.tensors import Nulls, converter, rows


def arrived(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as it comes out of a message: all in one piece of memory, aligned as the gateway aligns it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def convert(array: pa.Array, **nulls: Any) -> Any:
    return converted(pa.record_batch([array], names=["x"]), **nulls)["x"]


def converted(batch: pa.RecordBatch, **nulls: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return converter(batch.schema, Nulls(**nulls))(batch)


def within(tensor: torch.Tensor, array: pa.Array) -> bool:
    """Whether a tensor lies over one of an array's buffers."""
    spans = [(b.address, b.address + b.size) for b in array.buffers() if b is not None]
    return any(first <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= last for first, last in spans)


NUMBERS = [
    (pa.int8(), torch.int8),
    (pa.int16(), torch.int16),
    (pa.int32(), torch.int32),
    (pa.int64(), torch.int64),
    (pa.uint8(), torch.uint8),
    (pa.uint16(), torch.uint16),
    (pa.uint32(), torch.uint32),
    (pa.uint64(), torch.uint64),
    (pa.float16(), torch.float16),
    (pa.float32(), torch.float32),
    (pa.float64(), torch.float64),
]


@pytest.mark.parametrize(("kind", "dtype"), NUMBERS, ids=str)
def test_pain23_numbers_lie_over_the_received_memory_and_are_writable(kind: pa.DataType, dtype: torch.dtype) -> None:
    batch = arrived(pa.record_batch([pa.array(np.arange(100), kind), pa.array(range(100))], names=["x", "other"]))
    tensor = converted(batch)["x"]
    assert tensor.dtype == dtype
    assert tensor.tolist() == list(range(100))
    assert within(tensor, batch["x"])
    assert tensor.data_ptr() % dtype.itemsize == 0
    tensor[3] = 77
    assert batch["x"][3].as_py() == 77
    assert batch["other"].to_pylist() == list(range(100))


def test_pain23_tensors_keep_the_memory_alive() -> None:
    tensors = [converted(arrived(pa.record_batch([pa.array(range(n, n + 1000))], names=["x"])))["x"] for n in range(50)]
    gc.collect()
    noise = [arrived(pa.record_batch([pa.array([-1] * 1000)], names=["x"])) for _ in range(50)]
    assert [t.tolist() for t in tensors] == [list(range(n, n + 1000)) for n in range(50)]
    assert len(noise) == 50


@pytest.mark.parametrize(("kind", "dtype"), NUMBERS, ids=str)
def test_nulls_in_numbers(kind: pa.DataType, dtype: torch.dtype) -> None:
    batch = pa.record_batch([pa.array([1, None, 3], kind)], names=["x"])
    with pytest.raises(headrace.DataError, match=r"column x has 1 nulls in a batch of 3 rows.*fill=.*mask="):
        converted(arrived(batch))
    assert converted(arrived(batch), fill=7)["x"].tolist() == [1, 7, 3]
    assert converted(arrived(batch), fill={"x": 9})["x"].tolist() == [1, 9, 3]
    for mask in (True, ["x"]):
        masked = converted(arrived(batch), mask=mask)["x"]
        assert isinstance(masked, Masked)
        assert masked.valid.tolist() == [True, False, True]
        assert (masked.values[0], masked.values[2]) == (1, 3)


def test_masked_columns_are_masked_without_nulls_too() -> None:
    masked = convert(pa.array([1, 2]), mask=["x"])
    assert masked.valid.tolist() == [True, True]


def test_fill_and_mask_must_name_columns() -> None:
    for nulls in ({"fill": {"y": 0}}, {"mask": ["y"]}):
        with pytest.raises(headrace.RequestError, match="name column y, but the columns are x"):
            convert(pa.array([1]), **nulls)


@pytest.mark.parametrize("offset", range(10))
def test_bool_is_unpacked(offset: int) -> None:
    values = [n % 3 == 0 for n in range(40)]
    tensor = convert(pa.array(values)[offset:33])
    assert tensor.dtype == torch.bool
    assert tensor.tolist() == values[offset:33]
    assert convert(pa.array([True, None])[1:], fill=False).tolist() == [False]


@pytest.mark.parametrize(
    ("array", "dtype", "want"),
    [
        (pa.array([datetime.date(1970, 1, 3)]), torch.int32, 2),
        (pa.array([datetime.date(1970, 1, 3)], pa.date64()), torch.int64, 2 * 86_400_000),
        (pa.array([datetime.time(0, 0, 5)], pa.time32("s")), torch.int32, 5),
        (pa.array([datetime.time(0, 0, 5)], pa.time64("us")), torch.int64, 5_000_000),
        (pa.array([datetime.datetime(1970, 1, 1, 0, 1)], pa.timestamp("ms")), torch.int64, 60_000),
        (pa.array([datetime.timedelta(seconds=2)], pa.duration("ns")), torch.int64, 2_000_000_000),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_times_are_integers_of_their_unit(array: pa.Array, dtype: torch.dtype, want: int) -> None:
    batch = arrived(pa.record_batch([array], names=["x"]))
    tensor = converted(batch)["x"]
    assert (tensor.dtype, tensor.tolist()) == (dtype, [want])
    assert within(tensor, batch["x"])


def test_fixed_size_lists() -> None:
    kind = pa.list_(pa.list_(pa.float32(), 3), 2)
    array = pa.array([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]], [[0] * 3] * 2], kind)
    batch = arrived(pa.record_batch([array], names=["x"]))
    tensor = converted(batch)["x"]
    assert tensor.shape == (3, 2, 3)
    assert tensor[:2].flatten().tolist() == list(range(1, 13))
    assert within(tensor, batch["x"])
    assert converted(batch[1:])["x"].tolist() == tensor[1:].tolist()
    assert within(converted(batch[1:])["x"], batch["x"])
    assert convert(pa.array([[True, False]], pa.list_(pa.bool_(), 2))).tolist() == [[True, False]]
    assert convert(pa.array([], kind)).shape == (0, 2, 3)


def test_nulls_in_fixed_size_lists() -> None:
    kind = pa.list_(pa.int64(), 2)
    array = pa.array([[1, 2], None, [3, 4]], kind)
    with pytest.raises(headrace.DataError, match="nulls"):
        convert(array)
    assert convert(array, fill=9).tolist() == [[1, 2], [9, 9], [3, 4]]
    masked = convert(array, mask=True)
    assert masked.valid.tolist() == [True, False, True]
    assert masked.values[[0, 2]].tolist() == [[1, 2], [3, 4]]
    inner = pa.array([[1, None], None], kind)
    with pytest.raises(headrace.DataError, match="lists of column x hold 1 nulls"):
        convert(inner, mask=True)
    assert convert(inner, fill=9).tolist() == [[1, 9], [9, 9]]


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_fixed_shape_tensors_become_images(order: list[int] | None) -> None:
    kind = pa.fixed_shape_tensor(pa.uint8(), [4, 5, 3], permutation=order)
    pixels = np.arange(2 * 60, dtype=np.uint8)
    storage = pa.FixedSizeListArray.from_arrays(pa.array(pixels), 60)
    batch = arrived(pa.record_batch([pa.ExtensionArray.from_storage(kind, storage)], names=["x"]))
    tensor = converted(batch)["x"]
    want = pixels.reshape(2, 4, 5, 3)
    want = want if order is None else want.transpose(0, *(1 + axis for axis in order))
    assert tensor.shape == want.shape
    assert np.array_equal(tensor.numpy(), want)
    assert within(tensor, batch["x"].storage)


def test_other_extension_types_are_their_storage() -> None:
    assert convert(pa.array([b"0123456789abcdef"], pa.uuid())).shape == (1, 16)
    assert convert(pa.array(['{"a": 1}'], pa.json_())) == ['{"a": 1}']


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int32())], ids=str)
def test_lists_are_values_and_offsets(kind: pa.DataType) -> None:
    lists = [[1, 2, 3], [], [4], [5, 6]]
    batch = arrived(pa.record_batch([pa.array(lists, kind)], names=["x"]))
    ragged = converted(batch)["x"]
    assert isinstance(ragged, Ragged)
    assert ragged.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert ragged.offsets.tolist() == [0, 3, 3, 4, 6]
    assert within(ragged.values, batch["x"])
    assert within(ragged.offsets, batch["x"])
    assert [row.tolist() for row in ragged] == lists
    assert ragged[-1].tolist() == [5, 6]
    assert len(ragged) == 4
    assert ragged.lengths.tolist() == [3, 0, 1, 2]
    assert ragged.padded(-1).tolist() == [[1, 2, 3], [-1, -1, -1], [4, -1, -1], [5, 6, -1]]
    with pytest.raises(IndexError):
        ragged[4]


def test_lists_of_a_slice_begin_at_zero() -> None:
    array = pa.array([[9, 9], [1, 2, 3], [4], [9]])[1:3]
    ragged = convert(array)
    assert ragged.offsets.tolist() == [0, 3, 4]
    assert ragged.values.tolist() == [1, 2, 3, 4]
    assert within(ragged.values, array)
    assert convert(array[:0]).offsets.tolist() == [0]


def test_lists_make_jagged_tensors() -> None:
    ragged = convert(pa.array([[1.0, 2.0], [3.0]]))
    nested = torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)
    assert [row.tolist() for row in nested.unbind()] == [[1.0, 2.0], [3.0]]


def test_lists_of_lists_and_of_vectors() -> None:
    deep = convert(pa.array([[[1, 2], [3]], [], [[4]]]))
    assert deep[0][1].tolist() == [3]
    assert [[row.tolist() for row in outer] for outer in deep] == [[[1, 2], [3]], [], [[4]]]
    with pytest.raises(headrace.RequestError, match="lists of lists"):
        deep.padded(0)
    boxes = convert(pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int64(), 2))))
    assert boxes[1].tolist() == [[3, 4], [5, 6]]
    assert boxes.padded(0).tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]


def test_nulls_in_lists() -> None:
    array = pa.array([[1, None], [2]])
    with pytest.raises(headrace.DataError, match="lists of column x hold 1 nulls"):
        convert(array)
    assert convert(array, fill=0).values.tolist() == [1, 0, 2]
    missing = pa.array([[1], None])
    with pytest.raises(headrace.DataError, match="column x has 1 nulls"):
        convert(missing)
    with pytest.raises(headrace.RequestError, match="fill cannot replace"):
        convert(missing, fill=0)
    masked = convert(missing, mask=True)
    assert (masked.values[0].tolist(), masked.valid.tolist()) == ([1], [True, False])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_binary_is_views_of_bytes(kind: pa.DataType) -> None:
    values = [b"jpeg", b"", b"png"]
    batch = arrived(pa.record_batch([pa.array(values, kind)], names=["x"]))
    ragged = converted(batch)["x"]
    assert [row.numpy().tobytes() for row in ragged] == values
    assert all(row.dtype == torch.uint8 for row in ragged)
    assert within(ragged[0], batch["x"])
    assert [row.numpy().tobytes() for row in converted(batch[1:])["x"]] == values[1:]


def test_fixed_size_binary() -> None:
    batch = arrived(pa.record_batch([pa.array([b"abc", b"def"], pa.binary(3))], names=["x"]))
    tensor = converted(batch)["x"]
    assert tensor.tolist() == [list(b"abc"), list(b"def")]
    assert within(tensor, batch["x"])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_strings_are_lists(kind: pa.DataType) -> None:
    array = pa.array(["a", None, "c"], kind)
    assert convert(array[2:]) == ["c"]
    with pytest.raises(headrace.DataError):
        convert(array)
    assert convert(array, fill="") == ["a", "", "c"]
    masked = convert(array, mask=True)
    assert (masked.values, masked.valid.tolist()) == (["a", None, "c"], [True, False, True])
    assert convert(pa.array([["a", "b"], []], pa.list_(kind))) == [["a", "b"], []]


def test_dictionaries_are_indices_and_categories() -> None:
    column = convert(pa.array(["cat", "dog", "cat"]).dictionary_encode())
    assert isinstance(column, Categories)
    assert column.indices.tolist() == [0, 1, 0]
    assert column.categories == ["cat", "dog"]
    with pytest.raises(headrace.DataError):
        convert(pa.array(["cat", None]).dictionary_encode())


def test_structs_go_by_path() -> None:
    rows_in = [{"label": 1, "where": {"x": 0.5}}, {"label": 2, "where": {"x": 1.5}}]
    batch = arrived(pa.record_batch([pa.array(rows_in)], names=["x"]))
    column = converted(batch)["x"]
    assert column["label"].tolist() == [1, 2]
    assert column["where"]["x"].tolist() == [0.5, 1.5]
    assert within(column["where"]["x"], batch["x"])
    assert converted(batch[1:])["x"]["label"].tolist() == [2]


def test_nulls_in_structs() -> None:
    array = pa.array([{"a": 1}, None, {"a": None}])
    with pytest.raises(headrace.DataError, match=r"column x\.a has 2 nulls"):
        convert(array)
    assert convert(array, fill={"x.a": 5})["a"].tolist() == [1, 5, 5]
    assert convert(array, mask=["x.a"])["a"].valid.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([Decimal("1.5")]),
        pa.array([None]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[{"a": 1}]]),
        pa.array([b"a"], pa.binary_view()),
        pa.array([["a"]], pa.list_(pa.string(), 1)),
    ],
    ids=lambda array: str(array.type),
)
def test_types_without_tensors_are_named(array: pa.Array) -> None:
    with pytest.raises(headrace.RequestError, match=r'column x .*format="arrow"'):
        convert(array)


def test_misaligned_memory_is_copied() -> None:
    raw = pa.py_buffer(bytearray(8 * 3 + 1))
    shifted = raw.slice(1) if raw.address % 8 == 0 else raw.slice(0, 24)
    array = pa.Array.from_buffers(pa.int64(), 3, [None, shifted])
    tensor = convert(array)
    assert tensor.tolist() == [0, 0, 0]
    assert not within(tensor, array)
    assert tensor.data_ptr() % 8 == 0


def test_rows_are_views_of_a_batch() -> None:
    batch = pa.record_batch(
        {
            "id": [1, 2],
            "tokens": pa.array([[5], [6, 7]]),
            "name": ["a", "b"],
            "kind": pa.array(["cat", "dog"]).dictionary_encode(),
            "meta": pa.array([{"y": 3}, {"y": 4}]),
            "maybe": pa.array([None, 8]),
        }
    )
    tensors = converted(batch, mask=["maybe"])
    first, second = rows(tensors)
    assert (int(first["id"]), first["tokens"].tolist(), first["name"], first["maybe"]) == (1, [5], "a", None)
    assert (second["kind"], int(second["meta"]["y"]), int(second["maybe"])) == ("dog", 4, 8)
    second["tokens"][0] = 0
    assert tensors["tokens"].values.tolist() == [5, 0, 7]


def test_pain23_the_gateways_memory_is_aligned_and_no_tensor_is_a_copy(serve: Serve, tmp_path: Path) -> None:
    rows = 999  # batches of 333 and no small one: gRPC may put a message of a few hundred bytes anywhere
    numbers = {str(kind): pa.array(np.arange(rows) % 100, kind) for kind, _ in NUMBERS}
    vectors = {"vectors": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(7 * rows, dtype=np.float32)), 7)}
    lists = {
        "lists": pa.array([[n] * (n % 3) for n in range(rows)]),
        "bytes": pa.array([b"x" * (n % 5) for n in range(rows)]),
    }
    table = pa.table(numbers | vectors | lists)
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=400)
    with headrace.connect(serve(tmp_path).uri) as client:
        for options in (headrace.Options(), headrace.Options(shuffle=True, batch_size=333)):
            for batch in client.stream(tmp_path.name, **options):
                for name, column in converted(batch).items():
                    for tensor in (column.values, column.offsets) if isinstance(column, Ragged) else (column,):
                        assert within(tensor, batch[name]), f"{name} of {options}"
