"""The images of a dataset and their captions come from a folder or from a list in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import fingerprints
from ...model.datasets import Dataset
from ..runtime.train_error import TrainError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MOST_NAMED = 20


@dataclass(frozen=True)
class DatasetImage:
    """One image file: its pixels as shown (EXIF turned), the sha256 of its bytes and its caption.

    `controls` are the images that are edited into this one. Where they are cut as this one, their own width and
    height are those of it, to which they are stretched. What is transparent in one that `is_control` is black,
    unless it `keeps_colours`.
    """

    file: Path
    width: int
    height: int
    digest: str
    caption: str
    controls: tuple[DatasetImage, ...] = ()
    is_control: bool = False
    keeps_colours: bool = False


def open_image(file: Path) -> Image:
    """Returns the decoded image as it is shown. Raises TrainError."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as source:
            return ImageOps.exif_transpose(source)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TrainError(f"{file} cannot be read: {error}.") from error


def check_unchanged(file: Path, digest: str) -> None:
    """Raises TrainError when the file no longer has this sha256, which the cache knows it by."""
    try:
        same = fingerprints.of_file(file) == digest
    except OSError:
        same = False
    if not same:
        raise TrainError(f"{file} was changed or removed after the dataset was read. Type the same command again.")


def has_alpha(image: Image) -> bool:
    """Tells whether an image has an alpha channel or a transparent colour."""
    return "A" in image.getbands() or "transparency" in image.info


def is_opaque(file: Path) -> bool:
    """Tells by its header whether an image that can be read has no alpha channel."""
    from PIL import Image

    with Image.open(file) as image:
        return not has_alpha(image)


def read_images(
    place: Path, dataset: Dataset, known: dict[str, tuple[int, int]], skip: Callable[[str], None] | None
) -> list[DatasetImage]:
    """Returns the images of a folder or of a JSON file `{path: {"caption": …}}`, in the order of their paths.

    Those that cannot be read end the run, or are left out and told to `skip`. Raises TrainError.
    """
    listed = _listed(place) if place.suffix.lower() == ".json" and place.is_file() else None
    if listed is not None:
        files = [Path(name) for name in sorted(listed)]
    elif place.is_dir():
        files = sorted(path for path in _walk(place, dataset) if path.suffix.lower() in dataset.suffixes)
        if not dataset.captionless:
            files = [file for file in files if _caption_file(file, dataset).is_file()]
    else:
        raise TrainError(f"The dataset folder {place} does not exist or is not a folder.")
    if not files:
        with_text = "" if dataset.captionless else f" with a {dataset.caption_extension} file beside them"
        raise TrainError(f"The dataset {place} has no images ({', '.join(dataset.suffixes)}){with_text}.")
    measured, broken = _measured(files, known)
    pictures = [DatasetImage(file, *sizes, _caption(file, dataset, listed)) for file, sizes in measured.items()]
    if broken:
        names = _some(broken)
        if skip is None:
            raise TrainError(
                f"{len(broken)} of {len(files)} images in {place} cannot be read. Replace or remove them, or train "
                f"without them by --skip-unreadable: {names}"
            )
        if not pictures:
            raise TrainError(f"None of the {len(files)} images in {place} can be read: {names}")
        skip(f"{len(broken)} of {len(files)} images in {place} cannot be read and are left out: {names}")
    return pictures


def large_enough_images(
    pictures: list[DatasetImage], place: Path, dataset: Dataset, tell: Callable[[str], None] | None
) -> list[DatasetImage]:
    """Returns the images that are not too small for their dataset, and tells of the others.

    Raises TrainError where none is left.
    """
    left = [picture for picture in pictures if dataset.takes(picture.width, picture.height)]
    small = [f"{p.file} ({p.width} x {p.height})" for p in pictures if not dataset.takes(p.width, p.height)]
    if not left:
        raise TrainError(f"No image in {place} is as large as minimum_image_size asks: {_some(small)}")
    if small and tell is not None:
        count = f"{len(small)} of {len(pictures)}"
        tell(f"minimum_image_size leaves out {count} images in {place}: {_some(small)}")
    return left


def with_control_images(
    pictures: list[DatasetImage],
    dataset: Dataset,
    known: dict[str, tuple[int, int]],
    skip: Callable[[str], None] | None,
    *,
    stretched: bool = True,
) -> list[DatasetImage]:
    """Returns the images with their control images, which have their names but for the ending. Raises TrainError.

    Each is `stretched` to its picture or keeps its own size. A picture whose control image cannot be read is left out
    where `skip` is told so.
    """
    for folder in dataset.control_folders:
        pictures = _paired(pictures, Path(folder), known, skip, stretched, dataset)
    return pictures


def _paired(
    pictures: list[DatasetImage],
    folder: Path,
    known: dict[str, tuple[int, int]],
    skip: Callable[[str], None] | None,
    stretched: bool,
    dataset: Dataset,
) -> list[DatasetImage]:
    if not folder.is_dir():
        raise TrainError(f"The folder of control images {folder} does not exist or is not a folder.")
    there = {path.name: path for path in folder.iterdir() if path.suffix in SUFFIXES}
    found = _numbered(pictures, there) if dataset.numbered_controls else {}
    for picture in pictures if not dataset.numbered_controls else ():
        names = (f"{picture.file.stem}{suffix}" for suffix in SUFFIXES)
        found[picture.file] = [there[name] for name in names if name in there][:1]
    missing = [str(picture.file) for picture in pictures if not found[picture.file]]
    if missing:
        raise TrainError(
            f"{len(missing)} of {len(pictures)} pictures have no control image in {folder} (one of the same name, "
            f"{', '.join(SUFFIXES)}). Add it, or move the picture to a dataset without control_path: {_some(missing)}"
        )
    measured, broken = _measured([file for files in found.values() for file in files], known)
    pairs = [
        replace(
            picture,
            controls=(
                *picture.controls,
                *(_control(picture, file, measured[file], stretched, dataset) for file in found[picture.file]),
            ),
        )
        for picture in pictures
        if all(file in measured for file in found[picture.file])
    ]
    if broken:
        what = f"{len(broken)} of {len(pictures)} control images in {folder} cannot be read"
        if skip is None or not pairs:
            raise TrainError(f"{what}. Replace them, or train without them by --skip-unreadable: {_some(broken)}")
        skip(f"{what}; their pictures are left out: {_some(broken)}")
    return pairs


def _numbered(pictures: list[DatasetImage], there: Mapping[str, Path]) -> dict[Path, list[Path]]:
    """Of each picture the images that begin with its name, a number behind it ("cat.png", "cat_1.png"), in order.

    Each image belongs to the picture of the longest name. Raises TrainError for one without a number.
    """
    left = dict(there)
    found: dict[Path, list[Path]] = {}
    for picture in sorted(pictures, key=lambda one: len(one.file.name), reverse=True):
        stem = picture.file.stem
        files = [left.pop(name) for name in sorted(left) if name.startswith((f"{stem}.", f"{stem}_"))]
        numbers = {file: file.stem.rpartition("_")[2] for file in files if file.stem != stem}
        if wrong := next((file for file, number in numbers.items() if not number.isdigit()), None):
            raise TrainError(f"{wrong} begins with the name of {picture.file}, but has no number behind it.")
        files.sort(key=lambda file: int(numbers[file]) if file in numbers else -1)
        found[picture.file] = files
    return found


def _control(
    picture: DatasetImage, file: Path, measured: tuple[int, int, str], stretched: bool, dataset: Dataset
) -> DatasetImage:
    width, height, digest = measured
    size = (picture.width, picture.height) if stretched else (width, height)
    return DatasetImage(file, *size, digest, "", is_control=True, keeps_colours=dataset.control_buckets is not None)


def _some(names: list[str]) -> str:
    more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(names[:MOST_NAMED]) + more


def _listed(file: Path) -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(file.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise TrainError(f"The dataset file {file} cannot be read: {error}.") from error
    if not isinstance(content, dict) or not all(isinstance(entry, dict) for entry in content.values()):
        raise TrainError(f'The dataset file {file} is not of the form {{"path of a picture": {{"caption": "…"}}}}.')
    return content


def _walk(folder: Path, dataset: Dataset) -> Iterable[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if dataset.recursive and not path.name.startswith(".") and path.name != "_controls":
                yield from _walk(path, dataset)
        elif path.is_file() and not path.name.startswith("."):
            yield path


def _measured(
    files: Iterable[Path], known: dict[str, tuple[int, int]]
) -> tuple[dict[Path, tuple[int, int, str]], list[str]]:
    """Width, height and sha256 of the images, and what to say of those that cannot be read."""
    found: dict[Path, tuple[int, int, str]] = {}
    broken: dict[Path, str] = {}
    for file in files:
        try:
            found[file] = _measure(file, known)
        except (OSError, ValueError, SyntaxError) as error:
            broken[file] = f"{file} ({error})"
    return found, list(broken.values())


def _measure(file: Path, known: dict[str, tuple[int, int]]) -> tuple[int, int, str]:
    """(width, height, sha256) of an image; a new one is decoded, so that damage shows now and not at step 400."""
    from io import BytesIO

    from PIL import Image, UnidentifiedImageError

    content = file.read_bytes()
    digest = fingerprints.of_bytes(content)
    if digest in known:
        return (*known[digest], digest)
    try:
        with Image.open(BytesIO(content)) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            width, height = image.size
            image.load()
    except UnidentifiedImageError as error:
        raise ValueError("no picture" if content else "an empty file") from error
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    known[digest] = (height, width) if turned else (width, height)
    return (*known[digest], digest)


def _caption_file(file: Path, dataset: Dataset) -> Path:
    extension = dataset.caption_extension or ".txt"
    return file.with_suffix(extension if extension.startswith(".") else f".{extension}")


def _caption(file: Path, dataset: Dataset, listed: Mapping[str, Mapping[str, Any]] | None) -> str:
    entry = listed.get(str(file), {}) if listed is not None else {}
    if "caption" in entry:
        return _as_read(str(entry["caption"]), dataset)
    default = _as_read(dataset.default_caption, dataset)
    if dataset.captions == "default":
        return default
    if dataset.captions == "names":
        return file.stem.replace("_", " ").strip() or default
    path = _caption_file(file, dataset)
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        if dataset.first_line:
            return text.split("\n", 1)[0].strip()
        return _as_read(text, dataset) if text.strip() or not default else default
    except FileNotFoundError:
        return default
    except UnicodeDecodeError as error:
        raise TrainError(
            f"The caption {path} is not UTF-8 (byte {error.object[error.start]:#04x} at position {error.start}). "
            "Save it as UTF-8."
        ) from None
    except OSError as error:
        raise TrainError(f"The caption {path} cannot be read: {error.strerror or error}.") from error


def _as_read(text: str, dataset: Dataset) -> str:
    """The caption that a trainer makes of a text; ai-toolkit takes it apart at commas and joins it again."""
    return text.replace(",", ", ") if dataset.keeps_blanks else text.strip()
