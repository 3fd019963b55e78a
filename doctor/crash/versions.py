"""Names that a package has only in some of its versions: what an ImportError, an AttributeError or a TypeError means.

maintenance/mine_names.py writes `names/PACKAGE.json`: for each module, each "Class.method()" and each "Class object",
the names that some versions lack, by the first version that has them and the first that has them no more ("-" where
all mined ones do). A trainer's versions are days; Python's own modules stand below "python".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..model.crashes import Failure, Known
from .owners import MODULES, TRAINERS
from .owners import owner as owner_of

NAMES = Path(__file__).with_name("names")
# What asks a module, or a function, for a name.
_ASKED = tuple(
    map(
        re.compile,
        (
            r"model type [`'\"](?P<name>\w+)[`'\"] but (?P<kind>Transformers) does not recognize",
            r"cannot import name ['\"](?P<name>\w+)['\"] from ['\"](?P<owner>[\w.]+)['\"](?! \(unknown location)",
            r"(?P<module>No module) named ['\"](?P<owner>\w[\w.]*)\.(?P<name>\w+)['\"]",
            r"^(?P<only>No module) named ['\"](?P<name>\w+)['\"]",
            r"(?P<thing>['\"]|\b(?=[A-Z]\w+ object))(?P<owner>[A-Z]\w*)['\"]? (?:object )?has no attribute "
            r"['\"](?P<name>\w+)",
            r"module ['\"]?(?P<owner>\w[\w.]*?)['\"]? has no attribute ['\"]?(?P<name>\w+)",
            r"(?P<owner>(?:[A-Z]\w+\.)?\w+\(\)) got (?:an )?unexpected keyword argument ['\"](?P<name>\w+)['\"]",
        ),
    )
)
_SOURCES = {
    "PIL": "https://github.com/python-pillow/Pillow/releases",
    "ComfyUI": "https://github.com/Comfy-Org/ComfyUI",
    "DiffSynth-Studio": "https://github.com/modelscope/DiffSynth-Studio",
    "OneTrainer": "https://github.com/Nerogar/OneTrainer",
    "SimpleTuner": "https://github.com/bghira/SimpleTuner",
    "ai-toolkit": "https://github.com/ostris/ai-toolkit",
    "bitsandbytes": "https://github.com/bitsandbytes-foundation/bitsandbytes/releases",
    "controlnet_aux": "https://github.com/huggingface/controlnet_aux/releases",
    "diffusion-pipe": "https://github.com/tdrussell/diffusion-pipe",
    "gguf": "https://github.com/ggml-org/llama.cpp/tree/master/gguf-py",
    "gradio_client": "https://github.com/gradio-app/gradio/releases",
    "imageio": "https://github.com/imageio/imageio/releases",
    "kohya_ss": "https://github.com/bmaltais/kohya_ss",
    "open_clip": "https://github.com/mlfoundations/open_clip/releases",
    "xformers": "https://github.com/facebookresearch/xformers/releases",
    "deepspeed": "https://github.com/deepspeedai/DeepSpeed/releases",
    "gradio": "https://github.com/gradio-app/gradio/releases",
    "musubi-tuner": "https://github.com/kohya-ss/musubi-tuner",
    "numpy": "https://github.com/numpy/numpy/releases",
    "quanto": "https://github.com/huggingface/optimum-quanto/releases",
    "python": "https://docs.python.org/3/whatsnew/",
    "sd-scripts": "https://github.com/kohya-ss/sd-scripts",
    "torch": "https://github.com/pytorch/pytorch/releases",
    "torchao": "https://github.com/pytorch/ao/releases",
    "torchaudio": "https://github.com/pytorch/audio/releases",
    "torchvision": "https://github.com/pytorch/vision/releases",
}
_HUGGING_FACE = "https://github.com/huggingface/{}/releases"
INSTALLED_AS = {"PIL": "pillow", "quanto": "optimum-quanto"}


class Lived(NamedTuple):
    """The first version that has a name, and the first without it again; None where no mined one lacks it."""

    since: str | None
    gone: str | None
    before: str | None  # the version before `since`


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def by_version(failure: Failure, versions: Mapping[str, str]) -> Known | None:
    """What is known of a name that the failure says is not there. `versions` are those that the log tells of."""
    message = " ".join(failure.message.split())
    for pattern in _ASKED:
        if (asked := pattern.search(message)) is not None:
            groups, name = asked.groupdict(""), asked["name"]
            owner = groups.get("owner", "") + " object" * ("thing" in groups)
            owner = "python" if groups.get("only") else "transformers.models" if groups.get("kind") else owner
            while groups.get("module") and "." in owner and not any(lived(owner, name)):
                owner, _, name = owner.rpartition(".")  # the whole package of that module may be lacking
            return _told(owner, name, failure, versions)
    return None


def lived(owner: str, name: str) -> Iterator[tuple[str, Lived]]:
    """Of each package that has such an owner: its name, and how long it had the name."""
    root = owner.partition(".")[0]
    anyone = owner.endswith(("()", " object"))
    for package in sorted(_packages()) if anyone else [MODULES.get(root, root if root in _packages() else "python")]:
        order, names = _names(package)
        asked = f"python.{owner}" if package == "python" != root and not anyone else owner
        if (spans := names.get(asked, {}).get(name)) is not None:
            since, gone = (None if version == "-" else version for version in spans)
            yield package, Lived(since, gone, order[order.index(since) - 1] if since else None)


def _told(owner: str, name: str, failure: Failure, versions: Mapping[str, str]) -> Known | None:
    found = list(lived(owner, name))
    if owner.endswith(("()", " object")):  # which a trainer's code shares with many others
        files = " ".join(frame.file for frame in failure.frames).lower()
        found = [one for one in found if one[0] not in TRAINERS or one[0].lower() in files]
    if len(found) != 1:
        return None
    mined, span = found[0]
    package = INSTALLED_AS.get(mined, mined)
    here = versions.get(package.replace("_", "-"), "")
    young = span.since is not None and (not here or release(here) < release(span.since))
    old = span.gone is not None and (not here or release(here) >= release(span.gone))
    if not (young or old):
        return None
    what = _called(owner, name)
    said = [f"{package} {span.since} has {what}, {span.before} not yet."] if young else []
    said += [f"{package} {span.gone} has {what} no more."] if old else []
    asking = (owner_of(frame) for frame in reversed(failure.frames))
    asks_itself = mined in TRAINERS and next((one for one in asking if one != "torch"), "") == mined
    cause = " ".join((*said, _OWN if asks_itself else _installed(here, young=young, old=old)))
    do = _cure(package, span, _asker(failure, mined), old=old and not asks_itself, young=young)
    alone = old and not young and package != "python"
    avoid = "Upgrading or downgrading one package alone moves the mismatch to the next." if alone else ""
    also = "" if here or package in (*TRAINERS, "python") else _SHADOWED
    return Known(cause, do, avoid, also, error=failure.name, source=source_of(mined))


_OWN = "Its own code asks for it, so its files are of two versions, or this version of it has a fault."
_SHADOWED = (
    "Where pip list shows a version that has it, another copy is found first: the Python of another environment, a "
    "folder of the package's name, or an installation that is only half replaced (remove it and install it anew)."
)


def source_of(package: str) -> str:
    return _SOURCES.get(package) or _HUGGING_FACE.format(package)


def _called(owner: str, name: str) -> str:
    if owner.endswith("()"):
        return f"{owner} {name}="
    owner = owner.removesuffix(" object").removeprefix("python.")
    return name if owner == "python" else f"{owner}.{name}"


def _cure(package: str, span: Lived, asker: str, *, old: bool, young: bool) -> str:
    kept = ",".join([f">={span.since}"] * young + [f"<{span.gone}"] * (span.gone is not None))
    if package in TRAINERS and old and not young:
        return f"Update {asker or 'what asks for it'}, which was written for an older {package}."
    if package in TRAINERS:
        return f"In the folder of {package}: git pull, then in its environment pip install -r requirements.txt"
    if package == "python":
        return f"Update {asker or 'what asks for it'}, or make the environment anew with {package}{kept}."
    if old and not young:
        return (
            f'Update {asker or "what asks for it"}; where there is no newer one: pip install "{package}{kept}". A '
            "trainer names what goes together: pip install -r requirements.txt in its folder and its environment."
        )
    return (
        "In the program's folder and its environment type pip install -r requirements.txt or, where it has none, "
        f'pip install "{package}{kept}"'
    )


def _installed(here: str, *, young: bool, old: bool) -> str:
    if here:
        return f"By the log {here} is installed."
    if young and old:
        return "The one that is installed is older or newer."
    return "The one that is installed is older." if young else "The one that is installed is newer."


def _asker(failure: Failure, package: str) -> str:
    """The package whose code asks, where it is another one."""
    asking = (owner_of(frame) for frame in reversed(failure.frames))
    return next((name for name in asking if name not in ("", package)), "")


@cache
def _packages() -> frozenset[str]:
    return frozenset(file.stem for file in NAMES.glob("*.json"))


@cache
def _names(package: str) -> tuple[list[str], dict[str, dict[str, list[str]]]]:
    """The versions in order, and of each owner the names with their two versions."""
    read = json.loads((NAMES / f"{package}.json").read_text("utf-8"))
    names = {
        owner: {name: span.split() for span, found in spans.items() for name in found.split()}
        for owner, spans in read["names"].items()
    }
    return read["versions"], names
