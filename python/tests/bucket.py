"""A bucket that speaks as much of S3 as reading takes, and answers late, or not yet."""

import hashlib
import itertools
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Bucket:
    """Serves the files of a folder as the bucket `data`.

    Each answer about an object comes `late` seconds late; after `most` of them the others wait for `more` to be set.
    """

    def __init__(self, folder: Path, late: float = 0.0, most: int = 1 << 30) -> None:
        self.objects = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.tags = {key: f'"{hashlib.md5(data).hexdigest()}"' for key, data in self.objects.items()}
        self.late = late
        self.more = threading.Event()
        self._left = itertools.chain(range(most), itertools.repeat(None))
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                bucket.answer(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"s3://data?endpoint=http://127.0.0.1:{self._server.server_port}&anonymous=true"

    def answer(self, call: BaseHTTPRequestHandler) -> None:
        key = urlsplit(call.path).path.removeprefix("/data").removeprefix("/")
        if not key:
            self._send(call, 200, self._listing())
            return
        time.sleep(self.late)
        if next(self._left) is None:
            self.more.wait()
        if key not in self.objects:
            self._send(call, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        data = self.objects[key]
        head = {"ETag": self.tags[key]}
        if wanted := call.headers.get("Range"):
            first, last = (int(end) for end in wanted.removeprefix("bytes=").split("-"))
            last = min(last, len(data) - 1)
            head["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data = data[first : last + 1]
        self._send(call, 206 if wanted else 200, data, head)

    def _listing(self) -> bytes:
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>{self.tags[key]}</ETag></Contents>"
            for key, data in sorted(self.objects.items())
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _send(self, call: BaseHTTPRequestHandler, status: int, body: bytes, head: dict[str, str] | None = None) -> None:
        call.send_response(status)
        for name, value in (head or {}).items():
            call.send_header(name, value)
        call.send_header("Content-Length", str(len(body)))
        call.end_headers()
        call.wfile.write(body)

    def close(self) -> None:
        self.more.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
