"""What the command or the settings that a log shows leave undone of what needs less memory of the card."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from ..model.record import dataclass
from .lines import Lines
from .options import options_of

MOST = 3
_FAR = 400
_CALLED = re.compile(r"Command '\[(?P<list>.*?)(?P<end>\]' (?:returned|died)|$)")
_ITEM = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_SHELL = re.compile(
    r"(?:accelerate\s+launch|torchrun|deepspeed|python[\w.]*(?:\.exe)?)\b.*?[\w./\\-]+\.py\b"
    r"|[\w./\\-]+\.py +--\w"
)
_GOES_ON = ("\\", "^", "`")
_SCRIPT = re.compile(r"[\w.-]+\.py$")
# Settings as a trainer prints them, or as a config has them.
_SETTING = re.compile(r"^[\W_]*(?P<name>\w+)[\"']?\s*[:=]\s*[\"'(\[]*(?P<value>[\w.]+)")
# Of what a script trains when it is no network or embedding beside the model.
_PART = re.compile(r"lora|network|textual_inversion|control|adapter|lllite|leco|custom")
_FROM_FILE = ("config_file", "config", "train_config")
_OFF = ("false", "no", "none", "0")
_SMALL = 512
_COUNTS = (
    *("train_batch_size", "batch_size", "sample_batch_size", "vae_batch_size", "text_encoder_batch_size"),
    "num_validation_images",
)
_TO_LEAVE = ("highvram", "train_text_encoder", "use_ema")
_VALUED = {
    "mixed_precision": "fp16 or bf16",
    "optimizer_type": "AdamW8bit",
    "blocks_to_swap": "N",
    "vae_chunk_size": "32",
}
_OF_WHOLE = ("use_8bit_adam", "optimizer_type")  # next to nothing where a LoRA is trained
_OF_LORA = ("fp8_base",)


@dataclass(frozen=True)
class Command:
    """A training script with its options by their names; `whole` tells that nothing of it is missing or elsewhere."""

    script: str
    options: Mapping[str, str]
    whole: bool

    @property
    def trains_all(self) -> bool:
        """Whether the script trains a whole model."""
        taken = options_of(self.script)
        return "learning_rate" in taken and not _PART.search(self.script)


def command_of(lines: Lines, at: int) -> Command | None:
    """The command that a log shows: the launcher's words of it, else what was typed."""
    near = lines.between(at - _FAR, at + _FAR)
    text = " ".join(line.strip() for line in near[-2 * _FAR :])
    found = list(_CALLED.finditer(text)) if "Command '[" in text else []
    if found:
        items = [one or other for one, other in _ITEM.findall(found[-1]["list"])]
        return _command(items, whole=bool(found[-1]["end"]))
    starts = [place for place, line in enumerate(near) if ".py" in line or "accelerate" in line]
    for place in reversed(starts):
        if (typed := _typed(near, place)) is not None:
            return typed
    return None


def _typed(lines: Sequence[str], place: int) -> Command | None:
    words: list[str] = []
    ended = False
    for line in lines[place : place + 60]:
        part = line.strip().lstrip("> ")
        ended = not part.endswith(_GOES_ON)
        words += part.rstrip("\\^` ").split()
        if ended:
            break
    if not _SHELL.search(" ".join(words)):
        return None
    return _command([word.strip("'\"") for word in words], whole=ended)


def _command(items: Sequence[str], *, whole: bool) -> Command | None:
    script = next((place for place, item in enumerate(items) if _SCRIPT.search(item)), None)
    if script is None:
        return None
    options: dict[str, str] = {}
    name = ""
    for item in items[script + 1 :]:
        if item.startswith("--"):
            name, _, value = item[2:].partition("=")
            name = name.replace("-", "_")
            options[name] = value
        elif name and not options[name]:
            options[name] = item
    stem = PurePosixPath(items[script].replace("\\", "/")).name.removesuffix(".py")
    return Command(stem, options, whole and bool(options) and not any(one in options for one in _FROM_FILE))


def levers(command: Command | None, wanted: Sequence[str], lines: Lines, at: int) -> tuple[str, ...]:
    """Those of the options wanted that the log shows not to be used, in the trainer's own words."""
    by_command = [] if command is None else [one for name in wanted for one in _open(command, name)]
    settings = _settings(lines.between(at - _FAR, at))
    return tuple(dict.fromkeys([*by_command, *(one for name in wanted for one in _set(settings, name))]))[:MOST]


def _open(command: Command, name: str) -> Iterator[str]:
    taken, value = options_of(command.script), command.options.get(name)
    if (name in _OF_WHOLE and not command.trains_all) or (name in _OF_LORA and command.trains_all):
        return
    if name in _COUNTS or name == "resolution":
        number = int(value) if value is not None and value.isdecimal() else 0
        if name in _COUNTS and number > 1:
            yield f"--{name} 1 (now {number})"
        elif name == "resolution" and number > _SMALL:
            yield f"--resolution (now {number})"
    elif name in _TO_LEAVE:
        if value is not None and value.lower() not in _OFF:
            yield f"no --{name}"
    elif name == "mixed_precision" and value is not None and value.lower() in _OFF:
        yield f"--{name} {_VALUED[name]} (now {value})"
    elif name == "optimizer_type" and value is not None:
        if value.lower() in ("adamw", "adam", "prodigy"):
            yield f"--{name} {_VALUED[name]} (now {value})"
    elif value is None and name in taken and command.whole and not _done_by(name, command.options):
        yield f"--{name} {_VALUED.get(name, '')}".strip()


def _done_by(name: str, options: Mapping[str, str]) -> bool:
    """Whether another option does as much, or forbids it."""
    if name == "use_8bit_adam":
        return "optimizer_type" in options or options.get("optimizer", "adamw").lower() != "adamw"
    if name in ("cache_latents", "cache_text_encoder_outputs"):
        return f"{name}_to_disk" in options or "train_text_encoder" in options
    return name == "optimizer_type" and "use_8bit_adam" in options


def _settings(lines: Sequence[str]) -> Mapping[str, str]:
    found = (_SETTING.match(line) for line in lines if ":" in line or "=" in line)
    return {one["name"]: one["value"] for one in found if one is not None}


def _set(settings: Mapping[str, str], name: str) -> Iterator[str]:
    """What is written out in settings, not what is missing in them."""
    value = settings.get(name, "")
    if name in _COUNTS and value.isdecimal() and int(value) > 1:
        yield f"{name} 1 (now {value})"
    elif name in ("quantize", "low_vram", "gradient_checkpointing") and value.lower() in ("false", "no"):
        yield f"{name}: true"
