"""How large a model is: the numbers a memory prediction rests on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from ..families import family_of, no_record
from ..families.network import Linears, trained_weights
from ..families.part_files import inferred_config
from ..families.record import Family, Memory
from ..families.record.of_trainers import Kohya, KohyaMemory, SimpleTuner
from ..families.record.shapes import BadConfig
from ..families.record.single_file import original_layout
from ..families.record.steps import WHOLE, BlockList, Steps, mined_tables, steps_of, vae_bytes
from ..families.tensors import block_linears, needed_tensors, parameters
from ..model import Component, ModelFolder, Run, Unknown
from ..model.recipe import Network
from ..model.record import dataclass
from ..model.weights import COMFYUI_PREFIX
from ..trainers import trainer_of
from .layers import (
    all_layers,
    as_linears,
    block_lists,
    count_of,
    fused_linears,
    in_8_bits,
    is_text_linear,
    largest_block,
    numbers_in,
    without,
)


@dataclass(frozen=True)
class Sizes:
    """What of the model matters for memory: counts are numbers of parameters.

    `linears` are the shapes of the layers that a LoRA may cover, by their names, and `mined_sides` the rows and
    columns of those with which steps were mined; `lists` are the blocks that backward goes through, and `steps` what
    they hold; `block` are the numbers in the Linears of the largest block, `text_linears` those of the text encoders
    that our runner quantizes, `text_largest` all numbers of the largest one, which are stored in `text_stored` bytes
    each; `encoders` are the tensors of each. Of a trainer that swaps blocks `swaps` says how, of the `swapped`
    lists: how many blocks each has, and how many numbers one of them has that may be in 8 bits, and others.
    With `of_trainer` the steps are of the trainer's own class, in its own ways.
    """

    figures: Memory
    config: Mapping[str, Any]
    steps: Steps
    lists: tuple[BlockList, ...]
    heads: int
    blocks: int
    block: int
    block_rows: int
    rest: int
    linears: Linears
    mined_sides: int
    text_encoder: int
    text_largest: int
    text_linears: int
    text_stored: int
    vae: int
    vae_width: int
    encode: float
    decode: float
    stored: int
    encoders: Mapping[str, Mapping[str, tuple[int, ...]]]
    assumed: str = ""
    of_kohya: KohyaMemory | None = None
    of_trainer: bool = False
    swapped: tuple[tuple[int, int, int], ...] = ()

    @cached_property
    def largest_linear(self) -> int:
        """Numbers in the largest weight of a block."""
        return max((prod(shape) for shape in self.linears.values() if len(shape) == 2), default=0)

    @cached_property
    def largest_text_linear(self) -> int:
        """Numbers in the largest Linear of the text encoders."""
        every = (pair for shapes in self.encoders.values() for pair in shapes.items())
        return max((prod(shape) for name, shape in every if is_text_linear(name, shape)), default=0)

    @cached_property
    def lora_sides(self) -> int:
        return sum(sum(shape[:2]) for shape in self.linears.values())


@lru_cache(maxsize=8)  # nearly all settings that may lower the peak leave the network as it is
def trained_on(sizes: Sizes, network: Network) -> int:
    """How many numbers are trained on the Linears that the network covers."""
    return trained_weights(network, sizes.linears)


def sizes_of(run: Run, model: ModelFolder) -> Sizes | Unknown:
    """The sizes of a Z-Image or Flux model from its own config.json and headers; the published ones stand in for a
    model that is not on this machine yet and has a published one's name.
    """
    family = family_of(run.recipe.architecture)
    kohya, figures = family.kohya.get(run.trainer), family.memory
    of_kohya = None if kohya is None else kohya.memory
    whole = figures is not None and bool(figures.lora or figures.whole)
    trainer = trainer_of(run.trainer)
    needs_own = trainer.component_files or (whole and not trainer.lora_copies and not run.by_runner)
    own = f"{run.trainer}/{family.class_name}"
    split = of_kohya.split if of_kohya and run.recipe.precision.split_attention else ""
    steps = split or (of_kohya.steps if of_kohya else own if mined_tables(own) else "")
    if figures is not None and needs_own and not steps:
        return Unknown(f"what a step of {family.title} keeps in memory was not measured of {run.trainer}")
    network, scaled, spared = run.recipe.network, run.recipe.precision.scaled, run.recipe.precision.spared
    autocast, windows = trainer.draws_under_autocast, network.conv_rank > 0
    own_words = run.trainer if of_kohya else ""
    architecture, refiners, fused = run.recipe.architecture, network.refiners, network.fused
    return _sizes(architecture, refiners, fused, own_words, steps, scaled, spared, autocast, windows, model)


@lru_cache(maxsize=8)  # what is predicted of a run is predicted again of each repair, and of the next config
def _sizes(
    architecture: str | None,
    refiners: bool,
    fused: bool,
    by: str,
    of_trainer: str,
    scaled: bool,
    spared: str,
    autocast: bool,
    windows: bool,
    model: ModelFolder,
) -> Sizes | Unknown:
    family = family_of(architecture)
    figures, kohya = family.memory, family.kohya.get(by)
    of_kohya = None if kohya is None else kohya.memory
    if family.transformer is None:
        return Unknown(no_record(architecture))
    if figures is None:
        return Unknown(f"what a step of {family.title} keeps in memory was not measured yet")
    transformer = model.components.get("transformer" if family.loader is None else family.loader.main)
    # the scripts of single files build what is published, whatever these are called
    published = of_kohya is not None or (
        model.layout in ("absent", "single-file") and figures.word in model.source.lower()
    )
    config = transformer.config if transformer is not None and transformer.needed is not None else None
    class_name = family.transformer.name
    if kohya is not None and family.loader is not None and family.loader.main in kohya.classes:
        class_name, as_written = kohya.classes[family.loader.main]
        config = (
            as_written if config is None or transformer is None or transformer.class_name != class_name else config
        )
    elif config is None and kohya is not None:
        config = _config_of(transformer, kohya, family.class_name)
    if config is None and published:
        config = figures.config(model.source.lower())
    if config is None:
        return Unknown("the transformer's config.json is not on this machine")
    # not `needed`, which is in the layout of the files: in a single file q, k and v are fused
    shapes = needed_tensors(class_name, config) or {}
    in_words_of_files = of_kohya is not None and of_kohya.lists not in ((), family.blocks)
    if in_words_of_files and class_name == family.class_name:  # whose classes have the names of the files
        shapes = original_layout(family.transformer.original, shapes)
    own = family.simpletuner if of_trainer and of_kohya is None else None
    lists, quantized, covered = _parts(family, figures, of_kohya, own, refiners=refiners)
    linears = all_layers(shapes) if covered is None else block_linears(shapes, covered)
    every = block_linears(shapes, quantized) if quantized or of_kohya is None else as_linears(shapes)
    counts = {name: count_of(every, name) for name in lists}
    numbers = {name: numbers_in(every, name) // max(1, count) for name, count in counts.items()}
    blocks, mined = without(every, spared), linears
    if of_kohya is not None:
        mined = without(linears, of_kohya.left_out)
        linears = without(linears, of_kohya.left_out_of_windows) if windows and figures.whole else mined
        blocks = without(every, of_kohya.unscaled) if scaled else every
    if fused:
        of_three = fused_linears(blocks)
        linears, blocks = {**linears, **of_three}, {**blocks, **of_three}
    in_blocks = sum(prod(shape) for shape in blocks.values())
    steps, of_vae = steps_of(of_trainer or family.class_name, config, numbers), _vae_bytes(family, autocast=autocast)
    if steps is None or of_vae is None:
        return Unknown(f"what a step of {family.title} keeps in memory was not measured yet")
    encoders = _encoders(family, model)
    if not all(encoders.values()):
        return Unknown(f"the size of a text encoder of {family.title} is read from its files, which are not here")
    guessed = (published and of_kohya is None) or not all(_shapes(model.components.get(name)) for name in encoders)
    largest = max(encoders, key=lambda name: parameters(encoders[name]))  # Flux's CLIP stays as it is
    vae = model.components.get("vae")
    widths = vae.config.get("block_out_channels") if vae is not None and vae.config else None
    first = widths[0] if isinstance(widths, list) and widths and isinstance(widths[0], int) else 128
    return Sizes(
        figures=figures,
        config=config,
        steps=steps,
        lists=(BlockList(WHOLE, 1, 1.0),)
        if figures.whole
        else block_lists(steps.lists, counts, linears, every=bool(of_kohya)),
        heads=int(config.get(*figures.heads)),
        blocks=in_blocks,
        block=largest_block(blocks, quantized) if quantized else max(map(prod, blocks.values()), default=0),
        block_rows=sum(shape[0] for shape in blocks.values()),
        rest=parameters(shapes) - sum(prod(shape) for name, shape in blocks.items() if f"{name}.weight" in shapes),
        linears=linears,
        mined_sides=sum(sum(shape[:2]) for shape in mined.values()),
        text_encoder=sum(map(parameters, encoders.values())),
        text_largest=parameters(encoders[largest]),
        text_linears=sum(
            prod(shape)
            for name, shapes in encoders.items()
            for n, shape in shapes.items()
            if (name == largest or figures.every_encoder) and is_text_linear(n, shape)
        ),
        text_stored=_stored_width(model.components.get(largest)),
        vae=parameters(_shapes(vae) or _published_vae(family)),
        vae_width=first,
        encode=of_vae[0] * first / 128,
        decode=of_vae[1] * first / 128,
        stored=_stored_width(transformer),
        encoders=encoders,
        assumed="parts that are not on this machine taken as published" if guessed else "",
        of_kohya=of_kohya,
        of_trainer=bool(of_trainer),
        swapped=tuple(in_8_bits(blocks, every, name, counts[name]) for name in lists) if of_kohya else (),
    )


def _parts(
    family: Family, figures: Memory, of_kohya: KohyaMemory | None, own: SimpleTuner | None, *, refiners: bool
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...] | None]:
    """The lists of blocks that a step runs through, what may be quantized, and what a LoRA covers, None: all."""
    if of_kohya is not None:
        return of_kohya.lists, of_kohya.lists, None if figures.whole or of_kohya.everywhere else of_kohya.lists
    lists = () if figures.whole else family.blocks
    quantized, covered = family.quantized_blocks, figures.lora or family.targets(refiners=refiners)
    if own is not None and own.lists:
        lists = covered = own.lists
    if own is not None and (own.lists or own.quantized):
        quantized = (*lists, *own.quantized)
    return lists, quantized, None if figures.whole else covered


def _config_of(transformer: Component | None, kohya: Kohya, class_name: str) -> Mapping[str, Any] | None:
    """The config that a file tells by its tensors."""
    tensors = {} if transformer is None else transformer.tensors
    if not tensors:
        return None
    shapes = {name.removeprefix(COMFYUI_PREFIX): tensor.shape for name, tensor in tensors.items()}
    if kohya.built is not None:
        return kohya.built(shapes)
    if kohya.is_one_file:
        return None  # which is of the size that its script builds
    try:
        return inferred_config(class_name, shapes)
    except BadConfig:
        return None


def _encoders(family: Family, model: ModelFolder) -> dict[str, Mapping[str, tuple[int, ...]]]:
    """The tensors of all that reads prompts, from its files or as it is published; of what neither says, none."""
    dropped = family.memory.dropped if family.memory is not None else ""
    files = () if family.loader is None else family.loader.others
    readers = {*family.published, *(name for name in files if name.startswith("text_encoder"))} - {"vae"}
    found: dict[str, Mapping[str, tuple[int, ...]]] = {}
    for name in sorted(readers):
        known = family.published.get(name)
        every = _shapes(model.components.get(name)) or (known and needed_tensors(*known)) or {}
        found[name] = {n: shape for n, shape in every.items() if dropped not in n.split(".")}
    return found


def _vae_bytes(family: Family, *, autocast: bool) -> tuple[float, float] | None:
    """What its VAE takes for a pixel; nothing where the transformer works on pixels."""
    if "vae" not in family.published or family.memory is None:
        return 0.0, 0.0
    return vae_bytes(family.memory.vae or family.published["vae"][0], autocast=autocast)


def _published_vae(family: Family) -> Mapping[str, tuple[int, ...]]:
    return (needed_tensors(*family.published["vae"]) or {}) if "vae" in family.published else {}


def _shapes(component: Component | None) -> Mapping[str, tuple[int, ...]]:
    if component is None:
        return {}
    return component.needed or {name: tensor.shape for name, tensor in component.tensors.items()}


def _stored_width(component: Component | None) -> int:
    """Bytes per number of the largest tensor on disk, 2 when nothing is there."""
    tensors = component.tensors.values() if component is not None else ()
    largest = max(tensors, key=lambda tensor: prod(tensor.shape), default=None)
    return {"F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1}.get(largest.dtype, 2) if largest else 2
