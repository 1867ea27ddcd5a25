"""Folders on whatever storage Flyte uses, with conditional creates.

The one place that builds an `obstore` store: `flyte.storage` reads and writes, but has no conditional create, no listing and
no delete, and our records and memories rest on all three.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import pathlib
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["FileInfo", "Folder"]

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="flyte-agents-storage")
"""Threads of storage's own: the loop's default ones may all be held by sync tools that wait for storage."""


_USED_BY: list[int] = []
"""The process that uses storage."""


def _refuse_after_fork() -> None:
    if not _USED_BY:
        _USED_BY.append(os.getpid())
    if _USED_BY[0] != os.getpid():
        raise RuntimeError(
            f"Process {_USED_BY[0]} used storage and was forked: the threads that do so are not in its child, which would wait "
            "for them for ever. Start processes with multiprocessing.get_context('spawn'), or before storage is used."
        )


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    _refuse_after_fork()
    return await asyncio.get_running_loop().run_in_executor(_THREADS, functools.partial(function, *args, **kwargs))


@dataclass(frozen=True)
class FileInfo:
    """One file of a listing.

    Attributes:
        name: Its path below the folder.
        size: Its size in bytes.
    """

    name: str
    size: int


@dataclass(frozen=True)
class Folder:
    """One folder: a directory of this machine, or a prefix in an object store.

    Attributes:
        uri: Where it is: a local path, or a URL such as `s3://bucket/prefix`.
    """

    uri: str

    @classmethod
    def at(cls, uri: str, *parts: str) -> Folder:
        """Name a folder, which need not exist.

        Args:
            uri: A local path, a `file://` URL or an object store's URL.
            parts: Folders below it.
        """
        if uri.startswith("file://"):
            uri = unquote(urlsplit(uri).path)
        if "://" not in uri:
            uri = _tidy(uri) if os.path.isabs(uri) else str(pathlib.Path(uri).absolute())
        return cls("/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)]))

    @property
    def is_local(self) -> bool:
        """Whether the folder is a directory of this machine."""
        return "://" not in self.uri

    def location(self, name: str) -> str:
        """The absolute path or URL of a file in the folder."""
        return f"{self.uri}/{name}"

    async def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists; on local disk it is durable when this returns.

        Args:
            name: Its path below the folder.
            data: Its content.

        Returns:
            Whether this call created it. Of several writers at once, exactly one creates it.
        """
        from obstore.exceptions import AlreadyExistsError

        try:
            if self.is_local:
                await _in_thread(self._create_local, name, data)
            else:
                await self._store().put_async(name, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def _create_local(self, name: str, data: bytes) -> None:
        self._store().put(name, data, mode="create")
        _sync_to_disk(pathlib.Path(self.uri, name))

    async def replace(self, name: str, data: bytes) -> None:
        """Write a file whether it exists or not; on local disk it is durable when this returns.

        A reader gets the old content or the new one, never a mixture. Of several writers at once, any may be the last.

        Args:
            name: Its path below the folder.
            data: Its content.
        """
        if self.is_local:
            await _in_thread(self._replace_local, name, data)
        else:
            await self._store().put_async(name, data)

    def _replace_local(self, name: str, data: bytes) -> None:
        self._store().put(name, data)
        _sync_to_disk(pathlib.Path(self.uri, name))

    async def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: There is none of that name.
        """
        if self.is_local:
            return await _in_thread(pathlib.Path(self.uri, name).read_bytes)
        result = await self._store().get_async(name)  # its NotFoundError is a FileNotFoundError
        return bytes(await result.bytes_async())

    async def read_start(self, name: str, size: int) -> bytes:
        """Read the beginning of a file that is not empty.

        Args:
            name: Its path below the folder.
            size: How many bytes; all of them where the file has fewer.

        Raises:
            FileNotFoundError: There is none of that name.
        """
        if self.is_local:
            return await _in_thread(self._read_start_local, name, size)
        return bytes(await self._store().get_range_async(name, start=0, end=size))

    def _read_start_local(self, name: str, size: int) -> bytes:
        with pathlib.Path(self.uri, name).open("rb") as file:
            return file.read(size)

    async def names(self, below: str = "") -> list[str]:
        """List the files in the folder and in the folders below it.

        Args:
            below: Only those in this folder.

        Returns:
            Paths relative to this folder, sorted; empty where there is no such folder.
        """
        return [file.name for file in await self.files(below)]

    async def files(self, below: str = "", *, after: str | None = None) -> list[FileInfo]:
        """List the files in the folder and in the folders below it, with their sizes.

        Args:
            below: Only those in this folder.
            after: Only those whose path below this folder sorts behind this one. An object store skips the others unread.

        Returns:
            Sorted by path; empty where there is no such folder.
        """
        if self._is_missing(below):
            return []
        found: list[FileInfo] = []
        async for batch in self._store().list(prefix=below or None, offset=after):
            found += [FileInfo(str(meta["path"]), meta["size"]) for meta in batch]
        return sorted(found, key=lambda file: file.name)

    async def folders(self, below: str = "") -> list[str]:
        """List the folders that are directly in a folder.

        Args:
            below: In which folder; in this one by default.

        Returns:
            Paths relative to this folder, sorted. On local disk an empty directory is listed, an object store has none.
        """
        if self._is_missing(below):
            return []
        result = await self._store().list_with_delimiter_async(prefix=below or None)
        return sorted(str(prefix) for prefix in result["common_prefixes"])

    def _is_missing(self, below: str) -> bool:
        return self.is_local and not os.path.isdir(f"{self.uri}/{below}")  # a listing would make the directory

    async def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            await self._store().delete_async(name)

    async def delete_all(self, below: str) -> None:
        """Remove a folder with all that is in it, also what another process is adding meanwhile.

        Args:
            below: Which folder.
        """
        if self.is_local:
            await _in_thread(_remove_tree, pathlib.Path(self.uri, below))
            return
        while names := await self.names(below):
            await self._store().delete_async(names)

    async def delete_if_empty(self) -> None:
        """Remove this folder's own directory, if nothing is in it. Object stores have no directories."""
        if self.is_local:
            with contextlib.suppress(OSError):  # it is not there, or not empty
                await _in_thread(os.rmdir, self.uri)

    def _store(self) -> ObjectStore:
        _refuse_after_fork()
        return _open(self.uri)


def _sync_to_disk(path: pathlib.Path) -> None:
    """Wait until a file's content and its directory entry are on disk."""
    for target in (path, path.parent):
        try:
            descriptor = os.open(target, os.O_RDONLY)
        except FileNotFoundError:  # somebody removed it again
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_tree(path: pathlib.Path) -> None:
    for _ in range(100):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if not path.exists():
                return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
    raise OSError(errno.ENOTEMPTY, "Other processes go on adding files to the folder", str(path))


@functools.lru_cache(maxsize=256)  # each look at where we are names the run's folder
def _tidy(path: str) -> str:
    return str(pathlib.Path(path))


@functools.lru_cache(maxsize=64)  # opening one costs a TLS context; obstore's stores are safe to share between threads
def _open(uri: str) -> ObjectStore:
    from obstore.store import LocalStore, from_url

    scheme, separator, _ = uri.partition("://")
    if not separator:
        return LocalStore(uri, mkdir=True)
    import flyte.storage

    options: dict[str, Any] = flyte.storage.get_configured_fsspec_kwargs(scheme)
    known = {
        name: options[name]
        for name in ("config", "client_options", "retry_config", "credential_provider", "region")
        if name in options
    }
    return from_url(uri, **known)
