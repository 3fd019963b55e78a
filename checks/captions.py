"""Captions that cannot be read, and pictures that have none."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Checkout, DatasetFolder, Finding, Run, found
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import Unestablished, prevents, rule
from ..doctor.trainers import trainer_of
from .keys.values import BEFORE

_TEXTS = (".txt", ".caption")
# the families whose prompts are JSON or may be, as their makers describe them
_PROMPTS_IN_JSON = ("ideogram", "flux2")


@rule("DAT003", "error", "caption-not-utf8")
@prevents("UnicodeDecodeError", r"'utf-8' codec can't decode byte 0x\w+ in position \d+")
def caption_not_utf8(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A caption that is saved in another encoding than UTF-8.

    What: The trainer reads captions as UTF-8. A caption of a picture holds a byte that is none there: a curly quote
    or an accent in Windows-1252 (0x92, 0xe9), or the whole file is UTF-16, GBK or the like.
    Why: ai-toolkit opens a caption when it encodes it: while text embeddings are cached, after the model was loaded
    and all latents were encoded, or in the middle of the first epoch. sd-scripts and musubi-tuner stop at it, too;
    SimpleTuner logs a line and goes on without the caption.
    Repair: Save it as UTF-8. What begins with a byte-order mark is surely UTF-16; what may be Windows-1252 is shown
    first. Two bytes beyond ASCII beside each other may be many encodings, and no repair is offered.
    Upstream: https://github.com/ostris/ai-toolkit/issues/113
    Signature: UnicodeDecodeError: 'utf-8' codec can't decode byte 0x92 in position 17: invalid start byte;
    Could not read caption file
    """
    if not any(folder.garbled for folder in datasets):
        _require_read(run, datasets)
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        written = run.written(f"{folder.key}/metadata_file")  # sd-scripts takes the captions from there
        if not folder.garbled or dataset is None or dataset.captions != "files" or written is not None:
            continue
        first = folder.garbled[0]
        yield found(
            run.where(f"{folder.key}/folder_path"),
            "The caption {path} is not UTF-8: byte {byte} in line {line}, at position {position}."
            if len(folder.garbled) == 1
            else "{count} captions in {folder} are not UTF-8; the first, {path}, has byte {byte} in line {line}.",
            otherwise=_ends(run),
            evidence={"folder": folder.path, "captions": [one.path for one in folder.garbled]},
            severity="warning" if trainer_of(run.trainer).skips_garbled else None,
            path=first.path,
            byte=f"0x{first.byte:02x}",
            line=first.line,
            position=first.position,
            count=len(folder.garbled),
        )


def _require_read(run: Run, datasets: tuple[DatasetFolder, ...]) -> None:
    """Raises Unestablished where texts lie beside the pictures and none is a caption by its ending."""
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        if dataset is None or dataset.captions != "files" or any(image.caption for image in folder.images):
            continue
        if any(folder.captions.get(ending) for ending in _TEXTS):
            raise Unestablished(f"no text in {folder.path} ends as the config says of captions, so none was read")


def _ends(run: Run) -> str:
    trainer = trainer_of(run.trainer)
    if run.by_runner:
        return BEFORE
    if trainer.skips_garbled:
        return "The trainer logs 'Could not read caption file' and goes on without the caption."
    if not trainer.garbled_late:
        return "The run ends with UnicodeDecodeError when it reads the captions."
    if run.recipe.cache_text_embeddings:
        return "The run ends with UnicodeDecodeError while it encodes the captions, after the model was loaded."
    return "The run ends with UnicodeDecodeError at the step that takes this picture, in the first epoch."


@rule("DAT004", "warning", "captions-missing", trainers=("ai-toolkit", RUNNER))
def captions_missing(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """Pictures without a caption.

    What: A picture has no file of its name that ends in caption_ext, or there is nothing in it, and there is no
    default_caption. Datasets without a single caption are passed over where there is a trigger word: that is a way
    to train.
    Why: ai-toolkit says nothing and takes an empty caption (with the trigger word, if there is one), and so does
    `zdoctor train`. Of captions that end in .caption they read none while caption_ext is .txt. With a config of
    musubi-tuner, `zdoctor train` leaves the picture out, as musubi-tuner does.
    Repair: Name the ending that the captions have, write the missing ones, or set default_caption.
    Upstream: toolkit/dataloader_mixins.py load_caption (27a03a91)
    Signature: None; the run trains, and the captions have no say.
    """
    if run.recipe.unload_text_encoder:
        raise Unestablished("captions are not read, see TRN006")
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        if dataset is None or dataset.default_caption or dataset.is_regularisation or dataset.caption_dropout >= 1:
            continue
        if dataset.captions != "files":
            continue
        missing = [image for image in folder.images if not image.caption]
        total, extension = len(folder.images), dataset.caption_extension
        others = (one for one in _TEXTS if one != extension.lower())
        instead = next((one for one in others if 2 * folder.captions.get(one, 0) > max(total, 1)), None)
        alone = not (run.recipe.trigger_word or run.written(f"{folder.key}/trigger_word"))
        message = _uncaptioned(folder, len(missing), instead is not None, alone)
        if message is None:
            continue
        left_out = bool(missing) and not dataset.captionless
        new = instead if len(missing) == total else None
        yield found(
            run.where(f"{folder.key}/caption_ext"),
            message,
            otherwise="They are left out, without a message."
            if left_out
            else "They are trained with {caption}, without a message.",
            evidence={"missing": len(missing), "blank": folder.blank, "new": new, "pointer": _ending(run, folder)},
            folder=folder.path,
            extension=extension,
            total=total,
            first=missing[0].path if missing else None,
            caption="an empty caption" if alone else "the trigger word alone",
        )


def _uncaptioned(folder: DatasetFolder, missing: int, is_elsewhere: bool, alone: bool) -> str | None:
    """What is said of `missing` pictures without a caption; None where that is a way to train."""
    total = len(folder.images)
    if total and missing == total and is_elsewhere:
        return "No picture in {folder} has a caption that ends in {extension}, but there are {new} files."
    if total and missing + folder.blank == total:
        words = "No picture in {folder} has a caption, and there is no trigger_word and no default_caption."
        return words if alone else None
    if missing > 1:
        return "{missing} of {total} pictures in {folder} have no caption, {first} among them."
    if missing:
        return "One of {total} pictures in {folder} has no caption: {first}."
    if folder.blank > 1:
        return "{blank} captions in {folder} are empty files."
    return "One caption in {folder} is an empty file." if folder.blank else None


def _ending(run: Run, folder: DatasetFolder) -> str:
    """The pointer of the key that says how ai-toolkit's captions end."""
    old = f"{folder.key}/caption_type"
    return run.pointer(f"{folder.key}/caption_ext" if run.written(old) is None else old)


@rule("DAT007", "warning", "captions-in-json", trainers=("ai-toolkit", RUNNER, "sd-scripts", "musubi-tuner"))
def captions_in_json(run: Run, datasets: tuple[DatasetFolder, ...], checkout: Checkout | None) -> Iterator[Finding]:
    """Captions that are JSON where the trainer takes any caption for plain text.

    What: caption_ext (caption_extension) is json, and there are such files beside the pictures. Models whose prompts
    are JSON (Ideogram 4, Flux.2) are passed over.
    Why: None of these trainers looks into them: the braces, quotes and key names are part of the caption that is
    trained. ai-toolkit took the "caption" out of such a file up to 2026-06-06; where a checkout from before is at
    hand, nothing is said. sd-scripts takes the first line alone, often nothing but a brace.
    Repair: Write the captions as plain text into .txt files and name that ending. For ai-toolkit one JSON file with
    the paths of the pictures as its keys and the caption of each below "caption" does as well, as the dataset_path.
    Upstream: ai-toolkit toolkit/dataloader_mixins.py load_caption (41157b46, 27a03a91); sd-scripts
    library/train_util.py read_caption (48d368fa); musubi-tuner dataset/datasources.py get_caption
    Signature: None; the run trains, and prompts in plain words are not what it was trained on.
    """
    reads_json = not run.by_runner and checkout is not None and checkout.json_captions
    if reads_json or (run.recipe.architecture or "").startswith(_PROMPTS_IN_JSON):
        return
    for folder in datasets:
        dataset = run.recipe.dataset(folder.key)
        if dataset is None or dataset.captions != "files" or dataset.caption_extension.lower() != ".json":
            continue
        described = sum(image.caption for image in folder.images)
        other_file = run.written(f"{folder.key}/metadata_file") is not None
        if dataset.caption_dropout >= 1 or not described or other_file:
            continue
        new = ".txt" if 2 * folder.captions.get(".txt", 0) > len(folder.images) else None
        written = [f"{folder.key}/{name}" for name in ("caption_type", "caption_ext", "caption_extension")]
        yield found(
            run.where(next((key for key in written if run.written(key) is not None), written[-1])),
            "{captions} captions in {folder} end in .json; the trainer takes each of them as plain text."
            if described > 1
            else "The caption in {folder} ends in .json; the trainer takes it as plain text.",
            otherwise="Its first line is trained, often a brace alone, without a message."
            if dataset.first_line or trainer_of(run.trainer).first_line
            else "Braces, quotes and key names are trained as words of the caption, without a message.",
            evidence={"captions": described, "new": new, "pointer": _ending(run, folder)},
            folder=folder.path,
        )
