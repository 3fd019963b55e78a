"""The prompts of ai-toolkit's samples, with the flags that stand in them (commit 27a03a91)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...configs.written import Written
from ...model.recipe import SamplePrompt
from ...model.record import replace

# The images that a sample edits: the first of the first two, and the others.
_IMAGES = ("ctrl_img", "ctrl_img_1", "ctrl_img_2", "ctrl_img_3")
# Flags within a prompt: the field of a SamplePrompt that each sets, and its type.
_FLAGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("d", "seed"), ("seed", int)),
    **dict.fromkeys(("l", "cfg"), ("guidance", float)),
    **dict.fromkeys(("s", "steps"), ("steps", int)),
    "w": ("width", int),
    "h": ("height", int),
    "n": ("negative", str),
    **{name: (name, str) for name in _IMAGES},
}


def samples_of(w: Written) -> tuple[SamplePrompt, ...]:
    """The prompts that samples are made of, each with its size, seed and steps."""
    made: list[SamplePrompt] = []
    listed, prompts = w.count("sample/samples"), w.entries("sample/prompts")
    base, walks = w.whole("sample/seed"), w.flag("sample/walk_seed")
    for number in range(len(prompts) if listed is None else listed):
        at = "sample/-" if listed is None else f"sample/samples/{number}"
        prompt = prompts[number] if listed is None else w.raw(f"{at}/prompt")
        if not isinstance(prompt, str):
            continue
        one, either = w.below(at), w.below(at, "sample")
        made.append(
            SamplePrompt(
                prompt=prompt,
                width=either.whole("width", default=512),
                height=either.whole("height", default=512),
                seed=one.whole("seed", default=base + number if walks else base),
                steps=either.whole("sample_steps", default=20),
                guidance=either.number("guidance_scale", default=7.0),
                negative=either.text("neg"),
                **_images({name: path for name in _IMAGES if (path := one.maybe(name))}),
                frames=either.whole("num_frames", default=1),
            )
        )
    return tuple(map(_with_flags, made))


def _with_flags(sample: SamplePrompt) -> SamplePrompt:
    """What the prompt says of itself (`a hat --w 512 --ctrl_img a.png`); a flag that is not known is cut off."""
    text, *flags = sample.prompt.split("--")
    changed: dict[str, Any] = {"prompt": text.strip()}
    for flag in flags:
        name, _, content = flag.partition(" ")
        field, kind = _FLAGS.get(name.strip(), ("", str))
        try:
            changed |= {field: kind(content.strip())} if field else {}
        except ValueError:
            continue  # the trainer stops on it when it samples
    images = {name: changed.pop(name) for name in _IMAGES if name in changed}
    return replace(sample, **changed, **(_images(images) if images else {}))


def _images(named: Mapping[str, str]) -> dict[str, Any]:
    first, second, *others = _IMAGES
    beside = tuple(named[name] for name in others if name in named)
    return {"control": named.get(first) or named.get(second), "beside": beside}
