"""What a family's record says of it in each trainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...model.record import dataclass, field
from .block_swap import Shares
from .loader import Loader, ModelConfig
from .shapes import Shapes

# no base_model_precision of SimpleTuner: float8 weights stay as they are in the file, made 16 bits for each product
IN_FILE = "as in its file"


@dataclass(frozen=True)
class Flavour:
    """What a model_flavour of SimpleTuner stands for: a variant, its repository, that of the transformer alone where
    that is another, the adapter that is fetched with it, and the base_model_precision that its weights are in unless
    another is asked for, or `upcast` is set.
    """

    repo: str
    variant: str | None = None
    transformer: str | None = None
    adapter: str | None = None
    precision: str = ""
    upcast: str = ""


@dataclass(frozen=True)
class SimpleTuner:
    """A family in SimpleTuner: its model_family, its flavours, and the one that is taken where none is written.

    flux_lora_target chooses the Linears from the table `targets`; without one the names of those that a LoRA covers
    end in one of `linears`, where none is named as all of the attention's do. Sizes step by `step` pixels, 0: by as
    many as is written. `mode` says that a picture is the most likely of the VAE's latents, not a drawn one, `masked`
    that what fills up a prompt is not looked at, `bent` that normal noise levels are moved to both ends, `in_cells`
    that latents are cells of 2 x 2 already. `taken`: zdoctor's runner takes its runs. What
    gradient_checkpointing_interval counts are blocks that are computed again `together`, one of which is computed
    `apart`, or it is passed over (""). `loader` is what it opens where ai-toolkit opens something else. `fuses`: with
    fuse_qkv_projections query, key and value are there a second time, as one Linear, which has the LoRA.
    `others` are flavours of that model_family of which there is no record. `lists` are its lists of blocks in their
    order where those with a LoRA are more than the family's; what is quantized is in them or in the modules
    `quantized`, but torchao leaves the Linears that `spared` finds as they are. `classes` are those of the modules
    that hold Linears where none is called Attention or FeedForward, as LyCORIS is asked for elsewhere.
    """

    family: str
    flavours: Mapping[str, Flavour]
    default: str
    targets: str = ""
    linears: tuple[str, ...] = ()
    step: int = 64
    mode: bool = False
    masked: bool = False
    bent: bool = False
    in_cells: bool = False
    taken: bool = True
    segments: str = "together"
    loader: Loader | None = None
    fuses: bool = False
    others: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    spared: str = ""
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KohyaMemory:
    """What a prediction of memory in sd-scripts or musubi-tuner rests on beside the family's own (`Memory`).

    Their own class of the transformer was mined as `steps` (steps.py); `lists` are its lists of blocks in their
    order, none where it was mined whole, and `swaps` says how many of each wait in host memory. `left_out` finds the
    Linears that get no LoRA, `left_out_of_windows` those that get none where convolutions of several pixels do,
    `unscaled` those that fp8_scaled leaves in 16 bits. `whole_vae` says that the VAE computes in 32 bits. Each
    control image is of `control_pixels`, 0: as large as the picture. With `offloads` what blocks that are computed
    again are given may wait in host memory, with `everywhere` all Linears get a LoRA. A model to be cast to 8 bits
    without scales is `cast_whole`: all of it is on the card before that, beside what it becomes. `drawn` pictures go
    through the transformer at a time while samples are drawn. A prompt has `text` tokens, 0: as many as elsewhere.
    `split` is what was mined of steps with split_attn, where that is another than `steps`.
    """

    steps: str
    lists: tuple[str, ...]
    swaps: Shares
    left_out: str = ""
    unscaled: str = ""
    whole_vae: bool = False
    control_pixels: int = 0
    offloads: bool = True
    everywhere: bool = False
    cast_whole: bool = False
    drawn: int = 1
    left_out_of_windows: str = ""
    text: int = 0
    split: str = ""


@dataclass(frozen=True)
class Kohya:
    """A family in sd-scripts or musubi-tuner: its script for a LoRA, the network_module, and the options that name
    the files of its components, the transformer's first.

    `blocks` is how many blocks_to_swap counts, 0 where that is not known. A prompt that says none is drawn with
    `guidance`. `cache` is the ending of musubi-tuner's cache files. `samples_only` says that all but the transformer
    are opened for samples alone, `either_vae` that the VAE's file may be in diffusers' layout, `strict` that a tensor
    too many stops the run, `fused` that query, key and value have one LoRA, `mode` that a picture is the most likely
    of the VAE's latents, not a drawn one. Without `memory` what a step holds was not measured. `classes` are those of
    components of which its files have others than what is published. `optional` components are opened where they are
    named, `pickled` ones published as pickles, and in `spare` ones a tensor too many does no harm. `in_cells` says
    that its latents are cells of 2 x 2 already. Without `files` the whole model is one folder or file, and what is in
    it is not judged.

    What the first file holds has names that begin as `inside` says, of the components that `inside_first` names also
    where their option names another file; a file of a component's own may have names with the prefix of `prefixes`.
    `names` gives the names in a file of what a component's class builds, where they are not that class's own for
    these trainers; tensors whose name `squeezed` finds are of Linears or of convolutions of one pixel. A tensor too
    few stops the run in the components `complete`; in `filled` it is drawn by chance. `built` is the config that the
    script makes of the tensors of the transformer. With a `folder` that is opened so, a folder or a hub id in
    diffusers' layout may take the first file's place. `text` are the components that a LoRA covers beside, unless
    network_train_unet_only is written.
    """

    script: str
    network_module: str
    files: Mapping[str, str]
    blocks: int
    guidance: float
    cache: str = ""
    samples_only: bool = False
    either_vae: bool = False
    strict: bool = False
    fused: bool = False
    mode: bool = False
    memory: KohyaMemory | None = None
    classes: Mapping[str, tuple[str, ModelConfig]] = field(default_factory=dict)
    in_cells: bool = False
    optional: tuple[str, ...] = ()
    pickled: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    inside: Mapping[str, str] = field(default_factory=dict)
    inside_first: tuple[str, ...] = ()
    prefixes: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Callable[[Shapes, Collection[str]], Shapes]] = field(default_factory=dict)
    squeezed: str = ""
    complete: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    built: Callable[[Mapping[str, tuple[int, ...]]], ModelConfig] | None = None
    folder: Loader | None = None
    text: tuple[str, ...] = ()

    @property
    def is_one_file(self) -> bool:
        """Whether the whole model is one file, or a folder."""
        return self.folder is not None


@dataclass(frozen=True)
class AiToolkit:
    """What ai-toolkit (27a03a91) does with a family in its own way.

    `offloads` says that its loader looks at layer_offloading, `adapter_repo` that an adapter may be a repository's
    name. With low_vram only adapters that touch nothing but `fused` are merged, where that is not empty. `switches`
    are settings of this family alone that change what is learnt, with words for them. `more_cells` says that
    timestep_type shift counts four times a picture's cells. Sides of pictures are multiples of `bucket_step` pixels.
    `mode` says that a picture is the most likely of the VAE's latents, not a drawn one. train_text_encoder trains
    the components `trained_text`. `kohya` says that a LoRA's names begin with lora_unet and that it counts
    alpha / rank times.
    """

    offloads: bool = True
    adapter_repo: bool = True
    fused: tuple[str, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)
    more_cells: bool = False
    bucket_step: int = 16
    mode: bool = False
    trained_text: tuple[str, ...] = ()
    kohya: bool = False
