"""Reads folders of images: CLASS/name.png, or OWNER/CLASS/name.png; with train and test above them if there are both.

Classes and owners are numbered in the order of their sorted names. Grey images have one channel, others three.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np

from airprune.data.files.base import FileParts, FileRequest
from airprune.data.samples import Array, Samples
from airprune.errors import InvalidValue
from airprune.text import printable

_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
_GREY = ("1", "L")
_MOST_DEPTH = 3  # folders: train, owner, class
_MOST_FOLDERS, _MOST_ENTRIES = 100, 1_000


def holds(path: Path) -> bool:
    return path.is_dir() and _has_image(path)


def _has_image(root: Path) -> bool:
    """True if an image is near the top; looks at few folders, since a user may name any."""
    folders = [(root, 0)]
    for _ in range(_MOST_FOLDERS):
        if not folders:
            return False
        folder, depth = folders.pop()
        try:
            inside = list(itertools.islice(os.scandir(folder), _MOST_ENTRIES))
        except OSError:
            continue
        if any(entry.is_file() and Path(entry.name).suffix.lower() in _ENDINGS for entry in inside):
            return True
        if depth < _MOST_DEPTH:
            below = sorted(entry.path for entry in inside if entry.is_dir(follow_symlinks=False))
            folders.extend((Path(path), depth + 1) for path in reversed(below))
    return False


def _images(folder: Path) -> Any:
    return (path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS and path.is_file())


def read(request: FileRequest) -> FileParts:
    root = request.path
    is_split = (root / "train").is_dir() and (root / "test").is_dir()
    folders = [root / "train", root / "test"] if is_split else [root]
    files = [sorted(_images(folder)) for folder in folders]
    depth = _depth(root, folders, files)
    channels = _channels([path for some in files for path in some], request.sample_shape)
    parts = [_samples(some, depth, channels, request.sample_shape) for some in files]
    return FileParts(train=parts[0], test=parts[1] if is_split else None)


def _depth(root: Path, folders: list[Path], files: list[list[Path]]) -> int:
    """Returns 2 for CLASS/name, 3 for OWNER/CLASS/name; refuses a mixture."""
    depths = {len(path.relative_to(folder).parts) for folder, some in zip(folders, files, strict=True) for path in some}
    if len(depths) != 1 or not depths <= {2, 3} or not all(files):
        rule = "must have images as CLASS/name.png or as OWNER/CLASS/name.png, all in one way"
        got = "depths of " + ", ".join(map(str, sorted(depths))) if all(files) else "a part without images"
        raise InvalidValue(printable(str(root)), rule, got)
    return depths.pop()


def _channels(paths: list[Path], shape: tuple[int, ...] | None) -> int:
    if shape is not None:
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise InvalidValue("as_dataset.sample_shape", "must be [1 or 3, height, width] for images", list(shape))
        return shape[0]
    from PIL import Image  # slow to import

    for path in paths:
        with _opened(Image, path) as image:
            if image.mode not in _GREY:
                return 3
    return 1


def _samples(paths: list[Path], depth: int, channels: int, shape: tuple[int, ...] | None) -> Samples:
    pixels: list[Array] = []
    first: tuple[int, ...] = (0, 0)
    for path in paths:
        image = _pixels(path, channels, shape)
        first = first if pixels else image.shape[:2]
        if image.shape[:2] != first:
            rule = f"must have the size of the first image, {first[1]} x {first[0]}"
            way_out = f"To resize: sample_shape = [{channels}, {first[0]}, {first[1]}]"
            raise InvalidValue(printable(str(path)), rule, f"{image.shape[1]} x {image.shape[0]}", way_out)
        pixels.append(image)
    x = np.stack(pixels)
    return Samples(
        x=x.astype(np.float32).reshape(len(x), *first, channels).transpose(0, 3, 1, 2) / np.float32(255),
        y=np.array([path.parent.name for path in paths]),
        owner=np.array([path.parent.parent.name for path in paths]) if depth == 3 else None,
    )


def _pixels(path: Path, channels: int, shape: tuple[int, ...] | None) -> Array:
    from PIL import Image

    with _opened(Image, path) as image:
        try:
            plain = image.convert("L" if channels == 1 else "RGB")
            return np.asarray(plain if shape is None else plain.resize((shape[2], shape[1])))
        except (OSError, SyntaxError, ValueError) as error:
            raise InvalidValue(printable(str(path)), "must be a whole image", str(error)) from None


def _opened(image: Any, path: Path) -> Any:
    try:
        return image.open(path)
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise InvalidValue(printable(str(path)), "must be an image", str(error)) from None
