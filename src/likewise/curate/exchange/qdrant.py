"""A collection of Qdrant: one point per row, with the columns as its payload. Embedded in a folder, or on a server.

The package unpickles the files of an embedded folder, which runs code in them: receive from folders of a trusted source alone.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from likewise.core.errors import LikewiseError
from likewise.core.files import first_line
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.row_records import DEFAULT_NAME, Records, check_utf8, from_cells

COMPLETE_KEY = "likewise.complete"
"""Key of a collection's metadata: False while rows are written, and after a send that was killed."""
BLOCK_ROWS = 1000
"""Points that are written or read at a time."""


def import_package(name: str) -> Any:
    """Return a module of qdrant_client; raise an error that names the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LikewiseError(
            f"qdrant: the package qdrant_client is missing ({error}); pip install 'likewise[qdrant]'"
        ) from None


@contextmanager
def connect(place: str, create: bool) -> Iterator:
    """Yield a client of the folder or server; errors of the package become LikewiseError."""
    package = import_package("qdrant_client")
    folder = Path(place).expanduser()
    is_server = is_address(place)
    if not is_server and not create and not (folder / "meta.json").is_file():
        raise LikewiseError(
            f"qdrant: the source must be a folder of embedded Qdrant (with meta.json) or http://HOST:PORT, got '{place}'; "
            "check the path"
        )
    if not is_server and create and folder.exists() and not (folder / "meta.json").is_file() and any(folder.iterdir()):
        raise LikewiseError(
            f"qdrant: --out must be a new folder or one of embedded Qdrant, got '{place}', which holds other "
            "files; choose another"
        )
    try:
        with closing(
            package.QdrantClient(url=place) if is_server else package.QdrantClient(path=str(folder))
        ) as client:
            yield client
    except LikewiseError:
        raise
    except Exception as error:  # the client raises many types: no connection, a locked folder, a damaged file
        raise LikewiseError(
            f"qdrant: '{place}' must be a folder of embedded Qdrant or a server, but it cannot be used ({first_line(error)}); "
            "check the address, or close other clients"
        ) from None


def is_address(place: str) -> bool:
    """Return whether a place is a server, not a folder."""
    return place.startswith(("http://", "https://"))


def mark(client, name: str, is_complete: bool) -> None:
    """Store in a collection whether all rows are in it. Versions of Qdrant without metadata store nothing."""
    with suppress(AssertionError, TypeError):
        client.update_collection(name, metadata={COMPLETE_KEY: is_complete})


def send(records: Records, config: Send) -> list[str]:
    """Create a collection with one point per row: id = row, payload = columns."""
    models = import_package("qdrant_client.models")
    x, name = records.x, config.name or DEFAULT_NAME
    assert x is not None
    if is_address(config.out):
        check_utf8(records, "qdrant")
    # Dot: for unit vectors it is the cosine, and unlike Distance.COSINE it keeps the vectors as they are.
    distance = models.Distance.DOT if records.similarity == "cosine" else models.Distance.EUCLID
    with connect(config.out, create=True) as client:
        if client.collection_exists(name):
            if not config.replace:
                size = client.get_collection(name).config.params.vectors.size
                raise LikewiseError(
                    f"qdrant: the collection must be new, but '{name}' exists, with {client.count(name).count} vectors of "
                    f"{size} dimensions (these have {x.shape[1]}); choose another --name, or replace it with --replace"
                )
            client.delete_collection(name)
        client.create_collection(name, vectors_config=models.VectorParams(size=x.shape[1], distance=distance))
        try:
            mark(client, name, is_complete=False)
            lines = list(records.lines())
            with one_sync(client, name):
                for first in range(0, len(records), BLOCK_ROWS):
                    block = slice(first, first + BLOCK_ROWS)
                    points = models.Batch(
                        ids=records.row[block].tolist(), vectors=x[block].tolist(), payloads=lines[block]
                    )
                    client.upsert(name, points, wait=True)
            mark(client, name, is_complete=True)
        except BaseException:
            client.delete_collection(name)  # no collection with some of the rows
            raise
    return []


@contextmanager
def one_sync(client, name: str) -> Iterator[None]:
    """Sync the file of an embedded collection once at the end, not after every point, which takes minutes for 10,000 points.

    The connection is not a public name of the package; where it is missing (a server, another version), nothing changes.
    """
    try:
        storage = client._client.collections[name].storage
        base, file = storage.storage, storage.location
        base.execute("PRAGMA synchronous = OFF")
    except (AttributeError, KeyError):
        yield
        return
    yield
    base.execute("PRAGMA synchronous = FULL")
    with open(file, "rb") as content:
        os.fsync(content.fileno())


def receive(config: Receive) -> Records:
    """Return all points of a collection, by id, with vectors and payload unchanged."""
    name = config.name or DEFAULT_NAME
    with connect(config.source, create=False) as client:
        known = sorted(one.name for one in client.get_collections().collections)
        if name not in known:
            raise LikewiseError(
                f"qdrant: there is no collection '{name}'; there are: {', '.join(known) or 'none'}; name it by --name"
            )
        about = client.get_collection(name).config
        if (getattr(about, "metadata", None) or {}).get(COMPLETE_KEY) is False:
            raise LikewiseError(
                f"qdrant: the collection must be complete, but the send of '{name}' was interrupted; send again with --replace"
            )
        distance = str(getattr(about.params.vectors, "distance", ""))
        points, offset = [], None
        while True:
            block, offset = client.scroll(name, limit=BLOCK_ROWS, offset=offset, with_payload=True, with_vectors=True)
            points += block
            if offset is None:
                break
    if not points or not isinstance(points[0].vector, list):
        raise LikewiseError(
            f"qdrant: the points of '{name}' must have one vector each, got none or named vectors; "
            "choose another --name"
        )
    payloads = [one.payload or {} for one in points]
    names = dict.fromkeys(key for payload in payloads for key in payload)
    cells = {key: [payload.get(key) for payload in payloads] for key in names}
    x, similarity = [one.vector for one in points], "euclidean" if "EUCLID" in distance.upper() else "cosine"
    return from_cells(cells, "qdrant", x, similarity)
