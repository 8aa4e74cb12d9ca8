"""Near duplicates: samples that show the same image, resized, compressed again, mirrored, brightened or slightly cropped."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from torch import Tensor

from likewise.curate.audit.single_scores import nearest_samples
from likewise.data.copies import clusters_of, pixel_clusters, pixel_digest

COPY_COEFFICIENTS = (-9.77, -0.25, -3.18)
"""Coefficients of `copy_log_odds`, fitted on seven image sets (`benchmarks/near_copies.py`)."""
PRIOR_PAIR_COUNT = 4.0
"""Number of pairs, half of them copies, that are added to those of a data set when its share of copies is estimated."""
MIN_DETAIL_DIFFERENCE = 1e-3
"""Smallest difference of details that is distinguished from 0: compressing again causes more."""
HASH_SIDE, THUMB_SIDE = 32, 96
"""Sides in pixels: of the window that is transformed, and of the grey thumbnail that windows are cropped from."""
FREQUENCY_TABLE = np.hypot(*np.indices((HASH_SIDE, HASH_SIDE)))
"""Frequency of every coefficient of the cosine transform."""
HASH_COEFFICIENTS = np.argsort(FREQUENCY_TABLE.ravel(), kind="stable")[1:65]
"""Coefficients whose signs are the bits of a hash: the 64 lowest frequencies without the first, which is brightness."""
ODD_COEFFICIENTS = HASH_COEFFICIENTS % HASH_SIDE % 2 == 1
"""Coefficients that change sign when the image is mirrored, so that a mirrored image needs no second hash."""
DETAIL_WEIGHTS = np.where(FREQUENCY_TABLE < 20, FREQUENCY_TABLE, 0).astype(np.float32)
"""Weights of the coefficients in a comparison: edges count; plain ground (frequency 0) and JPEG noise do not."""
WINDOW_SPANS = ((0.0, 1.0), (0.0, 0.9), (0.05, 0.95), (0.1, 1.0))
"""Start and end of a window along one axis, as shares of the side."""
CROP_WINDOWS = np.array([(left, top, right, low) for left, right in WINDOW_SPANS for top, low in WINDOW_SPANS])
"""Windows that are hashed, as (left, top, right, bottom); the first is the whole image."""
WINDOW_OFFSETS = np.array(list(product((-1, 0, 1), repeat=4)))
"""Moves of the four edges of a window, in steps."""
BIT_COUNTS = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)
"""Number of set bits of every 16-bit number."""
MIN_COLOUR_LEVEL = 4
"""Smallest colour strength that differences are divided by, in levels of 255: weaker colours count as grey."""
READ_THREADS = 8
"""Threads that read and hash images."""

MAX_HASH_DISTANCE = 12
"""Maximum number of different bits, of 64, between two candidates.

Near duplicates of 200 birds, 90 % crops included, had at most 11. Two small objects on plain ground may differ in 1 bit, so a
small distance alone proves nothing."""
MIN_DETAIL_CORRELATION = 0.9
"""Smallest correlation of details of two images that agree."""
MAX_COLOUR_DIFFERENCE = 0.6
"""Maximum difference of colours, as a share of their strength: an object in another colour is another object."""
MIN_LISTED_PROBABILITY = 0.05
"""Smallest probability of a pair that is listed."""
VECTOR_PROBABILITY = 0.99
"""Probability of being copies for samples without images whose vectors are nearly equal (`MAX_DISTANCE_SHARE`)."""
MIN_FIRST_CORRELATION = 0.6
"""Correlation after the coarse search below which the fine search is skipped.

Of planted copies of seven image sets, 0.5 % are below it; this saves half of the work for other pairs."""
MAX_DISTANCE_SHARE = 0.01
"""Without images: maximum distance of two near duplicates, as a share of the distance of their k-th neighbours."""
ROUNDING_DISTANCE = 1e-3
"""Distances of unit vectors below this may be rounding: if the k-th neighbour is this close, no pair is reported."""


class NearCopies(NamedTuple):
    """Pairs of samples that probably show the same image, with that probability."""

    pair: Int[np.ndarray, "M 2"]
    probability: Float[np.ndarray, "M"]


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Pairs of samples that show the same image, row < other; n copies of an image give n - 1 pairs.

    `kind`: "same" (equal pixels; without images, equal vectors) or "near". `bits`: number of different bits, of 64, of the
    perceptual hashes for the best crop and mirroring; -1 without images. `probability`: that both show the same image. `unread`:
    number of samples whose image could not be read. `cluster`: number of each sample's cluster of exact copies. `near`: all
    pairs of near copies, also those that the listed pairs connect already.
    """

    row: Int[np.ndarray, "P"]
    other: Int[np.ndarray, "P"]
    similarity: Float[np.ndarray, "P"]
    bits: Int[np.ndarray, "P"]
    kind: np.ndarray
    probability: Float[np.ndarray, "P"]
    cluster: Int[np.ndarray, "N"]
    near: NearCopies
    unread: int = 0


def near_duplicates(
    z: Float[Tensor, "N D"],
    image: Callable[[int], Image.Image | None] | None = None,
    split: Int[np.ndarray, "N"] | None = None,
    k: int = 5,
    progress: Callable[[float], None] | None = None,
    vectors: Int[np.ndarray, "N"] | None = None,
    place: tuple[Int[np.ndarray, "N"], Sequence[Hashable]] | None = None,
    known: Int[np.ndarray, "N m"] | None = None,
) -> Duplicates:
    """Find near duplicates: candidates by embedding and by hash, confirmed by comparing the images.

    Candidates are the k nearest neighbours of every sample, and samples whose hashes are close in sorted order. The embedding
    finds crops, which a hash of the whole image does not find; the hash finds copies if the embedding has collapsed a class. A
    candidate is confirmed if details and colours agree after one image is aligned with the best window of the other. Samples
    without an image are compared by embedding alone: only vectors that are equal up to rounding are reported, at most
    `MAX_DISTANCE_SHARE` as far from each other as their k-th neighbours, so that a class that has collapsed to a point is not
    reported as a thousand copies.

    Args:
        z: embeddings of all splits, compared by angle.
        image: returns the image of a sample, or None if it cannot be read; called from threads.
        split: number of the split of each sample: among several copies, pairs across splits are reported first.
        k: number of neighbours that are candidates; without images, groups of more than k copies are not found.
        progress: called with the finished share of the work, 0 to 1.
        vectors: cluster numbers of samples with equal feature vectors (`exact_copies`), for samples without images.
        place: number of the file of each sample, and its box: two boxes of one file are no copies.
        known: neighbours of every sample, k or more, the nearest first; None: they are searched.
    """
    z = torch.nn.functional.normalize(z.detach().float())
    count, k, report_progress = len(z), min(k, len(z) - 1), progress or (lambda share: None)
    if count < 2:
        no, none = np.zeros(0, np.int64), np.zeros(0)
        return Duplicates(no, no, none, no, no.astype(str), none, np.arange(count), NearCopies(no.reshape(0, 2), none))
    near = nearest_samples(z, k)[0].cpu().numpy() if known is None else known[:, :k]
    far = _distance(z, np.stack([np.arange(count), near[:, -1]], 1))
    digest, codes = _read_all(image, count, lambda share: report_progress(0.8 * share))
    has_image = np.array([one != b"" for one in digest])
    exact = _exact_clusters(digest, vectors, place, k)
    _, first, own = np.unique(exact, return_index=True, return_inverse=True)
    everyone = np.arange(count)
    pair = [np.stack([np.repeat(everyone, k), near.ravel()], 1), np.stack([first[own], everyone], 1)]
    if has_image.any():
        pair.append(_similar_hashes(codes, np.flatnonzero(has_image)))
    pair = _other_files(_pairs(np.concatenate(pair), count), place)
    both = has_image[pair[:, 0]] & has_image[pair[:, 1]]
    apart = _distance(z, pair)
    equal = ~both & (apart <= MAX_DISTANCE_SHARE * far[pair].min(1)) & (far[pair].min(1) > ROUNDING_DISTANCE)
    same = np.equal(exact[pair[:, 0]], exact[pair[:, 1]]) | (equal & (apart == 0))
    bits, how = _match(codes, pair)
    close = np.flatnonzero(both & ~same & (bits <= MAX_HASH_DISTANCE))
    log_odds = np.full(len(pair), np.nan)
    jobs = ((image, *pair[p].tolist(), int(bits[p]), *how[p].tolist()) for p in close)
    for done, (p, odds) in enumerate(zip(close, _in_threads(_compare, jobs)), 1):
        log_odds[p] = np.nan if odds is None else odds
        report_progress(0.8 + 0.2 * done / len(close))
    report_progress(1.0)
    agrees = ~np.isnan(log_odds)
    probability = np.where(same, 1.0, VECTOR_PROBABILITY)
    probability[agrees] = copy_probabilities(log_odds[agrees])
    kept = np.flatnonzero(same | equal | (agrees & (probability >= MIN_LISTED_PROBABILITY)))
    pair, same, probability = pair[kept], same[kept], probability[kept]
    bits, apart = np.where(both[kept], bits[kept], -1).astype(np.int64), apart[kept]
    within = np.zeros(len(pair), bool) if split is None else split[pair[:, 0]] == split[pair[:, 1]]
    order = np.lexsort((apart, bits, ~same, within))
    shown, _ = _spanning(pair, order, count)
    _, cluster = _spanning(pair, np.flatnonzero(same), count)
    row, other = pair[shown].T
    return Duplicates(
        row, other, 1 - apart[shown] ** 2 / 2, bits[shown], np.where(same[shown], "same", "near"), probability[shown],
        cluster, NearCopies(pair[~same], probability[~same]), 0 if image is None else int((~has_image).sum()),
    )  # fmt: skip


def perceptual_hash(image: Image.Image) -> UInt64[np.ndarray, "16"]:
    """Return 64 bits for an image and for each of its windows: the signs of the lowest frequencies.

    This is not a library function because libraries hash one whole image at a time, and would hash a mirrored image again.
    """
    return _pack_bits(
        _cosine_transform(_thumb(image), CROP_WINDOWS).reshape(len(CROP_WINDOWS), -1)[:, HASH_COEFFICIENTS] > 0
    )


def agreement(a: Image.Image, b: Image.Image, window: Float[np.ndarray, "4"], mirrored: bool) -> tuple[float, float]:
    """Return how well two images agree: the correlation of their details, and the share by which their colours differ.

    The first image is cropped to the window that fits the second best, searched around the given window.
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


def _compare(image: Callable, i: int, j: int, bits: int, window: int, turned: int, mirrored: int) -> float | None:
    """Return the log odds that two candidates are copies; None if they do not agree."""
    images = [image(row) for row in ((j, i) if turned else (i, j))]
    if None in images:
        return None
    detail, tint = agreement(*images, CROP_WINDOWS[window], bool(mirrored))  # pyright: ignore[reportCallIssue]
    return copy_log_odds(bits, detail) if detail >= MIN_DETAIL_CORRELATION and tint <= MAX_COLOUR_DIFFERENCE else None


def _thumb(image: Image.Image) -> Image.Image:
    return image.convert("L").resize((THUMB_SIDE, THUMB_SIDE), Image.Resampling.BICUBIC)


def _colours(image: Image.Image, window: Float[np.ndarray, "4"]) -> Float[np.ndarray, "8 8 2"]:
    """Return the colours of a window without brightness, on an 8 x 8 grid."""
    box = tuple((window * (image.size * 2)).tolist())
    small = image.convert("RGB").resize((8, 8), Image.Resampling.BOX, box=box)
    return np.asarray(small.convert("YCbCr"), np.float64)[..., 1:] - 128


def _cosine_transform(thumb: Image.Image, windows: Float[np.ndarray, "W 4"]) -> Float[np.ndarray, "W S S"]:
    """Return the cosine transform of every window."""
    crops = [
        thumb.resize((HASH_SIDE, HASH_SIDE), Image.Resampling.BICUBIC, box=tuple((THUMB_SIDE * w).tolist()))
        for w in windows
    ]
    return dctn(np.stack([np.asarray(one, np.float32) for one in crops]), axes=(1, 2), norm="ortho")  # pyright: ignore[reportReturnType]


def _details(thumb: Image.Image, windows: Float[np.ndarray, "W 4"]) -> Float[np.ndarray, "W F"]:
    """Return the weighted frequencies of every window, scaled to length 1; zeros for an image without details."""
    found = (_cosine_transform(thumb, windows) * DETAIL_WEIGHTS).reshape(len(windows), -1)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.where(length > 1, found / length.clip(1e-9), 0)


def _pack_bits(signs: np.ndarray) -> UInt64[np.ndarray, "W"]:
    return np.ascontiguousarray(np.packbits(signs, axis=-1)).view(np.uint64)[..., 0]


MIRROR_MASK = _pack_bits(ODD_COEFFICIENTS[None])[0]
"""Hash bits that differ between an image and its mirror image."""


def _bit_distance(a: UInt64[np.ndarray, "P"], b: UInt64[np.ndarray, "P"]) -> Int[np.ndarray, "P"]:
    """Return the number of different bits of each pair."""
    return BIT_COUNTS[(a ^ b)[:, None].view(np.uint16)].sum(1, dtype=np.int64)


def _in_threads(work: Callable, jobs: Iterable[tuple]) -> Iterable:
    """Yield the results of `work` for all jobs in order, 256 jobs at a time."""
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for some in _blocks(list(jobs), 256):
            yield from pool.map(lambda job: work(*job), some)


def _blocks(whole, size: int) -> Iterable:
    return (whole[at : at + size] for at in range(0, len(whole), size))


def _read(image: Callable, row: int) -> tuple[bytes, UInt64[np.ndarray, "16"]] | None:
    """Return the digest of the pixels and the hashes of an image; None if it cannot be read."""
    found = image(row)
    if found is None:
        return None
    return pixel_digest(found), perceptual_hash(found)


def _read_all(
    image: Callable | None, count: int, report_progress: Callable[[float], None]
) -> tuple[list[bytes], UInt64[np.ndarray, "N 16"]]:
    """Return for every sample the digest of its pixels (empty: no image), and its hashes."""
    digest, codes = [b""] * count, np.zeros((count, len(CROP_WINDOWS)), np.uint64)
    jobs = () if image is None else ((image, row) for row in range(count))
    for row, found in enumerate(_in_threads(_read, jobs)):
        if found is not None:
            digest[row], codes[row] = found
        report_progress((row + 1) / count)
    return digest, codes


def _distance(z: Float[Tensor, "N D"], pair: Int[np.ndarray, "P 2"]) -> Float[np.ndarray, "P"]:
    """Return the distances of pairs, from differences of vectors: similarities close to 1 have too few digits."""
    some = (torch.from_numpy(block).to(z.device) for block in _blocks(pair, 1 << 14))
    return torch.cat([torch.zeros(0), *((z[ij[:, 0]] - z[ij[:, 1]]).norm(dim=1).cpu() for ij in some)]).numpy()


def _pairs(pair: Int[np.ndarray, "P 2"], count: int) -> Int[np.ndarray, "U 2"]:
    """Return the distinct pairs, sorted, with the lower row first."""
    low, high = pair.min(1), pair.max(1)
    key = np.unique((low * count + high)[low < high])
    return np.stack([key // count, key % count], 1)


def _exact_clusters(digest: list[bytes], vectors, place, k: int) -> Int[np.ndarray, "N"]:
    """Return cluster numbers of samples with equal pixels, and of samples without images with equal vectors.

    More than k + 1 equal vectors are a class that has collapsed to a point, not copies.
    """
    count = len(digest)
    file, box = place or (np.arange(count), [None] * count)
    pixels = pixel_clusters(digest, file, box).tolist()
    vector = np.arange(count) if vectors is None else vectors
    many = np.bincount(vector)[vector] > k + 1
    keys = [("pixels", pixels[row]) if digest[row] else ("vector", int(vector[row])) for row in range(count)]
    return clusters_of([("row", row) if many[row] and not digest[row] else key for row, key in enumerate(keys)])


def _other_files(pair: Int[np.ndarray, "P 2"], place) -> Int[np.ndarray, "Q 2"]:
    """Return the pairs without two different boxes of one file."""
    if place is None:
        return pair
    file, part = place[0], clusters_of(place[1])
    i, j = pair.T
    return pair[(file[i] != file[j]) | (part[i] == part[j])]


def _similar_hashes(codes: UInt64[np.ndarray, "N 16"], rows: Int[np.ndarray, "n"]) -> Int[np.ndarray, "P 2"]:
    """Return rows whose hashes, or mirrored hashes, are close in sorted order, for four rotations of the bits."""
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
    """Return the smallest number of different bits between one image and a window of the other, and how it was reached.

    The second array has for each pair: the window, whether it is of the second image, and whether one image is mirrored.
    """
    bits, how = np.full(len(pair), 65), np.zeros((len(pair), 3), np.int64)
    for at in _blocks(np.arange(len(pair)), 1 << 14):
        i, j = pair[at].T
        for window, turned, mirrored in product(range(len(CROP_WINDOWS)), (0, 1), (0, 1)):
            cropped, whole = (j, i) if turned else (i, j)
            found = _bit_distance(codes[cropped, window] ^ (MIRROR_MASK * np.uint64(mirrored)), codes[whole, 0])
            better = found < bits[at]
            bits[at[better]], how[at[better]] = found[better], (window, turned, mirrored)
    return bits, how


def _spanning(pair: Int[np.ndarray, "P 2"], order: Int[np.ndarray, "p"], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the n - 1 pairs that connect each n samples, sorted; of several choices the first in `order`.

    The second array has the number of each sample's component, in the order of first samples.
    """
    rank = np.arange(1.0, len(order) + 1)
    graph = coo_array((rank, tuple(pair[order].T)), (count, count)).tocsr()
    kept = order[minimum_spanning_tree(graph).data.astype(np.int64) - 1]
    return np.sort(kept), connected_components(graph, directed=False)[1].astype(np.int64)


def copy_log_odds(bits: float, detail: float, coefficients: tuple[float, float, float] = COPY_COEFFICIENTS) -> float:
    """Return the log odds that two images that agree are copies, if half of such pairs are.

    Formula: b0 + b1 bits + b2 log(1 - detail)
    """
    return float(np.dot(coefficients, (1.0, bits, np.log(max(1 - detail, MIN_DETAIL_DIFFERENCE)))))


def copy_probabilities(log_odds: Float[np.ndarray, "P"]) -> Float[np.ndarray, "P"]:
    """Return the probability of each pair to be copies, with the share of copies that these pairs make most likely.

    The share differs widely: nearly all photographs that agree are copies, and hardly any frames of a video.
    Formula: p = sigmoid(log odds + log(s / (1 - s))), s = (sum p + PRIOR_PAIR_COUNT / 2) / (P + PRIOR_PAIR_COUNT), repeated
    """
    share, p = 0.5, np.zeros(len(log_odds))
    for _ in range(200):
        p = 1 / (1 + np.exp(-(log_odds + np.log(share / (1 - share)))))
        share = (p.sum() + PRIOR_PAIR_COUNT / 2) / (len(p) + PRIOR_PAIR_COUNT)
    return p
