"""Asks the gateway in a process that ends before it returns: gRPC does not survive a fork, and the caller may fork."""

import base64
import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa

from headrace import errors, fork
from headrace.client import Client, Options, Plan, request_of
from headrace.connection import Connection, grpc_process, read_token
from headrace.stream import encode

# Without NumPy, which pyarrow imports where it is: that takes a third of the time and is not needed here.
_PROGRAM = "import sys; sys.modules['numpy'] = None; from headrace import child; child.main()"


def plan(connection: Connection, dataset: str, options: Options) -> Plan:
    """Does what `Client.plan` does, in another process unless this one has used gRPC already."""
    if grpc_process() == os.getpid():  # what is forked from here later cannot use it, whatever is done now
        with Client(connection) as client:
            return client.plan(dataset, **options)
    question = dataclasses.asdict(dataclasses.replace(connection, token=None)) | {"token": read_token(connection.token)}
    question["tls_ca"] = None if connection.tls_ca is None else os.fspath(connection.tls_ca)
    question = {"connection": question, "request": request_of(dataset, options)}
    answer = fork.run(lambda: _answer(question)) if grpc_process() is None else None
    answer = answer or _fresh(question)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["text"])
    return from_facts(answer)


def _fresh(question: dict[str, Any]) -> Any:
    """Returns the answer of a process that is started anew."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        # On standard input, since others can see a process's arguments and environment.
        input=encode(question),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise errors.HeadraceError(f"the process that asks for the plan failed: {done.stderr.decode()[-2000:]}")
    return json.loads(done.stdout)


def facts(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    return dataclasses.asdict(plan) | {"schema": base64.b64encode(plan.schema.serialize()).decode()}


def from_facts(told: dict[str, Any]) -> Plan:
    """The plan that `facts` told of."""
    return Plan(**told | {"schema": pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"])))})


def main() -> None:
    """Answers the question on standard input."""
    json.dump(_answer(json.load(sys.stdin)), sys.stdout)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        with Client(Connection(**question["connection"])) as client:
            return facts(client.plan(**question["request"]))
    except errors.HeadraceError as error:
        return {"error": type(error).__name__, "text": str(error)}
