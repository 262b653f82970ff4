"""Send each row of an outbox table to an HTTP server, at least once, with an idempotency key.

python outbox.py localhost:9092 http://localhost:8081 bank public.outbox http://localhost/ sent.txt

The file has the position behind the last row that the server took; a restart goes on there.  A
row that was sent before the file was written is sent again, with the same key: `epoch/seq/ordinal`.
So a server that stores the key together with its effects has each row once.

An outbox has INSERTs only; DELETEs, of what was sent, are passed over.  After a gap the table is
read again, and its rows come with other keys: who must have them once there, too, takes the row's
own id as the key.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from gauss_cdc_reader import LOADS, Change, Reader


def send(url: str, change: Change) -> None:
    """Send a row until the server has taken it."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(change.position)}
    body = json.dumps(change.after, default=str).encode()
    while True:
        request = urllib.request.Request(url, body, headers)  # noqa: S310  the user's own URL
        try:
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310  the same
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            print("not taken, another try:", error, file=sys.stderr)
            time.sleep(1)


def store(path: Path, position: str) -> None:
    """Replace the file as a whole: a kill leaves the old one or the new one."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(position)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


kafka, registry, prefix, table, url, name = sys.argv[1:]
path = Path(name)
after = path.read_text() if path.exists() else LOADS
with Reader(kafka, registry=registry, prefix=prefix) as reader:
    for position, change in reader.changes(table, after=after):
        if change.op == "gap":
            print("rows are missing:", change.why, file=sys.stderr)
        if change.after is not None and change.op in {"c", "r"}:
            send(url, change)
        store(path, str(position))
