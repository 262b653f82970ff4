"""What a server answers that is no registry: a proxy, a page, a program of another kind."""

NO_SCHEMA = (
    b"{}",
    b"[]",
    b"null",
    b"5",
    b'"x"',
    b'{"status": "ok"}',
    b'{"schema": null}',
    b'{"schema": 5}',
    b'{"schema": ""}',
    b'{"schema": "no JSON"}',
    b'{"schema": "5"}',
    b'{"schema": "{\\"a\\": 1}"}',
    b'{"id": "x"}',
    b'{"schema": "null", "references": 5}',
    b"[" * 100_000,
    b"\xff\xfe\x00",
)
