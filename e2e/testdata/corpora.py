"""Reads public files through a gateway and says how each ended, beside what pyarrow and DuckDB make of it.

Arguments: the gateway's URI and a JSON list of [dataset, path, name]. One line a file is printed: its name, a tab, its
outcome. An outcome that nobody has explained holds the word UNEXPLAINED.
"""

import decimal
import fnmatch
import itertools
import json
import re
import sys
import uuid

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.ipc
import pyarrow.parquet as pq

# Why a file may be refused that pyarrow and DuckDB both read: words of the refusal, and the reason.
REFUSALS: dict[str, str] = {
    "duplicate name": "columns are asked for by name",
    "outside of what nanoseconds reach": "pyarrow wraps round to other centuries without a word",
    "list of lists in an old form": "a form given up in 2014, which our decoder takes for another",
    "have the CRC-32": "their readers do not check the checksums of pages unless they are told to",
    "typed_value field must be a valid nested type": "no valid Variant, as its name says",
}

# The same for files that were spoilt on purpose and of which pyarrow finds no fault.
SPOILT: dict[str, str] = {
    "time unit number": "pyarrow takes a unit that does not exist for one that does",
}

# Where an oracle reads other rows than we serve: the oracle, names of files, and why it is the oracle that is odd.
DIFFERENCES = [
    ("duckdb", "*variant*/case-*", "it puts the parts of a Variant together, which we and pyarrow serve as stored"),
    (
        "duckdb",
        "*/negative-timetz.parquet",
        "it brings times before midnight into the day, which we and pyarrow serve as stored",
    ),
    ("duckdb", "duckdb/*/uuid_v2.parquet", "it writes UUIDs as text, which we and pyarrow serve as their bytes"),
    ("duckdb", "duckdb/*/variant_*", "it puts the parts of a Variant together, which we and pyarrow serve as stored"),
]


def exact(array, lenient=False):
    """The rows of an array as Python values that tell all bits; lenient ones forget units and widths."""
    if isinstance(array, pa.ChunkedArray):
        return [v for chunk in array.chunks for v in exact(chunk, lenient)]
    t = array.type
    if isinstance(t, pa.BaseExtensionType):
        return exact(array.storage, lenient)
    if pa.types.is_dictionary(t):
        return exact(array.dictionary_decode(), lenient)
    valid = array.is_valid().to_pylist()
    return [v if ok else None for v, ok in zip(stored(array, t, lenient), valid, strict=True)]


UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def stored(array, t, lenient):
    """What is under each row, null or not."""
    is_ = pa.types
    if is_.is_map(t):
        entries = list(zip(exact(array.keys, lenient), exact(array.items, lenient), strict=True))
        return cut(entries, array.offsets.to_pylist())
    if is_.is_fixed_size_list(t):
        n, values = t.list_size, exact(array.values, lenient)
        return [values[(array.offset + i) * n : (array.offset + i + 1) * n] for i in range(len(array))]
    if is_.is_list(t) or is_.is_large_list(t):
        return cut(exact(array.values, lenient), array.offsets.to_pylist())
    if is_.is_struct(t):
        fields = [exact(array.field(i), lenient) for i in range(t.num_fields)]
        return list(zip(*fields, strict=True)) if fields else [()] * len(array)
    if is_.is_floating(t):
        return floats(array, t, lenient)
    if is_.is_decimal(t):
        return [d if d is None or not lenient else d.normalize(decimal.Context(prec=100)) for d in array.to_pylist()]
    if is_.is_timestamp(t) or is_.is_time(t) or is_.is_duration(t):
        factor = UNITS[t.unit] if lenient else 1
        return [
            None if v is None else v * factor
            for v in array.view(pa.int32() if t.bit_width == 32 else pa.int64()).to_pylist()
        ]
    if is_.is_date(t):
        return array.view(pa.int32() if t.bit_width == 32 else pa.int64()).to_pylist()
    if is_.is_string(t) or is_.is_large_string(t) or is_.is_string_view(t):
        return array.cast(pa.large_binary()).to_pylist()
    return array.to_pylist()


def cut(values, offsets):
    return [values[a:b] for a, b in itertools.pairwise(offsets)]


def floats(array, t, lenient):
    values = np.array([0 if v is None else v for v in array.to_pylist()], t.to_pandas_dtype())
    if lenient:
        return ["nan" if v != v else v for v in values.astype(np.float64).tolist()]
    whole = pa.array(values) if array.null_count else array
    return whole.view({16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[t.bit_width]).to_pylist()


def uuids(values):
    """DuckDB shows a UUID as text."""
    return [uuid.UUID(v.decode()).bytes if v is not None else None for v in values]


def plain(t):
    """The type without dictionaries and extensions, as text."""
    if isinstance(t, pa.BaseExtensionType):
        return plain(t.storage_type)
    if pa.types.is_dictionary(t):
        return plain(t.value_type)
    if pa.types.is_struct(t):
        return "struct<" + ", ".join(f"{f.name}: {plain(f.type)}" for f in t) + ">"
    if pa.types.is_map(t):
        return f"map<{plain(t.key_type)}, {plain(t.item_type)}>"
    if pa.types.is_fixed_size_list(t):
        return f"list<{plain(t.value_type)}>[{t.list_size}]"
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return ("large_" if pa.types.is_large_list(t) else "") + f"list<{plain(t.value_type)}>"
    return str(t)


def compare(got, want, lenient):
    """Says where two tables differ, or nothing."""
    if got.num_rows != want.num_rows:
        return f"{want.num_rows} rows"
    if got.num_columns != want.num_columns:
        return f"{want.num_columns} columns"
    for i in range(got.num_columns):
        name, a, b = got.schema.names[i], got.column(i), want.column(i)
        if not lenient and (name != want.schema.names[i] or plain(a.type) != plain(b.type)):
            return f"column {name!r}: {plain(b.type)} for {plain(a.type)}"
        x, y = exact(a, lenient), exact(b, lenient)
        if lenient and x != y and pa.types.is_fixed_size_binary(a.type) and pa.types.is_string(b.type):
            y = uuids(y)
        if x != y:
            row = next(i for i in range(len(x)) if x[i] != y[i])
            return f"column {name!r}, row {row}: {str(y[row])[:60]} for {str(x[row])[:60]}"
    return ""


# Values that their types cannot hold are served as they are stored, as by pyarrow.
ODD = ("does not fit in precision", "is not within the acceptable range")


def sound(table):
    """The table, once every offset, index and letter in it has been checked."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        if not any(words in str(error) for words in ODD):
            raise
        table.validate()
    return table


def served(client, dataset):
    info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps({"dataset": dataset}).encode()))
    table = sound(client.do_get(info.endpoints[0].ticket).read_all())
    if info.total_records != table.num_rows:
        raise AssertionError(f"{info.total_records} rows were announced, {table.num_rows} came")
    return table


def by_pyarrow(path):
    if path.endswith(".arrow"):
        with open(path, "rb") as f:
            head = f.read(6)
        with pa.OSFile(path) as f:
            table = (pa.ipc.open_file(f) if head == b"ARROW1" else pa.ipc.open_stream(f)).read_all()
    else:
        with pq.ParquetFile(path) as f:
            table = f.read()
    return sound(table)


def by_duckdb(path):
    return duckdb.sql(f"select * from read_parquet('{path.replace(chr(39), chr(39) * 2)}')").to_arrow_table()


def opinion(oracle, read, path, name, got):
    """How an oracle's reading relates to ours, and whether it reads the file at all."""
    try:
        want = read(path)
    except Exception:  # whatever it says: it does not read the file
        return f"{oracle} refuses", False
    if got is None:
        return f"{oracle} reads {want.num_rows} rows", True
    difference = compare(got, want, oracle == "duckdb")
    if not difference:
        return f"{oracle} the same", True
    for who, pattern, reason in DIFFERENCES:
        if who == oracle and fnmatch.fnmatchcase(name, pattern):
            return f"{oracle} differs: {reason}", True
    return f"{oracle} differs UNEXPLAINED: {difference}", True


def refusal(error, path):
    """The cause, without what pyarrow adds; the file must be in it."""
    text = str(error)
    cause = re.split(r"\.? Detail: |\. gRPC client debug", text)[0]
    cause = re.sub(r"^(Flight|gRPC) returned [\w ]+ error, with message: ", "", cause)
    cause = re.sub(
        r"budget: .*larger than", "budget: larger than", cause
    )  # how much is reserved is not the file's affair
    base = path.rsplit("/", 1)[1]
    if base not in cause:
        cause += " UNEXPLAINED: the file is not named"
    cause = re.sub(r'^dataset "[^"]*": ', "", cause.replace(base, "FILE")).encode("ascii", "backslashreplace").decode()
    return f"{type(error).__name__}: {cause}"


def outcome(client, dataset, path, name):
    got, said = None, []
    try:
        got = served(client, dataset)
        said.append(f"{got.num_rows} rows")
    except (pa.ArrowException, KeyError) as error:
        cause = refusal(error, path)
        said.append("refused, " + cause)
    opinions = [opinion("pyarrow", by_pyarrow, path, name, got)]
    if not path.endswith(".arrow"):
        opinions.append(opinion("duckdb", by_duckdb, path, name, got))
    said += [text for text, _ in opinions]
    if got is None and all(reads for _, reads in opinions):
        table = REFUSALS if len(opinions) > 1 else SPOILT
        reasons = [reason for words, reason in table.items() if words in cause]
        said.append("allowed: " + reasons[0] if reasons else "UNEXPLAINED: the others read it")
    elif got is not None and not any(reads for _, reads in opinions):
        said.append("UNEXPLAINED: the others do not read it")
    return "; ".join(said)


def main(uri, files):
    client = fl.connect(uri)
    duckdb.sql("set threads = 1; set memory_limit = '1GB'; set autoinstall_known_extensions = false")
    for dataset, path, name in json.load(files):
        line = f"{name}\t{outcome(client, dataset, path, name)}"
        print(" ".join(line.split("\n")), flush=True)


if __name__ == "__main__":
    with open(sys.argv[2]) as files:
        main(sys.argv[1], files)
