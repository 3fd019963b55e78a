"""Z-Image, and what is like it."""

from __future__ import annotations

from ...model.record import replace
from ..components.autoencoder_kl import VAE
from ..components.qwen3 import QWEN3_4B
from ..record import Distilled, Family, Fit, Loader, Memory, Tokenizer
from ..record.block_swap import of_the_last
from ..record.of_trainers import AiToolkit, Flavour, Kohya, KohyaMemory, SimpleTuner
from .tensors import TRANSFORMER

_TURBO = "Tongyi-MAI/Z-Image-Turbo"
_FILES = "Comfy-Org/z_image_turbo"
_ADAPTER = "ostris/zimage_turbo_training_adapter/zimage_turbo_training_adapter_v{}.safetensors"
_LOADER = Loader(
    components={
        "transformer": ("ZImageTransformer2DModel",),
        "text_encoder": ("Qwen3ForCausalLM", "Qwen3Model"),
        "tokenizer": (),
        "vae": ("AutoencoderKL",),
    },
    single_file=_TURBO,
    bare=True,
    extras=True,
    adapter_key="diffusion_model.layers.0.attention.to_k.lora_A.weight",
)


ZIMAGE = Family(
    name="zimage",
    aliases=("z_image",),
    title="Z-Image",
    transformer=TRANSFORMER,
    loader=_LOADER,
    own=_LOADER,
    fits=(
        Fit("text_encoder", "hidden_size", ("cap_feat_dim",), 2560),
        Fit("vae", "latent_channels", ("in_channels",), 16),
    ),
    published={"text_encoder": ("Qwen3ForCausalLM", QWEN3_4B), "vae": ("AutoencoderKL", VAE)},
    lora_beside={},
    lora_prefixes=("diffusion_model.", "transformer."),
    base_version="zimage",
    lokr=True,
    blocks=("noise_refiner", "context_refiner", "layers"),
    lora_blocks=("layers",),
    refiners=("noise_refiner", "context_refiner"),
    quantized_blocks=("noise_refiner", "context_refiner", "layers", "siglip_refiner"),
    edits=None,
    guided=False,
    overflows=True,
    scheduler=lambda config: {"num_train_timesteps": 1000, "shift": 3.0, "use_dynamic_shifting": False},
    distilled=Distilled("turbo", ("de-turbo", "deturbo"), _ADAPTER.format(2)),
    memory=Memory(
        word="z-image",
        config=lambda name: {},
        heads=("n_heads", 30),
        headless=True,
        text=256,
        template=12,
        padding=32,
        caches=True,
    ),
    # diffusers' src/diffusers/__init__.py by tag; transformers: Qwen3's model cards
    packages=(("diffusers", (0, 36), "ZImagePipeline"), ("transformers", (4, 51), "Qwen3ForCausalLM")),
    repos={"turbo": _TURBO},
    files={
        "Qwen3ForCausalLM": (("", f"{_FILES} split_files/text_encoders/qwen_3_4b.safetensors"),),
        "ZImageTransformer2DModel": (
            ("turbo", f"{_FILES} split_files/diffusion_models/z_image_turbo_bf16.safetensors"),
        ),
        "AutoencoderKL": (("", f"{_FILES} split_files/vae/ae.safetensors"),),
    },
    alike=True,
    tokenizers=(
        Tokenizer(
            "tokenizer",
            (("Tongyi-MAI/Z-Image", "tokenizer"), (_TURBO, "tokenizer")),
            'hf download Tongyi-MAI/Z-Image --include "tokenizer/*"',
            chats=True,
        ),
    ),
    ai_toolkit=AiToolkit(adapter_repo=False),
    simpletuner=SimpleTuner(
        family="z_image",
        flavours={
            "base": Flavour("TONGYI-MAI/Z-Image"),
            "turbo": Flavour("TONGYI-MAI/Z-Image-Turbo", "turbo", adapter=_ADAPTER.format(1)),
            "turbo-ostris-v2": Flavour("TONGYI-MAI/Z-Image-Turbo", "turbo", adapter=_ADAPTER.format(2)),
            "ostris-de-turbo": Flavour("TONGYI-MAI/Z-Image-Turbo", "deturbo", "ostris/Z-Image-De-Turbo"),
        },
        default="turbo-ostris-v2",
        step=0,
    ),
    kohya={
        # the caches hold latents and text embeddings; the encoders are opened for samples only
        "musubi-tuner": Kohya(
            script="zimage_train_network",
            network_module="networks.lora_zimage",
            files={"transformer": "dit", "text_encoder": "text_encoder", "vae": "vae"},
            blocks=30,
            guidance=4.0,
            cache="zi",
            samples_only=True,
            either_vae=True,
            strict=True,
            mode=True,
            memory=KohyaMemory(
                "musubi-tuner/ZImageTransformer2DModel",
                ("noise_refiner", "context_refiner", "layers"),
                of_the_last,
                left_out="_modulation|_refiner",
                unscaled="_modulation",
                whole_vae=True,
            ),
        ),
    },
    runner=".zimage",
    in_diffusers="",
)
# In pixels, of which no more is known than that it is computed alike.
L2P = replace(
    ZIMAGE,
    name="zimage_l2p",
    aliases=(),
    title="Z-Image L2P",
    transformer=None,
    loader=None,
    own=None,
    memory=None,
    distilled=None,
    repos={},
    files={},
    alike=False,
    tokenizers=(),
    simpletuner=None,
    kohya={},
    ai_toolkit=replace(ZIMAGE.ai_toolkit, adapter_repo=True),
)
FAMILIES = (ZIMAGE, L2P)
