"""Asks the gateway in a process that ends before it returns: gRPC does not survive a fork, and the caller may fork."""

import base64
import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa

from headrace import errors
from headrace.client import Client, Options, Plan, request_of
from headrace.connection import Connection, read_token
from headrace.stream import encode

# Without NumPy, which pyarrow imports where it is: that takes a third of the time and is not needed here.
_PROGRAM = "import sys; sys.modules['numpy'] = None; from headrace import child; child.main()"


def plan(connection: Connection, dataset: str, options: Options) -> Plan:
    """Does what `Client.plan` does, in another process."""
    question = dataclasses.asdict(dataclasses.replace(connection, token=None)) | {"token": read_token(connection.token)}
    question["tls_ca"] = None if connection.tls_ca is None else os.fspath(connection.tls_ca)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        # On standard input, since others can see a process's arguments and environment.
        input=encode({"connection": question, "request": request_of(dataset, options)}),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise errors.HeadraceError(f"the process that asks for the plan failed: {done.stderr.decode()[-2000:]}")
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["text"])
    return from_facts(answer)


def facts(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    return dataclasses.asdict(plan) | {"schema": base64.b64encode(plan.schema.serialize()).decode()}


def from_facts(told: dict[str, Any]) -> Plan:
    """The plan that `facts` told of."""
    return Plan(**told | {"schema": pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"])))})


def main() -> None:
    """Answers the question on standard input."""
    question = json.load(sys.stdin)
    try:
        with Client(Connection(**question["connection"])) as client:
            answer = facts(client.plan(**question["request"]))
    except errors.HeadraceError as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    json.dump(answer, sys.stdout)
