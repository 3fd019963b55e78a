"""What text encoders hear of captions: the token ids by a trainer's own functions beside those by the runner's.

`python benchmarks/pixels.py TRAINER CHECKOUT` counts them. The tokenizers are of the real classes, made from the
captions: byte-level pairs for Qwen3, pairs with ends of words for CLIP, a unigram model for T5. In the place of the
text encoders stands one that notes what it is given and answers zeros.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import transformers
from corpus_oracle import imported
from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline
from tokenizers import ByteLevelBPETokenizer, CharBPETokenizer, SentencePieceUnigramTokenizer
from torch import nn

from zdoctor.doctor.demo.tiny import CHAT_TEMPLATE

Heard = list[tuple[int, ...]]
CPU = torch.device("cpu")
WORDS = 600
# By the trainer the families whose text encoders it has, as the runner names their modules.
FAMILIES = {
    "ai-toolkit": ("zimage", "flux"),
    "sd-scripts": ("flux",),
    "musubi-tuner": ("zimage", "flux"),
    "simpletuner": ("zimage", "flux"),
}


class Ear(nn.Module):
    """A text encoder that notes the ids it hears, without those that its mask leaves out."""

    device, dtype = CPU, torch.float32

    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self.heard = heard
        self.embed, self.norm = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Any, attention_mask: Any = None, *, return_dict: bool = True, **_: Any) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        for ids, kept in zip(input_ids, mask.bool(), strict=True):
            self.heard.append(tuple(ids[kept].tolist()))
        states = torch.zeros(*input_ids.shape, 2)
        if not return_dict:
            return states, (states,) * 3
        return transformers.modeling_outputs.BaseModelOutputWithPooling(
            last_hidden_state=states, pooler_output=states[:, 0], hidden_states=(states,) * 3
        )


def tokenizers_of(folder: Path, texts: Iterable[str]) -> dict[str, Path]:
    """Folders of tokenizers that were made from these texts, by the names of the runner's components."""
    texts = [text for text in texts if text.strip()]
    bytes_, ends, pieces = ByteLevelBPETokenizer(), CharBPETokenizer(suffix="</w>"), SentencePieceUnigramTokenizer()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bytes_.train_from_iterator(texts, vocab_size=WORDS, special_tokens=special, show_progress=False)
    bounds = ["<|startoftext|>", "<|endoftext|>"]
    ends.train_from_iterator(texts, vocab_size=WORDS, special_tokens=bounds, show_progress=False)
    pieces.train_from_iterator(
        texts, vocab_size=WORDS, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    qwen, clip, t5 = (folder / name for name in ("tokenizer_qwen", "tokenizer", "tokenizer_2"))
    made: Any = transformers.Qwen2Tokenizer
    words = made(
        **_model(bytes_),
        unk_token=None,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=special[1:],
    )
    words.chat_template = CHAT_TEMPLATE
    words.save_pretrained(str(qwen))
    made = transformers.CLIPTokenizer
    made(**_model(ends), model_max_length=77).save_pretrained(str(clip))
    made = transformers.T5TokenizerFast
    vocabulary = [tuple(one) for one in json.loads(pieces._tokenizer.to_str())["model"]["vocab"]]
    made(vocab=vocabulary, extra_ids=0).save_pretrained(str(t5))
    return {"qwen": qwen, "clip": clip, "t5": t5}


def _model(trained: Any) -> dict[str, Any]:
    model = json.loads(trained._tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}


def ours(family: str, places: dict[str, Path], heard: Heard) -> Callable[[str], Any]:
    """The runner's way from a prompt to its embedding, up to the text encoder."""
    module = importlib.import_module(f"zdoctor.doctor.train.families.{family}")
    folders = {"tokenizer": places["qwen"]}
    if family == "flux":
        folders = {"tokenizer": places["clip"], "tokenizer_2": places["t5"]}
    folders |= dict.fromkeys(("text_encoder", "text_encoder_2"), Path())
    with ExitStack() as stack:
        stack.enter_context(patch.object(module, "load_text_encoder", lambda *_: Ear(heard)))
        encode: Callable[[str], Any] = module.text_encoder(folders, "none", torch.float32, CPU)
    return encode


def theirs(trainer: str, family: str, places: dict[str, Path], heard: Heard) -> Callable[[str], Any]:
    """A trainer's own way from a prompt to the text encoder."""
    ear = Ear(heard)
    made: Any = transformers
    qwen = made.AutoTokenizer.from_pretrained(places["qwen"])
    clip, t5 = made.CLIPTokenizer.from_pretrained(places["clip"]), made.T5TokenizerFast.from_pretrained(places["t5"])
    if trainer == "ai-toolkit" and family == "zimage":
        its = _alone("extensions_built_in.diffusion_models", "z_image.z_image").ZImageModel
        pipeline = ZImagePipeline(FlowMatchEulerDiscreteScheduler(), None, ear, qwen, None)  # type: ignore[arg-type]
        model = SimpleNamespace(pipeline=pipeline, device_torch=CPU, torch_dtype=torch.float32)
        return lambda text: its.get_prompt_embeds(model, text)
    if trainer == "ai-toolkit":
        encode = imported("toolkit.train_tools").encode_prompts_flux
        return lambda text: encode([clip, t5], [ear, ear], [text], max_length=512)
    if trainer == "sd-scripts":
        flux = imported("library.strategy_flux")
        strategy = flux.FluxTokenizeStrategy.__new__(flux.FluxTokenizeStrategy)
        strategy.t5xxl_max_length, strategy.clip_l, strategy.t5xxl = 512, clip, t5
        encoding = flux.FluxTextEncodingStrategy(False)
        return lambda text: encoding.encode_tokens(strategy, [ear, ear], strategy.tokenize(text))
    if trainer == "musubi-tuner" and family == "zimage":
        embeds = imported("musubi_tuner.zimage.zimage_utils").get_text_embeds
        return lambda text: embeds(qwen, ear, [text])
    if trainer == "musubi-tuner":
        cache = imported("musubi_tuner.flux_kontext_cache_text_encoder_outputs")
        cache.save_text_encoder_output_cache_flux_kontext = lambda *_: None
        return lambda text: cache.encode_and_save_batch(t5, ear, clip, ear, [SimpleNamespace(caption=text)], CPU)
    if family == "zimage":
        its = imported("simpletuner.helpers.models.z_image.model").ZImage
        words = {"config": SimpleNamespace(tokenizer_max_length=None), "accelerator": SimpleNamespace(device=CPU)}
        model = SimpleNamespace(text_encoders=[ear], tokenizers=[qwen], **words)
        return lambda text: its._encode_prompts(model, [text])
    its = imported("simpletuner.helpers.models.flux.pipeline").FluxPipeline
    parts = {"text_encoder": ear, "text_encoder_2": ear, "tokenizer": clip, "tokenizer_2": t5}
    pipe: Any = SimpleNamespace(**parts, tokenizer_max_length=77)
    for name in ("_get_clip_prompt_embeds", "_get_t5_prompt_embeds"):
        setattr(pipe, name, getattr(its, name).__get__(pipe))
    return lambda text: its.encode_prompt(pipe, text, text, device=CPU)


def _alone(package: str, name: str) -> Any:
    """A module of a package of the trainer without what the package itself imports."""
    module = ModuleType(package)
    module.__path__ = [str(Path(one, *package.split("."))) for one in sys.path]
    sys.modules[package] = module
    return imported(f"{package}.{name}")


def compare_ids(trainer: str, folder: Path, pairs: Iterable[tuple[str, str]]) -> Counter[str]:
    """Counts the captions, by the trainer and by the runner, of which the text encoders hear the same."""
    found = list(dict.fromkeys(pairs))
    places, counts = tokenizers_of(folder, [text for pair in found for text in pair]), Counter[str]()
    for family in FAMILIES[trainer]:
        heard: tuple[Heard, Heard] = [], []
        encoders = theirs(trainer, family, places, heard[0]), ours(family, places, heard[1])
        for texts in found:
            for encode, text in zip(encoders, texts, strict=True):
                encode(text)
            counts[f"captions of {family}"] += 1
            same = sorted(heard[0]) == sorted(heard[1])  # some ask T5 first, some CLIP
            counts[f"captions of {family} with the same token ids"] += same
            heard[0].clear()
            heard[1].clear()
    return counts
