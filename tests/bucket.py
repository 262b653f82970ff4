"""A bucket of an S3 server that tests run, and what happens around one of its writes."""

from __future__ import annotations

import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyarrow.fs import S3FileSystem

Hook: TypeAlias = Callable[[str], object]  # of a key


class LostWrite(Exception):
    """A write that comes to nothing."""


@dataclass
class Bucket:
    """The server's only bucket."""

    name: str
    hadoop: dict[str, str] = field(default_factory=dict)  # Hadoop's settings, without secrets
    variables: dict[str, str] = field(default_factory=dict)  # of the environment
    before: Hook = lambda _: None  # a write is done; LostWrite: it is not
    after: Hook = lambda _: None  # a write was done, and is not answered yet

    @property
    def url(self) -> str:
        return f"s3a://{self.name}"

    def put(self, key: str, text: bytes) -> None:
        """Write as another program does."""
        with self.files().open_output_stream(f"{self.name}/{key}") as stream:
            stream.write(text)

    def files(self) -> S3FileSystem:
        """What is there."""
        return S3FileSystem(
            endpoint_override=self.variables["AWS_ENDPOINT_URL"], allow_bucket_creation=True,
            access_key="anybody", secret_key="anything", region="us-east-1",
        )  # fmt: skip

    def served(self, app: Any) -> Callable[..., Iterable[bytes]]:
        """The server, with something around its writes."""

        def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            _, _, key = environ["PATH_INFO"].strip("/").partition("/")
            # A large one is written when its parts are put together.
            of_parts = "partNumber" in environ["QUERY_STRING"]
            is_write = key and environ["REQUEST_METHOD"] == "PUT" and not of_parts
            if not is_write or environ.get("HTTP_USER_AGENT", "").startswith("aws-sdk-cpp"):
                return app(environ, start)  # type: ignore[no-any-return]
            try:
                self.before(key)
            except LostWrite:
                start("503 Service Unavailable", [])
                return []
            answer = [*app(environ, start)]
            self.after(key)
            return answer

        return serve


@contextmanager
def served_bucket() -> Iterator[Bucket]:
    """Run a server, with an empty bucket."""
    with warnings.catch_warnings(action="ignore"):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        """Connections are kept, and requests not logged: a step of a lake makes hundreds."""

        protocol_version = "HTTP/1.1"

        def log_request(self, *_: object) -> None:
            pass

    bucket = Bucket(f"lake-{uuid.uuid4().hex}")
    app = bucket.served(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.port}"
    bucket.hadoop = {
        "fs.s3a.endpoint": url, "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }  # fmt: skip
    bucket.variables = {
        "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "anybody", "AWS_SECRET_ACCESS_KEY": "anything",
    }  # fmt: skip
    bucket.files().create_dir(bucket.name)
    yield bucket
    server.shutdown()
    thread.join()
