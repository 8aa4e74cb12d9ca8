import dataclasses
import struct
import warnings
import zlib

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image, ImageFile

from likewise.data.images import BadImage, check_files, drop, read_image


def test_check_files(items, tmp_path):
    check_files(items)
    for name in ("0.png", "2.png", "3.png", "5.png"):
        (tmp_path / name).unlink()
    (tmp_path / "2.png").touch()
    (tmp_path / "3.png").mkdir()
    check_files(items, rows=[1, 4])
    with pytest.raises(LikewiseError) as error:
        check_files(items)
    text = str(error.value)
    assert "six: every image file must exist, but 3 cannot be used" in text
    assert "0.png (missing)" in text
    assert "3.png (not a file)" in text
    assert "2.png" not in text  # an empty file exists: it is broken, not missing
    check_files(Items("f", np.zeros(1, int), ("a",), x=np.ones((1, 2), np.float32)))


def test_drop_filters_every_column(items):
    left = drop(items, [0, 2, 3])
    assert left.path == ("1.png", "4.png", "5.png")
    assert left.class_name == ("a", "c")
    assert left.y.tolist() == [0, 1, 1]
    assert left.y_clean.tolist() == [0, 1, 1]
    assert left.taxonomy == {"a": ("top",), "c": ("top", "low")}
    for name in ("split", "query", "gallery", "group", "box", "weight"):
        np.testing.assert_array_equal(getattr(left, name), getattr(items, name)[[1, 4, 5]], err_msg=name)
    per_row = [f.name for f in dataclasses.fields(Items) if isinstance(getattr(items, f.name), np.ndarray)]
    assert all(len(getattr(left, name)) == 3 for name in per_row)
    assert len(items) == 6


def test_drop_keeps_classes_that_only_clean_labels_know(items):
    noisy_labels = dataclasses.replace(items, y=np.array([0, 0, 0, 0, 2, 2]))
    left = drop(noisy_labels, [0])
    assert left.class_name == ("a", "b", "c")
    assert left.y_clean.tolist() == [0, 1, 1, 2, 2]


def test_drop_of_features_and_of_nothing(items):
    features = Items("f", np.array([0, 1]), ("a", "b"), x=np.array([[1], [3]], np.float32))
    assert drop(features, [0]).x.tolist() == [[3]]
    assert drop(items, []).path == items.path
    with pytest.raises(LikewiseError, match="all 2 rows of f would be dropped"):
        drop(features, [1, 0])
    with pytest.raises(LikewiseError, match=r"rows must lie in 0\.\.5, got 2 to 6"):
        drop(items, [6, 2])


def pixel(image, at=(0, 0)):
    return image.getpixel(at)


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", message=".*fork.*")
        yield


@pytest.fixture
def save(tmp_path):
    def write(image, name="p.png", **options):
        image.save(tmp_path / name, **options)
        return str(tmp_path / name)

    return write


def assert_rgb(image, colour, at=(0, 0), slack=0):
    assert image.mode == "RGB"
    assert np.abs(np.subtract(image.getpixel(at), colour)).max() <= slack


def test_plain_modes(save):
    assert_rgb(read_image(save(Image.new("RGB", (3, 2), (1, 2, 3)))), (1, 2, 3))
    assert_rgb(read_image(save(Image.new("L", (3, 2), 77))), (77, 77, 77))
    assert_rgb(read_image(save(Image.new("1", (3, 2), 1))), (255, 255, 255))
    assert_rgb(read_image(save(Image.new("P", (3, 2), 0))), (0, 0, 0))
    assert_rgb(read_image(save(Image.new("YCbCr", (8, 8), (255, 128, 128)), "p.jpg")), (255, 255, 255), slack=2)


def test_cmyk(save):
    assert_rgb(
        read_image(save(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "p.jpg", quality=95)), (255, 0, 0), slack=6
    )


def test_transparent_parts_are_white(save):
    assert_rgb(read_image(save(Image.new("RGBA", (2, 2), (10, 20, 30, 0)))), (255, 255, 255))
    assert_rgb(read_image(save(Image.new("RGBA", (2, 2), (0, 0, 0, 128)))), (127, 127, 127), slack=1)
    assert_rgb(read_image(save(Image.new("LA", (2, 2), (0, 0)))), (255, 255, 255))
    assert_rgb(read_image(save(Image.new("LA", (2, 2), (9, 255)))), (9, 9, 9))


def test_transparent_palettes_are_white(save):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    for transparency in (0, b"\x00\xff"):
        seen = read_image(save(image, transparency=transparency))
        assert_rgb(seen, (255, 255, 255))
        assert_rgb(seen, (40, 50, 60), at=(1, 0))


def test_a_transparent_colour_is_white(save):
    seen = read_image(save(Image.new("RGB", (2, 2), (1, 2, 3)), transparency=(1, 2, 3)))
    assert_rgb(seen, (255, 255, 255))


@pytest.mark.parametrize("name", ["p.png", "p.tif"])
def test_16_bit_grey_keeps_its_range(save, name):
    values = np.array([[0, 257, 32896, 65535]], np.uint16)
    image = read_image(save(Image.fromarray(values), name))
    assert [image.getpixel((column, 0)) for column in range(4)] == [(0,) * 3, (1,) * 3, (128,) * 3, (255,) * 3]


def tiff_of_12_bits(grey, orientation=1):
    """Return a TIFF file with two values packed into three bytes."""
    (height, width), pairs = grey.shape, grey.reshape(-1, 2).astype(np.uint32)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], 1)
    data = packed.astype(np.uint8).tobytes()
    tags = {
        256: width,
        257: height,
        258: 12,
        259: 1,
        262: 1,
        273: 8,
        274: orientation,
        277: 1,
        278: height,
        279: len(data),
    }
    listed = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + listed + bytes(4)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_file_that_declares_12_bits_keeps_its_range(tmp_path, orientation):
    """Orientation 6 rotates the image, which must not lose the number of bits."""
    (tmp_path / "p.tif").write_bytes(tiff_of_12_bits(np.array([[0, 16], [2048, 4095]]), orientation))
    image = read_image(tmp_path / "p.tif")
    values = [image.getpixel(place)[0] for place in ((0, 0), (1, 0), (0, 1), (1, 1))]
    assert values == ([0, 1, 128, 255] if orientation == 1 else [128, 0, 255, 1])


def test_dark_16_bit_pictures_stay_dark(save):
    assert_rgb(read_image(save(Image.fromarray(np.full((2, 2), 514, np.uint16)))), (2, 2, 2))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (np.array([[0, 65535]], np.int32), [0, 255]),
        (np.array([[-1000, 1000000]], np.int32), [0, 255]),
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 128, 255]),
        (np.array([[0.0, 100.0, 255.0]], np.float32), [0, 100, 255]),
        (np.array([[-1.0, 0.0, 1.0]], np.float32), [0, 128, 255]),
        (np.array([[7e9, 7e9]], np.float32), [0, 0]),
    ],
)
def test_32_bit_grey(save, values, want):
    image = read_image(save(Image.fromarray(values), "p.tif"))
    assert [image.getpixel((column, 0))[0] for column in range(len(want))] == want


def test_exif_turns_the_picture(save):
    image = Image.new("RGB", (32, 16), "black")
    image.paste("white", (0, 0, 16, 16))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the left edge is up
    for name in ("p.jpg", "p.png", "p.tif"):
        seen = read_image(save(image, name, exif=exif))
        assert seen.size == (16, 32), name
        assert_rgb(seen, (255, 255, 255), at=(8, 4), slack=3)
        assert_rgb(seen, (0, 0, 0), at=(8, 28), slack=3)


def test_damaged_exif_leaves_the_picture(save):
    file = save(Image.new("RGB", (8, 8), "red"), "p.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_image(file).size == (8, 8)


@pytest.mark.parametrize("name", ["p.gif", "p.webp", "p.png"])
def test_moving_pictures_give_their_first_frame(save, name):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    lossless = {"lossless": True} if name == "p.webp" else {}
    file = save(frames[0], name, save_all=True, append_images=frames[1:], **lossless)
    assert_rgb(read_image(file), (255, 0, 0))


def test_a_mere_line_is_no_picture(save):
    file = save(Image.new("RGB", (301, 3)))
    with pytest.raises(BadImage, match="at most 100 times .* got 301 x 3"):
        read_image(file)
    assert read_image(file, (0, 0, 300, 3)).size == (300, 3)


def test_boxes_are_cut_from_the_upright_picture(save):
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8))
    file = save(image)
    cut = read_image(file, (2, 1, 5, 3))
    assert cut.size == (3, 2)
    assert pixel(cut) == (10, 10, 10)
    assert read_image(file, np.full(4, np.nan)).size == (8, 6)
    assert read_image(file, (-0.5, 0, 8.6, 6)).size == (8, 6)
    assert read_image(file, (1.5, 1.5, 1.75, 1.75)).size == (1, 1)
    for box in ((0, 0, 20, 6), (5, 0, 5, 6), (20, 20, 30, 30), (-5, 0, 3, 3), (np.nan, 0, 1, 1), (8.2, 0, 8.6, 3)):
        with pytest.raises(BadImage, match=r"p\.png: the box .*correct the box"):
            read_image(file, box)


def noisy(size=(64, 64)):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))


@pytest.mark.parametrize("name", ["p.jpg", "p.png", "p.webp", "p.bmp", "p.tif", "p.gif"])
def test_truncated_files_are_bad(save, tmp_path, name):
    save(noisy(), name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the TIFF reader also warns
        with pytest.raises(BadImage, match=rf"{name}: (the image cannot be decoded|this is not an image)"):
            read_image(tmp_path / name)


def test_every_damage_is_a_bad_image_or_a_picture(save, tmp_path):
    """Bytes overwritten at random: whatever the decoder does, nothing but BadImage comes out."""
    rng = np.random.default_rng(1)
    bad = 0
    for name in ("p.png", "p.gif", "p.webp", "p.tif", "p.jpg"):
        save(noisy((16, 16)), name)
        whole = np.frombuffer((tmp_path / name).read_bytes(), np.uint8)
        for _ in range(20):
            broken = whole.copy()
            broken[rng.integers(0, len(whole), 12)] = rng.integers(0, 256, 12)
            (tmp_path / name).write_bytes(broken.tobytes())
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    read_image(tmp_path / name)
            except BadImage:
                bad += 1
    assert bad > 20


def test_unusable_files_are_named(tmp_path):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("<html>not found</html>")
    (tmp_path / "folder.jpg").mkdir()
    for name, wrong in (
        ("empty.jpg", r"the file is empty \(0 bytes\)"),
        ("text.jpg", "this is not an image in a known format"),
        ("gone.jpg", "there is no such file"),
        ("folder.jpg", "(the file cannot be read|the file is empty)"),
    ):
        with pytest.raises(BadImage, match=f"{name}: {wrong}"):
            read_image(tmp_path / name)


def test_bombs_are_refused(tmp_path):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 999)) + chunk(b"IEND", b"")
    )
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(BadImage, match=r"bomb\.png: .* more pixels .* \(limit 178,"):
        read_image(tmp_path / "bomb.png")


def test_not_a_number_is_no_pixel(save):
    with pytest.raises(BadImage, match="it holds NaN or infinite pixels"):
        read_image(save(Image.fromarray(np.array([[np.nan, 1]], np.float32)), "p.tif"))
