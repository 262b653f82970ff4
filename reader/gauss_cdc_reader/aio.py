"""The reader for asyncio: what `Reader` gives, from a thread for each iteration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change
from gauss_cdc_reader.commits import Commit
from gauss_cdc_reader.reader import LOADS, Reader

T = TypeVar("T")

_END: Final[Any] = object()


class AsyncReader:
    """Reads what stands in Kafka of one source, for `async for`.

    Its arguments are those of `Reader`.  Whoever leaves an iteration for good closes it, or
    cancels the task that waits: the thread ends behind it.
    """

    def __init__(self, kafka: str | Mapping[str, Any], **options: Any) -> None:
        self._kafka, self._options = kafka, options
        Reader(kafka, **options)  # refused now, or never

    def commits(self, after: Bookmark | str = LOADS, *, wait: bool = True) -> AsyncIterator[Commit]:
        """Give whole commits; see `Reader.commits`.

        The changes of a commit that is too large to be held are read while they are iterated:
        iterate these in a thread (`asyncio.to_thread`).
        """
        return self._each(lambda reader: reader.commits(after, wait=wait))

    def changes(
        self,
        *tables: str,
        after: Bookmark | str = LOADS,
        wait: bool = True,
        group: str | None = None,
    ) -> AsyncIterator[tuple[Bookmark, Change]]:
        """Give the changes of some tables; see `Reader.changes`."""
        options: dict[str, Any] = {"after": after, "wait": wait, "group": group}
        return self._each(lambda reader: reader.changes(*tables, **options))

    async def _each(self, begun: Callable[[Reader], Iterator[T]]) -> AsyncIterator[T]:
        loop, reader = asyncio.get_running_loop(), Reader(self._kafka, **self._options)
        items: Any = begun(reader)
        thread = ThreadPoolExecutor(1, thread_name_prefix="gauss-cdc-reader")
        try:
            while (one := await loop.run_in_executor(thread, next, items, _END)) is not _END:
                yield one
        finally:
            reader.close()  # its thread looks for that twice a second, and the loop goes on
            thread.submit(items.close)
            thread.shutdown(wait=False)
