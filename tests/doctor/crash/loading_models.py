"""What transformers, diffusers, accelerate and peft raise while they load a model of a few bytes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zdoctor.tests.hub_server import HubServer

from .loading import HEADERS, LLAMA, UNET, Case, _file

Break = Callable[[Path], object]


def _library(name: str) -> Any:
    return importlib.import_module(name)


def _nothing(place: Path) -> None:
    """The model stays whole; what is wrong is how it is loaded."""


def _model(broken: Break, loaded: str = "AutoModelForCausalLM", **more: Any) -> Case:
    """A model of transformers, whole, until `broken` has been at its folder."""

    def case(folder: Path, hub: HubServer) -> object:
        transformers = _library("transformers")

        place = folder / "model"
        config = transformers.LlamaConfig(**{key: value for key, value in LLAMA.items() if isinstance(value, int)})
        transformers.LlamaForCausalLM(config).save_pretrained(place)
        broken(place)
        return getattr(transformers, loaded).from_pretrained(place, **more)

    return case


def _edited(name: str, **values: object) -> Break:
    def broken(place: Path) -> object:
        data = json.loads((place / name).read_bytes())
        return _file(place, name, {key: value for key, value in {**data, **values}.items() if value is not None})

    return broken


def _without(name: str) -> Break:
    return lambda place: (place / name).unlink()


def _as(name: str, data: bytes) -> Break:
    return lambda place: _file(place, name, data)


def _sharded(place: Path) -> object:
    (place / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    return _file(place, "model.safetensors.index.json", index)


def _pickled(place: Path) -> object:
    (place / "model.safetensors").unlink()
    return _file(place, "pytorch_model.bin", b"version https://git-lfs.github.com/spec/v1\n")


def _nowhere(folder: Path, hub: HubServer) -> object:
    transformers = _library("transformers")

    return transformers.AutoConfig.from_pretrained(str(folder / "no" / "such" / "model"))


def _bits(folder: Path, hub: HubServer) -> object:
    transformers = _library("transformers")

    return _model(_nothing, quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=True))(folder, hub)


TRANSFORMERS: dict[str, Case] = {
    "no config": _model(_without("config.json")),
    "no weights": _model(_without("model.safetensors")),
    "a shard is missing": _model(_sharded),
    "a cut weight file": _model(_as("model.safetensors", HEADERS["cut short"])),
    "a pointer as a pickle": _model(_pickled),
    "an unknown kind": _model(_edited("config.json", model_type="never-heard-of")),
    "no kind": _model(_edited("config.json", model_type=None)),
    "another size": _model(_edited("config.json", hidden_size=16)),
    "StrictDataclassFieldValidationError": _model(_edited("config.json", hidden_size="eight")),
    "StrictDataclassClassValidationError": _model(_edited("config.json", num_attention_heads=3)),
    "a config that is no JSON": _model(_as("config.json", b"{nothing")),
    "no tokenizer": _model(_nothing, "AutoTokenizer"),
    "a cut tokenizer": _model(_as("tokenizer.json", b"{"), "LlamaTokenizerFast"),
    "no such folder": _nowhere,
    "no bitsandbytes": _bits,
    "a value of quantization_config": _model(
        _edited("config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": "yes"})
    ),
    "code of its own": _model(
        _edited("config.json", model_type=None, auto_map={"AutoConfig": "own.Config"}), trust_remote_code=False
    ),
    "no flash-attention": _model(_nothing, attn_implementation="flash_attention_2"),
    "an unknown attention": _model(_nothing, attn_implementation="never"),
    "an unknown device map": _model(_nothing, device_map="never"),
    "no such tokenizer": _model(
        _as("tokenizer_config.json", b'{"tokenizer_class": "NeverTokenizer"}'), "AutoTokenizer"
    ),
    "a cut gguf": _model(_as("a.gguf", b"GGUF"), gguf_file="a.gguf"),
    "a variant": _model(_nothing, variant="fp16"),
}


def _tiny(broken: Break, **more: Any) -> Case:
    """A VAE of diffusers, whole, until `broken` has been at its folder."""

    def case(folder: Path, hub: HubServer) -> object:
        diffusers = _library("diffusers")

        place = folder / "model"
        made = diffusers.AutoencoderTiny(
            encoder_block_out_channels=(8,), decoder_block_out_channels=(8,), num_encoder_blocks=(1,),
            num_decoder_blocks=(1,), latent_channels=4,
        )  # fmt: skip
        made.save_pretrained(place)
        broken(place)
        return diffusers.AutoencoderTiny.from_pretrained(place, **more)

    return case


def _named(model: str) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        return _library("diffusers").AutoencoderTiny.from_pretrained(model, local_files_only=True)

    return case


def _pipeline(index: object | None, parts: dict[str, object] | None = None, **more: Any) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        diffusers = _library("diffusers")

        if index is not None:
            _file(folder, "model/model_index.json", index)
        else:
            (folder / "model").mkdir()
        for name, data in (parts or {}).items():
            _file(folder, f"model/{name}", data)
        return diffusers.DiffusionPipeline.from_pretrained(folder / "model", **more)

    return case


def _single_file(folder: Path, hub: HubServer) -> object:
    diffusers = _library("diffusers")

    return diffusers.FluxTransformer2DModel.from_single_file(str(folder / "none.safetensors"))


def _gguf(folder: Path, hub: HubServer) -> object:
    diffusers = _library("diffusers")

    return diffusers.FluxTransformer2DModel.from_single_file(str(_file(folder, "a.gguf", b"GGUF")))


def _lora(layer: str) -> Case:
    """A LoRA for Flux whose only layer has that name."""

    def case(folder: Path, hub: HubServer) -> object:
        import torch

        lora_pipeline = _library("diffusers.loaders.lora_pipeline")
        return lora_pipeline.FluxLoraLoaderMixin().load_lora_weights({layer: torch.zeros(2, 2)})

    return case


def _shards(place: Path) -> object:
    (place / WEIGHTS).unlink()
    index = {
        "metadata": {},
        "weight_map": {"encoder.layers.0.weight": "diffusion_pytorch_model-00001-of-00002.safetensors"},
    }
    return _file(place, f"{WEIGHTS}.index.json", index)


DDPM = {
    "_class_name": "DDPMPipeline",
    "unet": ["diffusers", "UNet2DModel"],
    "scheduler": ["diffusers", "DDPMScheduler"],
}
WEIGHTS = "diffusion_pytorch_model.safetensors"
DIFFUSERS: dict[str, Case] = {
    "no config": _tiny(_without("config.json")),
    "no weights": _tiny(_without(WEIGHTS)),
    "a cut weight file": _tiny(_as(WEIGHTS, HEADERS["cut short"])),
    "a web page": _tiny(_as(WEIGHTS, HEADERS["a web page"])),
    "another size": _tiny(_edited("config.json", latent_channels=8)),
    "no pipeline": _pipeline(None),
    "an unknown pipeline": _pipeline({"_class_name": "NeverPipeline", "_diffusers_version": "0.1"}),
    "an unknown part": _pipeline(
        {**DDPM, "unet": ["diffusers", "NeverModel"]},
        {"unet/config.json": UNET, "scheduler/scheduler_config.json": {}},
    ),
    "a part is missing": _pipeline(DDPM),
    "no single file": _single_file,
    "a cut gguf": _gguf,
    "a shard is missing": _tiny(_shards),
    "another model's LoRA": _lora("blocks.0.attention.weight"),
    "a LoRA of kohya's for another model": _lora("lora_unet_never_blocks_0.lora_down.weight"),
    "an unknown device map": _pipeline(DDPM, device_map="never"),
    "a value of quantization_config": _tiny(
        _edited("config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": "yes"})
    ),
    "a quantization of another time": _tiny(_edited("config.json", quantization_config={"quant_method": "never"})),
    "no such name": _named("no/such"),
    "no such path": _named("/no/such/model"),
}


def _linear(place: Path, out: int = 2, form: str = "pt") -> Path:
    import torch
    from safetensors.torch import save_file

    place.mkdir()
    save_file(
        {"weight": torch.zeros(out, 2), "bias": torch.zeros(out)}, place / "model.safetensors", {"format": form}
    )
    return place / "model.safetensors"


def _dispatched(**more: Any) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        import torch

        accelerate = _library("accelerate")

        with accelerate.init_empty_weights():
            model = torch.nn.Linear(2, 2)
        weights = _linear(folder / "m", more.pop("out", 2), more.pop("form", "pt"))
        return accelerate.load_checkpoint_and_dispatch(model, str(weights), **more)

    return case


def _no_checkpoint(folder: Path, hub: HubServer) -> object:
    import torch

    accelerate = _library("accelerate")

    (folder / "empty").mkdir()
    return accelerate.load_checkpoint_and_dispatch(
        torch.nn.Linear(2, 2), str(folder / "empty"), device_map={"": "cpu"}
    )


ACCELERATE: dict[str, Case] = {
    "another size": _dispatched(out=3, device_map={"": "cpu"}),
    "no place for a part": _dispatched(device_map={"weight": "cpu"}),
    "no offload folder": _dispatched(device_map={"": "disk"}),
    "no checkpoint": _no_checkpoint,
    "another format": _dispatched(form="never", device_map={"": "cpu"}),
    "an unknown device map": _dispatched(device_map="never"),
}


def _adapter(broken: Break, rank: int = 2, names: tuple[str, ...] = ("0",)) -> Case:
    """A LoRA of peft for a layer, whole, until `broken` has been at its folder."""

    def case(folder: Path, hub: HubServer) -> object:
        import torch

        peft = _library("peft")

        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SiLU())
        peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules=list(names))).save_pretrained(
            folder / "lora"
        )
        broken(folder / "lora")
        return peft.PeftModel.from_pretrained(torch.nn.Sequential(torch.nn.Linear(2, 2)), str(folder / "lora"))

    return case


def _lokr(folder: Path, hub: HubServer) -> object:
    import torch

    peft = _library("peft")
    return peft.get_peft_model(torch.nn.Sequential(torch.nn.SiLU()), peft.LoKrConfig(target_modules=["0"]))


PEFT: dict[str, Case] = {
    "no adapter config": _adapter(_without("adapter_config.json")),
    "no adapter": _adapter(_without("adapter_model.safetensors")),
    "a cut adapter": _adapter(_as("adapter_model.safetensors", HEADERS["cut short"])),
    "another rank": _adapter(_edited("adapter_config.json", r=4)),
    "an adapter of an unknown kind": _adapter(_edited("adapter_config.json", peft_type="NEVER")),
    "no such layer": _adapter(_nothing, names=("never",)),
    "a bias of another time": _adapter(_edited("adapter_config.json", bias="never")),
    "a rank of 0": _adapter(_edited("adapter_config.json", r=0)),
    "an unknown beginning": _adapter(_edited("adapter_config.json", init_lora_weights="never")),
    "a layer that LoKr does not take": _lokr,
    "a layer that takes none": _adapter(_nothing, names=("1",)),
}
