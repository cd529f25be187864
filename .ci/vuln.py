"""Reads govulncheck's JSON from standard input and fails when our code reaches a vulnerable function of a module.

The standard library's advisories are counted and told, not failed on: they belong to the installed toolchain, and no
change to this repository mends them.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

GO_ITSELF = {"stdlib", "toolchain"}


def messages(text: str) -> Iterator[dict[str, Any]]:
    """Yields the objects of a stream of JSON values with nothing but space between them."""
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        yield value


def main() -> int:
    """Prints what was found and returns the exit code."""
    go_itself: set[str] = set()
    ours: dict[str, str] = {}
    scanned = False
    for message in messages(sys.stdin.read()):
        scanned = scanned or "SBOM" in message
        finding = message.get("finding")
        if finding is None or "function" not in finding["trace"][0]:
            continue  # only required or imported: no function of it is reached
        where = finding["trace"][0]
        if where["module"] in GO_ITSELF:
            go_itself.add(finding["osv"])
        else:
            fixed = finding.get("fixed_version", "no fix yet")
            ours[finding["osv"]] = f"{where['module']}@{where['version']} {where['function']} (fixed: {fixed})"
    if not scanned:
        print("vulnerabilities: the scan did not run")
        return 1
    for advisory, text in sorted(ours.items()):
        print(f"{advisory}: {text}")
    print(f"vulnerabilities: {len(ours)} reached in modules, {len(go_itself)} in the installed Go toolchain")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
