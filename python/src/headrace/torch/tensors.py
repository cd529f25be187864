"""Arrow columns as tensors: over the received memory where the types allow, by the table in docs/torch.md."""

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import torch

from headrace.errors import DataError, RequestError

Convert = Callable[[pa.Array], Any]

_BYTE, _NARROW, _WIDE = np.dtype("u1"), np.dtype("i4"), np.dtype("i8")

_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    kind: np.dtype(kind.to_pandas_dtype())
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
    )
}

_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


class Ragged:
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`, which `ragged[i]` gives as a view.

    Values are a tensor, or a `Ragged` for lists of lists.
    """

    def __init__(self, values: Any, offsets: torch.Tensor) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        first, last = self.offsets[row % len(self) : row % len(self) + 2].tolist()
        if isinstance(self.values, Ragged):
            return Ragged(self.values.values, self.values.offsets[first : last + 1])
        return self.values[first:last]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged(values={self.values!r}, offsets={self.offsets!r})"

    @property
    def lengths(self) -> torch.Tensor:
        """The rows' lengths."""
        return self.offsets.diff()

    def padded(self, value: float) -> torch.Tensor:
        """A copy as one tensor, [rows, longest row, ...], filled up at the end of each row."""
        if isinstance(self.values, Ragged):
            raise RequestError("only lists of numbers can be padded, and these are lists of lists")
        lengths = self.lengths
        longest = int(lengths.max()) if len(self) else 0
        out = torch.full((len(self), longest, *self.values.shape[1:]), value, dtype=self.values.dtype)
        filled = torch.arange(longest, device=lengths.device) < lengths[:, None]
        out = out.to(self.values.device)
        out[filled] = self.values[int(self.offsets[0]) : int(self.offsets[-1])]
        return out

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """The same rows on a device."""
        moved = (part.to(device, non_blocking=non_blocking) for part in (self.values, self.offsets))
        return type(self)(*moved)

    def pin_memory(self) -> Self:
        """A copy in pinned memory."""
        return type(self)(self.values.pin_memory(), self.offsets.pin_memory())


class Categories(NamedTuple):
    """A dictionary-encoded column: row i is `categories[indices[i]]`."""

    indices: Any
    categories: Any


class Masked(NamedTuple):
    """A column with nulls: the values are undefined where `valid` is False."""

    values: Any
    valid: torch.Tensor


@dataclass(frozen=True)
class Nulls:
    """What becomes of nulls: `fill` replaces them, by column or everywhere; columns in `mask` become `Masked`."""

    fill: Any = None
    mask: bool | Sequence[str] = False

    def masked(self, name: str) -> bool:
        """Whether a column is to be `Masked`: with nulls or without, so that batches are alike."""
        return self.mask if isinstance(self.mask, bool) else name in self.mask

    def value(self, name: str) -> Any:
        """What stands for a null, or None."""
        return self.fill.get(name) if isinstance(self.fill, Mapping) else self.fill


class _Memory(ctypes.c_char * sys.maxsize):  # type: ignore[misc]
    """Memory of any size at an address, held by whoever owns it; pyarrow says of all memory that it is read-only."""

    __slots__ = ("owner",)


def converter(schema: pa.Schema, nulls: Nulls | None = None) -> Callable[[pa.RecordBatch], dict[str, Any]]:
    """Returns what makes tensors of a schema's batches, which must be in memory that may be written to.

    Raises:
        RequestError: a column's type has no tensors.
    """
    nulls = nulls or Nulls()
    _check(schema, nulls)
    columns = [(field.name, _column(field.name, field.type, nulls, field.nullable)) for field in schema]

    def convert(batch: pa.RecordBatch) -> dict[str, Any]:
        return {name: column(array) for (name, column), array in zip(columns, batch.columns, strict=True)}

    return convert


def rows(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields a batch's rows, as views."""
    for row in range(_count(batch)):
        yield {name: _row(value, row) for name, value in batch.items()}


def _count(value: Any) -> int:
    """How many rows a batch or a column has."""
    while isinstance(value, Mapping | Masked | Categories):
        value = next(iter(value.values())) if isinstance(value, Mapping) else value[0]
    return len(value)


def _row(value: Any, row: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _row(child, row) for name, child in value.items()}
    if isinstance(value, Masked):
        return _row(value.values, row) if value.valid[row] else None
    if isinstance(value, Categories):
        return value.categories[int(value.indices[row])]
    return value[row]


def _check(schema: pa.Schema, nulls: Nulls) -> None:
    named = set(nulls.fill) if isinstance(nulls.fill, Mapping) else set()
    if not isinstance(nulls.mask, bool):
        named |= set(nulls.mask)
    for name in named:
        top = name.split(".")[0]
        if schema.get_field_index(top) < 0:
            raise RequestError(f"fill and mask name column {name}, but the columns are {', '.join(schema.names)}")


def _column(name: str, kind: pa.DataType, nulls: Nulls, nullable: bool) -> Convert:
    """Returns what converts a column, or a field of one, called by its path."""
    if isinstance(kind, pa.StructType):
        return _struct(name, kind, nulls)
    values = _values(name, kind, nulls)
    if nulls.masked(name):
        return lambda array: Masked(values(array), _valid(array))
    fill = nulls.value(name)
    if fill is None:
        return lambda array: values(_whole(name, array) if array.null_count else array)

    def filled(array: pa.Array) -> Any:
        return _fill(name, values(array), array, fill) if array.null_count else values(array)

    return filled if nullable else values


def _whole(name: str, array: pa.Array) -> pa.Array:
    if array.null_count:
        raise DataError(
            f"column {name} has {array.null_count} nulls in a batch of {len(array)} rows, and tensors have none: pass "
            f"fill={{{name!r}: value}} to replace them or mask=[{name!r}] to be told where they are"
        )
    return array


def _fill(name: str, values: Any, array: pa.Array, fill: Any) -> Any:
    """Writes a value to where the nulls are, which is in the batch's own memory."""
    if isinstance(values, torch.Tensor):
        signed = _SIGNED.get(values.dtype, values.dtype)  # torch cannot write single numbers of all types
        values.view(signed)[~_valid(array)] = torch.tensor(fill, dtype=values.dtype).view(signed)
        return values
    if isinstance(values, list):
        return [fill if value is None else value for value in values]
    raise RequestError(f"column {name} has nulls that fill cannot replace: pass mask=[{name!r}]")


def _values(name: str, kind: pa.DataType, nulls: Nulls) -> Convert:
    """Returns what converts the values of a type, nulls included."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors(name, kind, nulls)
    if isinstance(kind, pa.BaseExtensionType):
        storage = _values(name, kind.storage_type, nulls)
        return lambda array: storage(array.storage)
    if pa.types.is_boolean(kind):
        return lambda array: _bits(array, 1)
    dtype = _dtype(kind)
    if dtype is not None:
        return lambda array: _over(array.buffers()[1], dtype, array.offset, (len(array),))
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        return lambda array: _over(array.buffers()[1], _BYTE, array.offset * width, (len(array), width))
    if pa.types.is_fixed_size_list(kind):
        return _fixed(name, kind, nulls)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return lambda array: array.to_pylist()
    if pa.types.is_dictionary(kind):
        return _categories(name, kind, nulls)
    return _ragged(name, kind, nulls)


def _dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """The type of a fixed-width column's numbers; times are integers in their own unit."""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return np.dtype(f"i{kind.bit_width // 8}")
    return _DTYPES.get(kind)


def _struct(name: str, kind: pa.StructType, nulls: Nulls) -> Convert:
    fields = [
        (field.name, _column(f"{name}.{field.name}", field.type, nulls, True))
        for field in (kind.field(i) for i in range(kind.num_fields))
    ]

    def convert(array: pa.StructArray) -> dict[str, Any]:
        # A null struct has null fields.
        return {child: column(part) for (child, column), part in zip(fields, array.flatten(), strict=True)}

    return convert


def _fixed(name: str, kind: pa.FixedSizeListType, nulls: Nulls) -> Convert:
    size = kind.list_size
    items = _items(name, kind.value_type, nulls)

    def convert(array: pa.FixedSizeListArray) -> torch.Tensor:
        child, count = array.values, len(array)
        if array.offset or len(child) != count * size:
            child = child.slice(array.offset * size, count * size)
        values = _tensor(name, items(child, array))
        return values.view(count, size, *values.shape[1:])

    return convert


def _tensors(name: str, kind: pa.FixedShapeTensorType, nulls: Nulls) -> Convert:
    """Fixed-shape tensors, in their logical shape: a permutation changes strides, not memory."""
    storage = _fixed(name, kind.storage_type, nulls)
    shape, order = kind.shape, kind.permutation

    def convert(array: pa.ExtensionArray) -> torch.Tensor:
        out: torch.Tensor = storage(array.storage).view(len(array), *shape)
        return out.permute(0, *(1 + axis for axis in order)) if order else out

    return convert


def _items(name: str, kind: pa.DataType, nulls: Nulls) -> Callable[[pa.Array, pa.Array | None], Any]:
    """Converts what lists hold, where nulls can be filled but not masked. The items of null lists do not count."""
    values = _values(name, kind, nulls)
    fill = nulls.value(name)

    def convert(child: pa.Array, lists: pa.FixedSizeListArray | None) -> Any:
        out = values(child)
        if not child.null_count:
            return out
        if fill is not None:
            return _fill(name, out, child, fill)
        missing = ~_valid(child)
        if lists is not None and lists.null_count:
            missing = missing.view(len(lists), -1) & _valid(lists)[:, None]
        if missing.any():
            raise DataError(
                f"the lists of column {name} hold {int(missing.sum())} nulls in a batch, and tensors have none: pass "
                f"fill={{{name!r}: value}} to replace them"
            )
        return out

    return convert


def _ragged(name: str, kind: pa.DataType, nulls: Nulls) -> Convert:
    """Lists and binary: values and offsets."""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        wide = pa.types.is_large_binary(kind)

        def binary(array: pa.Array) -> Ragged:
            _, offsets, data = array.buffers()
            return _cut(array, offsets, wide, lambda first, count: _over(data, _BYTE, first, (count,)))

        return binary
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise RequestError(
            f'column {name} is {kind}, which has no tensors: leave it out of columns, or take format="arrow"'
        )
    if _texts(kind.value_type):
        return lambda array: array.to_pylist()
    items = _items(name, kind.value_type, nulls)
    wide = pa.types.is_large_list(kind)

    def lists(array: pa.Array) -> Ragged:
        child = array.values
        return _cut(array, array.buffers()[1], wide, lambda first, count: items(child.slice(first, count), None))

    return lists


def _texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _cut(array: pa.Array, buffer: pa.Buffer, wide: bool, values: Callable[[int, int], Any]) -> Ragged:
    """Puts together offsets that begin at 0 and the values that they speak of."""
    if not len(array):
        return Ragged(values(0, 0), torch.zeros(1, dtype=torch.int64 if wide else torch.int32))
    offsets = _over(buffer, _WIDE if wide else _NARROW, array.offset, (len(array) + 1,))
    first, last = int(offsets[0]), int(offsets[-1])
    return Ragged(values(first, last - first), offsets - first if first else offsets)


def _categories(name: str, kind: pa.DictionaryType, nulls: Nulls) -> Convert:
    indices = _values(name, kind.index_type, nulls)
    categories = _values(name, kind.value_type, nulls)
    return lambda array: Categories(indices(array.indices), categories(_whole(name, array.dictionary)))


def _tensor(name: str, values: Any) -> torch.Tensor:
    if not isinstance(values, torch.Tensor):
        raise RequestError(
            f"column {name} is made of fixed-size lists of what has no one tensor: leave it out of columns, or take "
            'format="arrow"'
        )
    return values


def _over(buffer: pa.Buffer | None, dtype: np.dtype[Any], first: int, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over a buffer's memory, from one item on; a copy where the memory is not aligned to its items."""
    if buffer is None or not shape[0]:
        return torch.from_numpy(np.empty(shape, dtype))
    address, size = buffer.address, dtype.itemsize
    memory = _Memory.from_address(address)
    memory.owner = buffer
    # By way of NumPy: torch.frombuffer and a view of the shape take three times as long.
    items: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, first * size)
    return torch.from_numpy(items.copy() if address % size else items)


def _bits(array: pa.Array, buffer: int) -> torch.Tensor:
    """A bitmap's bits, one byte each: a copy."""
    count, start = len(array), array.offset
    packed = _over(array.buffers()[buffer], _BYTE, start // 8, ((start % 8 + count + 7) // 8 if count else 0,))
    bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return bits.flatten()[start % 8 : start % 8 + count].bool()


def _valid(array: pa.Array) -> torch.Tensor:
    """Which rows are not null."""
    if not array.null_count:
        return torch.ones(len(array), dtype=torch.bool)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return _bits(array, 0)
