"""Serve the search page until Ctrl-C."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from PIL import Image

from likewise.core.devices import bytes_of
from likewise.core.errors import LikewiseError
from likewise.core.http import LOOPBACK_HOSTS, choose_token, run_app
from likewise.core.open_page import page_opener
from likewise.core.settings import Search
from likewise.data.images import check_shape, to_rgb, upright
from likewise.deploy.index.build import Network, path_of, row_image
from likewise.deploy.index.decision import IndexCalibration
from likewise.deploy.index.index import Index
from likewise.deploy.search.app import SearchContext, make_app

MAX_IMAGE_PIXELS = 50_000_000
"""Maximum number of pixels of an image: a small file can contain a huge image. Decoding takes up to 28 bytes per pixel (WebP
with transparency; an RGB image takes 8), so at most 1.4 GB."""
PIXEL_LIMIT_TEXT = f"an image must have at most {MAX_IMAGE_PIXELS / 1e6:.0f} million pixels"
"""Start of the error for a larger image."""
IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
"""First bytes of the accepted image formats."""


def check_serving(config: Search) -> tuple[int, str]:
    """Return the maximum upload in bytes and the token; raise before any work if one of them is not valid."""
    try:
        upload = bytes_of(config.max_upload)
    except LikewiseError:
        raise LikewiseError(
            f"search: --max-upload must be an amount such as '20MB', got '{config.max_upload}'"
        ) from None
    return upload, choose_token("search", config.token_file)


def serve(
    index: Index,
    network: Network | None,
    config: Search,
    calibrated: IndexCalibration,
    upload: int,
    token: str,
    scope: str,
    say=print,
) -> None:
    """Serve the page for an index until Ctrl-C. `say` gets its address. `scope`: what is searched, in words."""
    if network is not None and network.run.about["features"] is None:
        _ = network.opened.network  # opened now: the first client does not wait, and errors appear here
    else:
        network = None
    calibrated.current()  # now: the first client does not wait
    desk = SearchContext(
        index=index, title=Path(config.target).resolve().name, upload=upload, open=open_image, decode=decode,
        picture=lambda place: row_image(index, place), see=network and network.see, embed=network and network.embed,
        changes=index.folder is not None and config.host in LOOPBACK_HOSTS, calibrated=calibrated,
        scope=scope, path=(lambda place: path_of(index, place)) if config.host in LOOPBACK_HOSTS else lambda place: "",
    )  # fmt: skip
    with suppress(KeyboardInterrupt), page_opener(config.browser) as opener:  # an interrupt is the normal end
        run_app(make_app(desk, token), "search", config.host, config.port, token, say, opener)


def open_image(body: bytes, formats: tuple[str, ...]) -> Image.Image | None:
    """Return the image of a body, not decoded yet; None: another format."""
    if not body.startswith(IMAGE_SIGNATURES):
        return None
    with translating_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_IMAGE_PIXELS is lower
        image = Image.open(io.BytesIO(body), formats=formats)
        if image.width * image.height > MAX_IMAGE_PIXELS:
            raise LikewiseError(f"search: {PIXEL_LIMIT_TEXT}, got {image.width} x {image.height}; shrink it first")
        return check_shape(image, "search")


def decode(image: Image.Image) -> Image.Image:
    """Return an opened image upright and in RGB, and close it, which frees its own pixels."""
    with translating_errors():
        image.load()
        turned = upright(image)
        if turned is not image:
            image.close()
        return to_rgb(turned)


@contextmanager
def translating_errors() -> Iterator[None]:
    """Turn the many errors that Pillow raises for damaged files into one sentence."""
    try:
        yield
    except LikewiseError:
        raise
    except Image.DecompressionBombError:
        raise LikewiseError(f"search: {PIXEL_LIMIT_TEXT}, got many more; shrink it first") from None
    except Exception as error:
        reason = str(error).splitlines()[0].partition(" <")[0] if str(error) else type(error).__name__
        raise LikewiseError(f"search: the image is damaged or incomplete ({reason}); save or send it again") from None
