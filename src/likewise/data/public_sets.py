"""Public data sets as their authors distribute them: a reader per set, with the name of the set, and the code that they share."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from likewise.core.types import Items, LikewiseError
from likewise.data.class_folders import class_files, is_image, sub_folders, walk_images
from likewise.data.taxonomies import known


@dataclass(frozen=True)
class Original:
    """A public data set as its authors distribute it."""

    name: str
    origin: str  # end of errors: where the data comes from and how to unpack it
    images: int  # as published
    classes: int

    def folder(self, root: str) -> str:
        """Return the absolute path of root; raise if it is not a folder."""
        base = os.path.abspath(os.path.expanduser(root))
        if not os.path.isdir(base):
            raise LikewiseError(
                f"{self.name}: root must be the folder of the unpacked download, got {base}, which does not exist; {self.origin}"
            )
        return base

    def find(self, base: str, places: Sequence[str]) -> str | None:
        """Return the first of these paths below `base` that exists, or None."""
        return next((os.path.join(base, place) for place in places if os.path.exists(os.path.join(base, place))), None)

    def need(self, base: str, places: Sequence[str]) -> str:
        """Return the first of these paths below `base` that exists; raise if none does."""
        found = self.find(base, places)
        if found is None:
            wanted = os.path.basename(places[0].rstrip("/"))
            raise LikewiseError(
                f"{self.name}: {wanted} is missing; looked for {' and '.join(places)} in {base}. {self.origin}"
            )
        return found

    def lines(self, file: str) -> list[tuple[int, list[str]]]:
        """Return (line number, words) of every line that is not blank."""
        with open(file, encoding="utf-8-sig", errors="surrogateescape") as text:
            return [(number, line.split()) for number, line in enumerate(text, 1) if line.strip()]

    def words(self, file: str, count: int, skip: int = 0) -> list[list[str]]:
        """Return the words of every line after the first `skip`; raise unless each line has `count` words."""
        listed = self.lines(file)[skip:]
        for number, words in listed:
            if len(words) != count:
                raise LikewiseError(
                    f"{self.name}: every line of {os.path.basename(file)} must hold {count} words, got {len(words)} "
                    f"in line {number}; unpack the list again"
                )
        if not listed:
            raise LikewiseError(f"{self.name}: {os.path.basename(file)} must not be empty; unpack it again")
        return [words for _, words in listed]

    def check_listed(self, base: str, path: Iterable[str], lists: str) -> None:
        """Raise unless all listed files exist below `base`; `lists` names the list in the error."""
        missing = [name for name in path if not os.path.isfile(os.path.join(base, name))]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise LikewiseError(
                f"{self.name}: {lists} names {len(missing)} images that are missing below {base}: "
                f"{', '.join(missing[:3])}{more}; unpack all archives of the set"
            )

    def class_folders(self, base: str, top: str) -> list[tuple[str, str]]:
        """Return (class folder, path below `base`) of every image in the class folders of `top`; raise if there is none."""
        found = class_files(base, top)
        if not found:
            raise LikewiseError(
                f"{self.name}: {base}/{top} must hold class folders with images, got none. {self.origin}"
            )
        return found

    def image_paths(self, base: str, path: list[str], top: str, lists: str) -> list[str]:
        """Return the listed paths as they are below `base`: all may be in its folder `top`. Raise if an image is missing."""
        in_top = os.path.isdir(os.path.join(base, top, path[0].split("/")[0]))
        if in_top and not os.path.isfile(os.path.join(base, path[0])):
            path = [f"{top}/{file}" for file in path]
        self.check_listed(base, path, lists)
        return path

    def check_count(self, items: Items) -> Items:
        """Warn if the numbers of images and classes differ from the published ones; return the items."""
        if (len(items), items.classes) != (self.images, self.classes):
            warnings.warn(
                f"{self.name}: found {len(items):,} images of {items.classes:,} classes, but the published set has "
                f"{self.images:,} of {self.classes:,}; results on this copy are not comparable with published ones",
                stacklevel=3,
            )
        return items

    def items(
        self, root: str, path: Iterable[str], label: Sequence, names: dict, split: Iterable[str], **columns
    ) -> Items:
        """Return items from one label per image; classes are numbered in sorted order of the labels and named by `names`."""
        order = sorted(set(label))
        number = {key: place for place, key in enumerate(order)}
        items = Items(
            name=self.name,
            y=np.array([number[key] for key in label], np.int64),
            class_name=tuple(names[key] for key in order),
            path=tuple(path),
            root=root,
            split=np.array(list(split), "<U5"),
            **columns,
        )
        return self.check_count(items)


CUB200 = Original(
    "cub200",
    "The set is Caltech-UCSD Birds-200-2011 of Caltech: unpack CUB_200_2011.tgz and give the folder CUB_200_2011",
    images=11_788,
    classes=200,
)


def cub200(root: str) -> Items:
    """Birds of 200 species: class ids 1 to 100 train, 101 to 200 test.

    Paper: Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011; the split of Song et al., CVPR 2016.
    Reads the original lists (images.txt, image_class_labels.txt, classes.txt), or, without images.txt, the class folders
    below images/. Bounding boxes are not used. The taxonomy is that of WordNet.

    Args:
        root: the folder CUB_200_2011, or the one above it.
    """
    base = CUB200.folder(root)
    inner = CUB200.find(base, ["CUB_200_2011/images"])
    base = os.path.dirname(inner) if inner else base
    CUB200.need(base, ["images", "CUB_200_2011/images"])
    path, label, names = cub200_lists(base) if CUB200.find(base, ["images.txt"]) else cub200_folders(base)
    split = ["train" if one <= 100 else "test" for one in label]
    return CUB200.items(base, path, label, names, split, taxonomy=known("cub200", names.values()))


def cub200_lists(base: str) -> tuple[list[str], list[int], dict[int, str]]:
    """Return paths, class ids and class names from the original lists."""
    files = {name: CUB200.need(base, [name]) for name in ("images.txt", "image_class_labels.txt", "classes.txt")}
    place = dict(CUB200.words(files["images.txt"], 2))
    of_image = dict(CUB200.words(files["image_class_labels.txt"], 2))
    if place.keys() != of_image.keys():
        odd = sorted(place.keys() ^ of_image.keys())
        raise LikewiseError(
            f"cub200: images.txt and image_class_labels.txt must list the same image ids, but {len(odd)} are in one "
            f"of them only, such as {odd[0]}; unpack both again"
        )
    try:
        name = {int(label): class_name(text) for label, text in CUB200.words(files["classes.txt"], 2)}
        label = [int(of_image[image]) for image in place]
    except ValueError as error:
        raise LikewiseError(f"cub200: class ids must be numbers ({error}); unpack the lists again") from None
    unknown = set(label) - name.keys()
    if unknown:
        raise LikewiseError(f"cub200: classes.txt must name every class, and class {min(unknown)} is not in it")
    path = [f"images/{text}" for text in place.values()]
    CUB200.check_listed(base, path, "images.txt")
    return path, label, name


def cub200_folders(base: str) -> tuple[list[str], list[int], dict[int, str]]:
    """Return paths, class ids and class names from the class folders below images/."""
    found = CUB200.class_folders(base, "images")
    for folder, _ in found:
        if not folder.split(".")[0].isdigit():
            raise LikewiseError(
                f"cub200: class folders must be named like 001.Black_footed_Albatross, got {folder!r}; "
                "without the number the split is not known"
            )
    label = [int(folder.split(".")[0]) for folder, _ in found]
    return [file for _, file in found], label, {one: class_name(f) for one, (f, _) in zip(label, found, strict=True)}


def class_name(folder: str) -> str:
    """Return the class name of a folder: 001.Black_footed_Albatross -> Black_footed_Albatross."""
    return folder.partition(".")[2] or folder


CARS196 = Original(
    "cars196",
    "The set is Cars of Stanford University: unpack car_ims.tgz beside cars_annos.mat, or sort the images into "
    "images/<class>/",
    images=16_185,
    classes=196,
)
CARS196_TRAIN_IMAGES, CARS196_TRAIN_CLASSES = 8_054, 98


def cars196(root: str) -> Items:
    """Cars of 196 models: the first 98 classes train, the last 98 test.

    Paper: Krause et al., 3D Object Representations for Fine-Grained Categorization, 2013;
    the split of Song et al., CVPR 2016.
    Reads cars_annos.mat with car_ims/, or class folders below images/. Class ids of the first differ from
    the order of folder names in the second within each half, so the split is the same but class numbers differ. The taxonomy is
    the body type.

    Args:
        root: the folder with cars_annos.mat, or with images/.
    """
    base = CARS196.folder(root)
    notes = CARS196.find(base, ["cars_annos.mat", "devkit/cars_annos.mat"])
    if notes is None and CARS196.find(base, ["images"]) is None:
        CARS196.need(base, ["cars_annos.mat", "devkit/cars_annos.mat", "images/<class>/"])
    path, label, names = cars196_notes(base, notes) if notes else cars196_folders(base)
    split = ["train" if in_first_half(names[one], one) else "test" for one in label]
    items = CARS196.items(base, path, label, names, split, taxonomy=known("cars196-type", names.values()))
    train, train_classes = split.count("train"), sum(in_first_half(names[one], one) for one in set(label))
    wrong = items.classes == CARS196.classes and train_classes != CARS196_TRAIN_CLASSES
    if wrong or (len(items) == CARS196.images and train != CARS196_TRAIN_IMAGES):
        raise LikewiseError(
            f"cars196: the first half must be {CARS196_TRAIN_IMAGES:,} images of {CARS196_TRAIN_CLASSES} classes, got {train:,} "
            f"of {train_classes}; the class folders do not have their original names, so the split would differ: rename them"
        )
    return items


def in_first_half(name: str, label: int | str) -> bool:
    """Whether a class belongs to the training half: by class id, or by name if there is no id.

    By name, the first 98 classes are the makes from AM General to Eagle, so the rule also holds for a subset of the classes.
    """
    if isinstance(label, int):
        return label <= CARS196_TRAIN_CLASSES
    return name.casefold() < "f"


def cars196_notes(base: str, notes: str) -> tuple[list[str], list[int], dict[int, str]]:
    """Return paths, class ids and class names from cars_annos.mat."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        read = loadmat(notes, squeeze_me=True, struct_as_record=True)
        rows, classes = read["annotations"].reshape(-1), read["class_names"].reshape(-1)
        path = [str(name) for name in rows["relative_im_path"]]
        label = [int(one) for one in rows["class"]]
    except (MatReadError, ValueError, KeyError, TypeError, OSError, IndexError, NotImplementedError) as error:
        raise LikewiseError(
            f"cars196: {notes} must hold annotations (relative_im_path, class) and class_names, but reading it failed "
            f"({error}); download it again"
        ) from None
    names = {number: str(name) for number, name in enumerate(classes.tolist(), 1)}
    if not set(label) <= names.keys():
        raise LikewiseError(
            f"cars196: class_names has {len(names)} names, but the labels go up to {max(label)}; download it again"
        )
    CARS196.check_listed(base, path, "cars_annos.mat")
    return path, label, names


def cars196_folders(base: str) -> tuple[list[str], list, dict]:
    """Return paths, labels and class names from the class folders below images/."""
    found = CARS196.class_folders(base, "images")
    ids = all(folder.isdigit() for folder, _ in found)
    label = [int(folder) if ids else folder for folder, _ in found]
    return [file for _, file in found], label, {one: folder for one, (folder, _) in zip(label, found, strict=True)}


SOP = Original(
    "sop",
    "The set is Online Products of Stanford University: unpack Stanford_Online_Products.zip and give that folder",
    images=120_053,
    classes=22_634,
)
SOP_HEADER = ["image_id", "class_id", "super_class_id", "path"]


def sop(root: str) -> Items:
    """Products from web shops; a class is a product, its ancestor one of 12 kinds (bicycle, cabinet, ...).

    Paper: Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    Reads Ebay_train.txt and Ebay_test.txt, in root or Info_Files/; the images are in root or images/.

    Args:
        root: the folder Stanford_Online_Products, or the one above it.
    """
    base = SOP.folder(root)
    base = SOP.find(base, ["Stanford_Online_Products"]) or base
    files = {name: f"Ebay_{name}.txt" for name in ("train", "test")}
    listed = {name: sop_list(SOP.need(base, [file, f"Info_Files/{file}"])) for name, file in files.items()}
    label, path = (list(column) for column in zip(*listed["train"], *listed["test"], strict=True))
    split = [name for name, lines in listed.items() for _ in lines]
    kind = {one: file.split("/")[0].removesuffix("_final") for one, file in zip(label, path, strict=True)}
    path = SOP.image_paths(base, path, "images", " with ".join(files.values()))
    names = {one: str(one) for one in label}
    taxonomy = {names[one]: (above,) for one, above in kind.items()}
    words = {name: above.replace("_", " ") for name, (above,) in taxonomy.items()}
    return SOP.items(base, path, label, names, split, taxonomy=taxonomy, class_words=words)


def sop_list(file: str) -> list[tuple[int, str]]:
    """Return (class id, path) of every image in a list."""
    listed = SOP.words(file, 4)
    if listed[0] != SOP_HEADER:
        raise LikewiseError(
            f"sop: the first line of {os.path.basename(file)} must be '{' '.join(SOP_HEADER)}', got '{' '.join(listed[0])}'; "
            "unpack the list again"
        )
    if len(listed) == 1:
        raise LikewiseError(f"sop: {os.path.basename(file)} must list at least one image, got none; unpack it again")
    try:
        return [(int(words[1]), words[3]) for words in listed[1:]]
    except ValueError as error:
        raise LikewiseError(
            f"sop: class_id in {os.path.basename(file)} must be a number ({error}); unpack it again"
        ) from None


INSHOP = Original(
    "inshop",
    "The set is the In-Shop Clothes Retrieval Benchmark of DeepFashion (CUHK): "
    "unpack its Eval (or Anno) list and img.zip",
    images=52_712,
    classes=7_982,
)
INSHOP_LIST = "list_eval_partition.txt"
INSHOP_HEADER = ["image_name", "item_id", "evaluation_status"]


def inshop(root: str) -> Items:
    """Garments on models; a class is an item. The test rows are divided into queries and gallery.

    Paper: Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval, CVPR 2016.
    Reads list_eval_partition.txt in root, Eval/ or Anno/; its paths start from root or Img/.

    Args:
        root: the folder of the benchmark, with img/ or Img/img/.
    """
    base = INSHOP.folder(root)
    listed = inshop_list(INSHOP.need(base, [INSHOP_LIST, f"Eval/{INSHOP_LIST}", f"Anno/{INSHOP_LIST}"]))
    path, label, status = (list(column) for column in zip(*listed, strict=True))
    path, status = INSHOP.image_paths(base, path, "Img", INSHOP_LIST), np.array(status)
    return INSHOP.items(
        base,
        path,
        label,
        {item: item for item in label},
        np.where(status == "train", "train", "test"),
        query=status == "query",
        gallery=status == "gallery",
    )


def inshop_list(file: str) -> list[tuple[str, str, str]]:
    """Return (image, item, status) of every line below the header. The line with the count above it is ignored."""
    lines = INSHOP.lines(file)
    start = next((place for place, (_, words) in enumerate(lines[:2]) if words == INSHOP_HEADER), None)
    if start is None:
        raise LikewiseError(
            f"inshop: the first or second line of {INSHOP_LIST} must be '{' '.join(INSHOP_HEADER)}'; unpack the list again"
        )
    listed = INSHOP.words(file, 3, skip=start + 1)
    for (number, _), words in zip(lines[start + 1 :], listed, strict=True):
        if words[2] not in ("train", "query", "gallery"):
            raise LikewiseError(
                f"inshop: evaluation_status must be train, query or gallery, got {words[2]!r} in {INSHOP_LIST} line {number}; "
                "unpack the list again"
            )
    return [(image, item, status) for image, item, status in listed]


MARKET1501 = Original(
    "market1501",
    "The set is Market-1501 (Tsinghua University): unpack Market-1501-v15.09.15.zip",
    images=36_036,
    classes=1_503,
)
MARKET1501_FOLDERS = {"bounding_box_train": "train", "query": "query", "bounding_box_test": "gallery"}
MARKET1501_FILE = r"(-1|\d+)_c(\d+)"  # person and camera: 0002_c1s1_000451_03.jpg
MARKET1501_OTHERS = {-1: "junk", 0: "distractor"}  # class names of numbers that are not a person


def market1501(root: str) -> Items:
    """People in front of six cameras; a class is a person. The test rows are divided into queries and gallery.

    Paper: Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015.
    Reads bounding_box_train/, query/ and bounding_box_test/; person and camera are in the file names (0002_c1s1_000451_03.jpg),
    also as DukeMTMC-reID writes them (0002_c1_f0044158.jpg). Person 0 are distractors: gallery images of no query. Person -1 is
    junk: no query counts these images as right or wrong.

    Args:
        root: the folder of the benchmark, with bounding_box_train/.
    """
    base = MARKET1501.folder(root)
    found = [one for folder in MARKET1501_FOLDERS for one in market1501_folder(base, folder)]
    path, person, camera, status = (list(column) for column in zip(*found, strict=True))
    return MARKET1501.items(
        base,
        path,
        person,
        {one: MARKET1501_OTHERS.get(one, f"{one:04d}") for one in person},
        np.where(np.array(status) == "train", "train", "test"),
        query=np.array(status) == "query",
        gallery=np.array(status) == "gallery",
        camera=np.array(camera),
        junk=np.array(person) == -1,
    )


def market1501_folder(base: str, folder: str) -> list[tuple[str, int, str, str]]:
    """Return (image, person, camera, status) of every image of a folder, sorted by file name."""
    files = sorted(filter(is_image, os.listdir(MARKET1501.need(base, [folder]))))
    listed = []
    for file in files:
        words = re.match(MARKET1501_FILE, file)
        if words is None:
            raise LikewiseError(
                f"market1501: a file name must begin with person and camera, as 0002_c1s1_000451_03.jpg, got {folder}/{file}; "
                "unpack the set again"
            )
        listed.append((f"{folder}/{file}", int(words[1]), f"c{words[2]}", MARKET1501_FOLDERS[folder]))
    if not listed:
        raise LikewiseError(f"market1501: {folder} must hold images, got none; unpack the set again")
    return listed


INATURALIST = Original(
    "inaturalist",
    "The set is iNaturalist 2018 of the FGVC5 competition: unpack train_val2018.tar.gz, and beside it the "
    "Inat_dataset_splits published with Smooth-AP; for ranks above the species also categories.json",
    images=461_939,
    classes=8_142,
)
CATEGORY_FILES = ["categories.json", "val2018.json", "train2018.json"]
"""Files of the competition that may have the ranks of every species, the smallest first."""

RANK_NAMES = ("phylum", "class", "order", "family", "genus")
"""Ranks of the taxonomy below the iconic group, coarsest first."""

ClassKey = tuple[str, int, str]
"""Iconic group, number and name of a class, by which classes are sorted."""


def inaturalist(root: str) -> Items:
    """Species in a taxonomy: 14 iconic groups (Aves, Plantae, ...), and below them phylum, class, order, family and genus.

    Paper: Van Horn et al., The iNaturalist Species Classification and Detection Dataset, CVPR 2018;
    the split of Brown et al., Smooth-AP, ECCV 2020.
    Reads Inaturalist_train_set1.txt and Inaturalist_test_set1.txt, in root or Inat_dataset_splits/. Without these
    lists: the class folders train_val2018/<kind>/<class>/, the first half of the classes train, the second test.
    Reads the ranks from categories.json, or from the categories of val2018.json or train2018.json, in root (57 classes, 272
    orders, 1,118 families, 4,401 genera), and the names of the species. Without them, the taxonomy has only the iconic groups.

    Args:
        root: the folder with train_val2018/.
    """
    base = INATURALIST.folder(root)
    lists = {name: f"Inaturalist_{name}_set1.txt" for name in ("train", "test")}
    places = {name: [f"Inat_dataset_splits/{file}", file] for name, file in lists.items()}
    if any(INATURALIST.find(base, place) for place in places.values()):
        path, split = [], []
        for name, place in places.items():
            files = [
                " ".join(words).removeprefix("./") for _, words in INATURALIST.lines(INATURALIST.need(base, place))
            ]
            path += files
            split += [name] * len(files)
        label = [class_of(file, split[row], lists) for row, file in enumerate(path)]
        INATURALIST.check_listed(base, path, " with ".join(lists.values()))
    else:
        path, label = inaturalist_folders(base)
        order = sorted(set(label))
        first = set(order[: len(order) // 2])
        split = ["train" if one in first else "test" for one in label]
    names = {one: f"{one[0]}/{one[2]}" for one in label}
    categories = read_categories(base)
    found = {name: None if categories is None else category_of(one, categories) for one, name in names.items()}
    taxonomy = {name: (one[0], *(() if (ranks := found[name]) is None else ranks[:-1])) for one, name in names.items()}
    words = {name: one[-1] for name, one in found.items() if one is not None}
    return INATURALIST.items(base, path, label, names, split, taxonomy=taxonomy, class_words=words or None)


def read_categories(base: str) -> dict[int, tuple[str, ...]] | None:
    """Return category number -> its ranks, coarsest first, and the species, from the first file that has them; else None."""
    for name in CATEGORY_FILES:
        file = os.path.join(base, name)
        if not os.path.isfile(file):
            continue
        try:
            with open(file, encoding="utf-8-sig") as text:
                content = json.load(text)
            listed = content if isinstance(content, list) else content["categories"]
            if all(rank in category for category in listed for rank in RANK_NAMES):
                return {int(one["id"]): tuple(str(one[rank]) for rank in (*RANK_NAMES, "name")) for one in listed}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LikewiseError(
                f"inaturalist: {name} must be JSON with a list of categories, each with its id, got an error ({error!r}); "
                "unpack it again, or remove it"
            ) from None
    return None  # the first release of the competition hid the ranks


def category_of(one: ClassKey, categories: dict[int, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the ranks and the species of a class; raise if the list of categories does not have it."""
    if one[1] not in categories:
        raise LikewiseError(
            f"inaturalist: the list of categories must have every class, but {one[0]}/{one[2]} is missing; use the list of 2018"
        )
    return categories[one[1]]


def inaturalist_folders(base: str) -> tuple[list[str], list[ClassKey]]:
    """Return paths and class keys from the class folders."""
    top = os.path.basename(INATURALIST.need(base, ["train_val2018", "train2018"]))
    kinds = sub_folders(os.path.join(base, top))
    folders = [f"{top}/{kind}/{name}" for kind in kinds for name in sub_folders(os.path.join(base, top, kind))]
    path = [file for _, file in walk_images(base, folders).images]
    if not path:
        raise LikewiseError(
            f"inaturalist: {base}/{top} must hold <kind>/<class>/ folders with images, got none. {INATURALIST.origin}"
        )
    return path, [class_key(*file.split("/")[1:3]) for file in path]


def class_of(file: str, split: str, lists: dict[str, str]) -> ClassKey:
    """Return the class key of a path in the list of a split."""
    words = file.split("/")
    if len(words) < 3:
        raise LikewiseError(
            f"inaturalist: {lists[split]} must list <kind>/<class>/<image>, got {file!r}; unpack it again"
        )
    return class_key(words[-3], words[-2])


def class_key(kind: str, name: str) -> ClassKey:
    """Return a sort key of a class: by kind, then by number if the name is a number (as in 2018), then by name."""
    return kind, int(name) if name.isdigit() else -1, name


IMAGENET = Original(
    "imagenet",
    "The set is ILSVRC 2012 of image-net.org: unpack ILSVRC2012_img_train.tar, and the archive of each class into "
    "train/<wnid>/",
    images=1_281_167,
    classes=1_000,
)


def imagenet(root: str) -> Items:
    """The training images of ImageNet-1k: classes sorted by WordNet id, the first half train, the second half test.

    Paper: Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015.
    Reads train/nXXXXXXXX/; a val/ beside it is not used. The class name is the WordNet id.

    Args:
        root: the folder with train/, or with ILSVRC/Data/CLS-LOC/train/.
    """
    base = IMAGENET.folder(root)
    base = os.path.dirname(IMAGENET.need(base, ["train", "ILSVRC/Data/CLS-LOC/train", "Data/CLS-LOC/train"]))
    found = IMAGENET.class_folders(base, "train")
    label = [name for name, _ in found]
    names = {name: name for name in label}
    for name in names:
        if not re.fullmatch(r"n\d{8}", name):
            raise LikewiseError(
                f"imagenet: class folders must be named by WordNet id such as n01440764, got {name!r} in {base}/train; "
                "rename them"
            )
    first = set(sorted(names)[: len(names) // 2])
    split = ["train" if name in first else "test" for name in label]
    return IMAGENET.items(base, [file for _, file in found], label, names, split)
