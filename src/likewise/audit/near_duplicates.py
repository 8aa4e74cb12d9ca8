"""Which samples show the same picture: files twice, resized, compressed anew, mirrored, brightened or cropped a little."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from PIL import Image
from scipy.fft import dctn
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.retrieval.ranking import nearest

HASH_SIDE, THUMB_SIDE = 32, 96  # pixels: of what is transformed, and of the grey picture that windows are cut from
FREQUENCY_TABLE = np.hypot(*np.indices((HASH_SIDE, HASH_SIDE)))
HASH_COEFFICIENTS = np.argsort(FREQUENCY_TABLE.ravel(), kind="stable")[1:65]  # the 64 lowest but the first, which is brightness
ODD_COEFFICIENTS = HASH_COEFFICIENTS % HASH_SIDE % 2 == 1  # waves that change their sign in the mirror: no picture need be hashed twice
DETAIL_WEIGHTS = np.where(FREQUENCY_TABLE < 20, FREQUENCY_TABLE, 0).astype(np.float32)  # edges count; plain ground and JPEG's noise do not
WINDOW_SPANS = ((0.0, 1.0), (0.0, 0.9), (0.05, 0.95), (0.1, 1.0))
CROP_WINDOWS = np.array([(left, top, right, low) for left, right in WINDOW_SPANS for top, low in WINDOW_SPANS])  # the first: all of it
WINDOW_OFFSETS = np.array(list(product((-1, 0, 1), repeat=4)))  # of a window's edges
BIT_COUNTS = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)
MIN_COLOUR_LEVEL = 4  # levels of 255: colours so weak are taken for none
READ_THREADS = 8

MAX_HASH_DISTANCE = 12
"""Bits of 64. Copies of 200 birds, 90 % crops included, had 11 at most. Two small things on plain ground may differ in 1 as well:
bits alone prove nothing."""
MIN_DETAIL_CORRELATION = 0.9
"""Correlation of details. Of planted copies 99 % and more had more; two photographs of a bird seconds apart 0.88 and less."""
MIN_FIRST_CORRELATION = 0.6
"""Below this after the first look, no finer look was seen to reach `MIN_DETAIL_CORRELATION`: half of the work for pairs that are no copies."""
MAX_COLOUR_DIFFERENCE = 0.6
"""How far colours may differ, as a share of how colourful the pictures are: the same thing in another colour is another thing."""
MAX_DISTANCE_SHARE = 0.01
"""Without pictures, a copy is at most this share as far away as the last of the neighbours."""
ROUNDING_DISTANCE = 1e-3
"""Distances between unit vectors below this may be rounding: neighbours all so near report_progress nothing."""


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Pairs of samples that show the same picture, row < other; of n copies n - 1 pairs.

    `kind`: "same" (pixel by pixel; without pictures, number by number) or "near". `bits`: how many of 64 the perceptual hashes
    differ in, cropped and mirrored as fits best; -1 without pictures. `unread`: samples whose picture could not be read.
    """

    row: Int[np.ndarray, "P"]
    other: Int[np.ndarray, "P"]
    similarity: Float[np.ndarray, "P"]
    bits: Int[np.ndarray, "P"]
    kind: np.ndarray
    unread: int = 0


def near_duplicates(
    z: Float[Tensor, "N D"],
    picture: Callable[[int], Image.Image | None] | None = None,
    part: Int[np.ndarray, "N"] | None = None,
    k: int = 5,
    progress: Callable[[float], None] | None = None,
) -> Duplicates:
    """Find them: candidates by embedding and by hash, confirmed by the pictures.

    Candidates are the k nearest of every sample, and samples whose hashes stand together in sorted order: the embedding finds
    crops, which a hash of the whole does not; the hash finds copies in an embedding that has drawn a class together. A candidate
    is a copy if details and colours agree once the one is laid over the best window of the other. Samples without a picture are
    judged by embedding alone, and then only vectors that are equal up to rounding are copies: at most `MAX_DISTANCE_SHARE` as far from each
    other as their k-th neighbours are, so that a class drawn together to a point is not a thousand copies.

    Args:
        z: embeddings of all parts, compared by angle.
        picture: the picture of a sample, or None where it cannot be read; called from threads.
        part: which part each sample is in: among several copies, pairs across parts are told before others.
        k: neighbours looked at; without pictures, groups of more than k copies are not found.
        progress: called with the share of the work that is done.
    """
    if k < 1 or (part is not None and len(part) != len(z)):
        raise LikewiseError(
            f"near_duplicates: k must be 1 or more and each of {len(z)} samples in one part, got k={k}"
            + ("" if part is None else f" and {len(part)} parts")
        )
    z = torch.nn.functional.normalize(z.detach().float())
    count, k, report_progress = len(z), min(k, len(z) - 1), progress or (lambda share: None)
    if count < 2:
        return _spanning_pairs(np.zeros((0, 2), np.int64), *np.zeros((3, 0)), z, part, 0)  # pyright: ignore[reportCallIssue]
    near, far = _neighbours(z, k)
    pair = _pairs(np.stack([np.repeat(np.arange(count), k), near.ravel()], 1), count)
    digest, codes = _read_all(picture, count, lambda share: report_progress(0.8 * share))
    seen = np.array([one != b"" for one in digest])
    if seen.any():
        pair = _pairs(np.concatenate([pair, _same_pixels(digest), _similar_hashes(codes, np.flatnonzero(seen))]), count)
    both = seen[pair].all(1)
    apart = _distance(z, pair)
    equal = ~both & (apart <= MAX_DISTANCE_SHARE * far[pair].min(1)) & (far[pair].min(1) > ROUNDING_DISTANCE)
    same = np.array([bool(digest[i]) and digest[i] == digest[j] for i, j in pair.tolist()], bool)
    same |= equal & (apart == 0)
    bits, how = _match(codes, pair)
    close = np.flatnonzero(both & ~same & (bits <= MAX_HASH_DISTANCE))
    agrees = np.zeros(len(pair), bool)
    jobs = ((picture, *pair[p].tolist(), *how[p].tolist()) for p in close)
    for done, (p, yes) in enumerate(zip(close, _in_threads(_confirm, jobs)), 1):
        agrees[p] = yes
        report_progress(0.8 + 0.2 * done / len(close))
    report_progress(1.0)
    kept = same | agrees | equal
    bits = np.where(both, bits, -1)
    unread = 0 if picture is None else int((~seen).sum())
    return _spanning_pairs(pair[kept], same[kept], bits[kept], apart[kept], z, part, unread)


def perceptual_hash(picture: Image.Image) -> UInt64[np.ndarray, "16"]:
    """64 bits each for a picture and for its windows: the signs of its lowest frequencies. (By hand: libraries hash one whole
    picture at a time, and mirroring it means hashing again.)"""
    return _pack_bits(_cosine_transform(_thumb(picture), CROP_WINDOWS).reshape(len(CROP_WINDOWS), -1)[:, HASH_COEFFICIENTS] > 0)


def agreement(a: Image.Image, b: Image.Image, window: Float[np.ndarray, "4"], mirrored: bool) -> tuple[float, float]:
    """How far two pictures are one: the correlation of their details, and by which share their colours differ.

    The first is cut to the window that fits the second best, looked for around the one given.
    """
    b = b.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else b
    thumb, whole, best = _thumb(a), _details(_thumb(b), CROP_WINDOWS[:1])[0], 0.0
    for step in (0.05, 0.025):
        windows = np.unique((window + step * WINDOW_OFFSETS).clip(0, 1), axis=0)
        found = _details(thumb, windows) @ whole
        best, window = float(found.max()), windows[found.argmax()]
        if best < MIN_FIRST_CORRELATION:
            break
    one, two = _colours(a, window), _colours(b, CROP_WINDOWS[0])
    colour = max(MIN_COLOUR_LEVEL, *(float(np.abs(some).mean()) for some in (one, two)))
    return best, float(np.abs(one - two).mean()) / colour


def _confirm(picture: Callable, i: int, j: int, window: int, turned: int, mirrored: int) -> bool:
    pictures = [picture(row) for row in ((j, i) if turned else (i, j))]
    if None in pictures:
        return False
    detail, tint = agreement(*pictures, CROP_WINDOWS[window], bool(mirrored))  # pyright: ignore[reportCallIssue]
    return detail >= MIN_DETAIL_CORRELATION and tint <= MAX_COLOUR_DIFFERENCE


def _thumb(picture: Image.Image) -> Image.Image:
    return picture.convert("L").resize((THUMB_SIDE, THUMB_SIDE), Image.Resampling.BICUBIC)


def _colours(picture: Image.Image, window: Float[np.ndarray, "4"]) -> Float[np.ndarray, "8 8 2"]:
    """The colours of a window without their brightness, roughly where they are."""
    box = tuple((window * (picture.size * 2)).tolist())
    small = picture.convert("RGB").resize((8, 8), Image.Resampling.BOX, box=box)
    return np.asarray(small.convert("YCbCr"), np.float64)[..., 1:] - 128


def _cosine_transform(thumb: Image.Image, windows: Float[np.ndarray, "W 4"]) -> Float[np.ndarray, "W S S"]:
    """The cosine transform of every window."""
    cut = [thumb.resize((HASH_SIDE, HASH_SIDE), Image.Resampling.BICUBIC, box=tuple((THUMB_SIDE * w).tolist())) for w in windows]
    return dctn(np.stack([np.asarray(one, np.float32) for one in cut]), axes=(1, 2), norm="ortho")  # pyright: ignore[reportReturnType]


def _details(thumb: Image.Image, windows: Float[np.ndarray, "W 4"]) -> Float[np.ndarray, "W F"]:
    """The details of every window, of length 1; a plain picture has none to agree in."""
    found = (_cosine_transform(thumb, windows) * DETAIL_WEIGHTS).reshape(len(windows), -1)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.where(length > 1, found / length.clip(1e-9), 0)


def _pack_bits(signs: np.ndarray) -> UInt64[np.ndarray, "W"]:
    return np.ascontiguousarray(np.packbits(signs, axis=-1)).view(np.uint64)[..., 0]


MIRROR_MASK = _pack_bits(ODD_COEFFICIENTS[None])[0]


def _bit_distance(a: UInt64[np.ndarray, "P"], b: UInt64[np.ndarray, "P"]) -> Int[np.ndarray, "P"]:
    """How many bits do."""
    return BIT_COUNTS[(a ^ b)[:, None].view(np.uint16)].sum(1, dtype=np.int64)


def _in_threads(work: Callable, jobs: Iterable[tuple]) -> Iterable:
    """What work makes of every job, in order, some hundred at a time."""
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for some in _blocks(list(jobs), 256):
            yield from pool.map(lambda job: work(*job), some)


def _blocks(whole, size: int) -> Iterable:
    return (whole[at : at + size] for at in range(0, len(whole), size))


def _read(picture: Callable, row: int) -> tuple[bytes, UInt64[np.ndarray, "16"]] | None:
    seen = picture(row)
    if seen is None:
        return None
    pixels = f"{seen.mode}{seen.size}".encode() + seen.tobytes()
    return hashlib.blake2b(pixels, digest_size=16).digest(), perceptual_hash(seen)


def _read_all(
    picture: Callable | None, count: int, report_progress: Callable[[float], None]
) -> tuple[list[bytes], UInt64[np.ndarray, "N 16"]]:
    """For every sample what its pixels are, in short ("": no picture), and its hashes."""
    digest, codes = [b""] * count, np.zeros((count, len(CROP_WINDOWS)), np.uint64)
    jobs = () if picture is None else ((picture, row) for row in range(count))
    for row, found in enumerate(_in_threads(_read, jobs)):
        if found is not None:
            digest[row], codes[row] = found
        report_progress((row + 1) / count)
    return digest, codes


def _neighbours(z: Float[Tensor, "N D"], k: int) -> tuple[Int[np.ndarray, "N k"], Float[np.ndarray, "N"]]:
    """The k nearest of every sample, and how far away the last of them is."""
    near, _ = nearest(z, z, k=k, own=torch.arange(len(z), device=z.device))
    near = near.cpu().numpy()
    return near, _distance(z, np.stack([np.arange(len(z)), near[:, -1]], 1))


def _distance(z: Float[Tensor, "N D"], pair: Int[np.ndarray, "P 2"]) -> Float[np.ndarray, "P"]:
    """By differences: near 1, similarities have lost the digits that report_progress."""
    some = (torch.from_numpy(block).to(z.device) for block in _blocks(pair, 1 << 14))
    return torch.cat([torch.zeros(0), *((z[ij[:, 0]] - z[ij[:, 1]]).norm(dim=1).cpu() for ij in some)]).numpy()


def _pairs(pair: Int[np.ndarray, "P 2"], count: int) -> Int[np.ndarray, "U 2"]:
    """Each once, the lower row first, sorted."""
    low, high = pair.min(1), pair.max(1)
    key = np.unique((low * count + high)[low < high])
    return np.stack([key // count, key % count], 1)


def _same_pixels(digest: list[bytes]) -> Int[np.ndarray, "P 2"]:
    """Every row with pixels that were there before, and the first that had them."""
    first: dict[bytes, int] = {}
    found = [(first.setdefault(one, row), row) for row, one in enumerate(digest) if one]
    return np.array(found, np.int64).reshape(-1, 2)


def _similar_hashes(codes: UInt64[np.ndarray, "N 16"], rows: Int[np.ndarray, "n"]) -> Int[np.ndarray, "P 2"]:
    """Rows whose hashes, or mirrored ones, stand together when sorted, from four places of the hash on."""
    code = np.concatenate([codes[rows, 0], codes[rows, 0] ^ MIRROR_MASK])
    row, found = np.concatenate([rows, rows]), [np.zeros((0, 2), np.int64)]
    for turn in range(4):
        order = np.argsort(np.roll(code[:, None].view(np.uint16), turn, axis=1).copy().view(np.uint64)[:, 0])
        for step in range(1, 5):
            a, b = order[:-step], order[step:]
            close = _bit_distance(code[a], code[b]) <= MAX_HASH_DISTANCE // 2
            found.append(np.stack([row[a[close]], row[b[close]]], 1))
    return np.concatenate(found)


def _match(
    codes: UInt64[np.ndarray, "N 16"], pair: Int[np.ndarray, "P 2"]
) -> tuple[Int[np.ndarray, "P"], Int[np.ndarray, "P 3"]]:
    """The fewest bits in which one picture differs from a window of the other, and how: which window, whether it is the second
    picture's, whether mirrored."""
    bits, how = np.full(len(pair), 65), np.zeros((len(pair), 3), np.int64)
    for at in _blocks(np.arange(len(pair)), 1 << 14):
        i, j = pair[at].T
        for window, turned, mirrored in product(range(len(CROP_WINDOWS)), (0, 1), (0, 1)):
            cut, whole = (j, i) if turned else (i, j)
            found = _bit_distance(codes[cut, window] ^ (MIRROR_MASK * np.uint64(mirrored)), codes[whole, 0])
            better = found < bits[at]
            bits[at[better]], how[at[better]] = found[better], (window, turned, mirrored)
    return bits, how


def _spanning_pairs(pair, same, bits, apart, z: Float[Tensor, "N D"], part, unread: int) -> Duplicates:
    """Of n copies the n - 1 pairs that join them: those across parts first, then the same, then the fewest bits."""
    leader = list(range(len(z)))

    def find(row: int) -> int:
        while leader[row] != row:
            leader[row] = row = leader[leader[row]]
        return row

    within = np.zeros(len(pair), bool) if part is None else part[pair[:, 0]] == part[pair[:, 1]]
    kept = []
    for p in np.lexsort((apart, bits, ~same.astype(bool), within)):
        a, b = (find(row) for row in pair[p].tolist())
        if a != b:
            leader[max(a, b)] = min(a, b)
            kept.append(p)
    kept = np.sort(np.array(kept, np.int64))
    kind = np.where(same[kept].astype(bool), "same", "near")
    return Duplicates(*pair[kept].T, 1 - apart[kept] ** 2 / 2, bits[kept].astype(np.int64), kind, unread)  # pyright: ignore[reportCallIssue]
