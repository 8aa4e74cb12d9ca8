"""Serve the page on which pictures are searched, until Ctrl-C."""

from __future__ import annotations

import io
import warnings
from contextlib import suppress
from pathlib import Path

from PIL import Image

from likewise.configs import Search
from likewise.data.images import check_shape, to_rgb, upright
from likewise.errors import LikewiseError
from likewise.finder.app import Desk, make_app
from likewise.finder.index import Index
from likewise.server import HERE, check_host, run_app
from likewise.stages.assemble import bytes_of
from likewise.stages.indexing import Network, picture_of

PIXELS = 64_000_000
"""The largest picture that is decoded: a small file can hold a huge one."""
BEGINS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
"""First bytes of the pictures that are taken."""


def check_serving(config: Search) -> int:
    """What can be wrong is said before the work begins. The largest upload in bytes."""
    check_host("search", config.host, config.token)
    try:
        return bytes_of(config.upload)
    except LikewiseError:
        raise LikewiseError(f"search: --upload must be an amount such as '20MB', got '{config.upload}'") from None


def serve(index: Index, network: Network | None, config: Search) -> None:
    if network is not None and network.run.about["features"] is None:
        _ = network.parts  # opened now: the first client need not wait, and what is wrong is said here
    else:
        network = None
    desk = Desk(
        index=index, title=Path(config.target).resolve().name, upload=bytes_of(config.upload), decode=decode,
        picture=lambda place: picture_of(index, place), see=network and network.see, embed=network and network.embed,
        changes=index.folder is not None and config.host in HERE,
    )  # fmt: skip
    with suppress(KeyboardInterrupt):  # how it is meant to end
        run_app(make_app(desk, config.token), "search", config.host, config.port, config.token)


def decode(body: bytes, formats: tuple[str, ...]) -> tuple[Image.Image, str] | None:
    """The picture in some bytes and its format. None: it is none of these; an error: it is, but cannot be used."""
    if not body.startswith(BEGINS):
        return None
    limit = f"a picture may have {PIXELS / 1e6:.0f} million pixels"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower
            with Image.open(io.BytesIO(body), formats=formats) as image:
                if image.width * image.height > PIXELS:
                    raise LikewiseError(
                        f"search: {limit}, this one has {image.width} x {image.height}; shrink it first"
                    )
                check_shape(image, "search").load()
                return to_rgb(upright(image)), "JPEG" if image.format == "MPO" else str(image.format)
    except LikewiseError:
        raise
    except Image.DecompressionBombError:
        raise LikewiseError(f"search: {limit}, this one has many more; shrink it first") from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = str(error).splitlines()[0].partition(" <")[0] if str(error) else type(error).__name__
        raise LikewiseError(f"search: the picture is damaged or cut short ({reason}); save or send it again") from None
