"""Minimal modules in the shape of ai-toolkit's, healthy and patched as it circulates; written for the tests."""

from __future__ import annotations

from pathlib import Path

Z_IMAGE_A = """
import os


class ZImageModel:
    def load_model(self):
        dtype = self.torch_dtype
        transformer = ZImageTransformer2DModel.from_pretrained(
            self.path, subfolder="transformer", torch_dtype=dtype
        )
        pipe = Pipe(transformer)
        pipe.transformer = pipe.transformer.to(self.device_torch)
        self.model = pipe

    def save_model(self, output_path):
        if not output_path.endswith(".safetensors"):
            output_path += ".safetensors"
"""
Z_IMAGE_B = """
class ZImageModel:
    def load_transformer(self, model_path):
        if model_path.endswith(".safetensors"):
            model_path = self.single(model_path)
        return ZImageTransformer2DModel.load_model(model_path, dtype=self.torch_dtype)
"""
MIXIN = """
class OstrisModelMixin:
    @classmethod
    def aitk_from_pretrained(cls, path, subfolder=None, dtype=None, **kwargs):
        return cls.from_pretrained(path, subfolder=subfolder, torch_dtype=dtype, **kwargs)

    @classmethod
    def aitk_from_config(cls, config):
        with torch.device("meta"):
            return cls.from_config(config)
"""
QUANTIZE = """
def quantize_model(base_model, model_to_quantize):
    for block in all_blocks:
        block.to(base_model.device_torch)
        quantize(block)
"""
MIXINS = """
class ToolkitModuleMixin:
    def merge_in(self, merge_weight=1.0):
        org_sd = self.org_module[0].state_dict()
        if "weight._data" in org_sd:
            return
        weight = org_sd["weight"]
"""
DATA_LOADER = """
import json
import os


class AiToolkitDataset:
    def __init__(self, dataset_folder):
        dataset_size_file = os.path.join(dataset_folder, '.aitk_size.json')
        if os.path.exists(dataset_size_file):
            try:
                with open(dataset_size_file, 'r') as f:
                    self.size_database = json.load(f)
            except Exception as e:
                self.size_database = {}
        else:
            self.size_database = {}

        # save the size database
        with open(dataset_size_file, 'w') as f:
            json.dump(self.size_database, f)

        self.done = True
"""
CONFIG_MODULES = """
class TrainConfig:
    def __init__(self, **kwargs):
        self.steps = kwargs.get("steps", 1000)
"""
PROCESS = """
from toolkit.config_modules import TrainConfig


class BaseSDTrainProcess:
    def __init__(self, process_id, job, config):
        self.train_config = TrainConfig(**self.get_conf("train", {}))
"""
FILES = {
    "toolkit/config_modules.py": CONFIG_MODULES,
    "jobs/process/BaseSDTrainProcess.py": PROCESS,
    "extensions_built_in/diffusion_models/z_image/z_image.py": Z_IMAGE_B,
    "toolkit/models/v2/_mixin.py": MIXIN,
    "toolkit/util/quantize.py": QUANTIZE,
    "toolkit/network_mixins.py": MIXINS,
    "toolkit/data_loader.py": DATA_LOADER,
}


def write(root: Path, **changed: str) -> Path:
    """A checkout at `root`; `changed` gives the text of files by their last name without its ending."""
    for path, text in FILES.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(changed.get(file.stem, text).encode())
    return root


def patched(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


# name -> (the file's stem, its text, kinds of patches, whether every one can be edited)
PATCHES: dict[str, tuple[str, str, tuple[str, ...], bool]] = {
    "loads without low memory": (
        "z_image",
        patched(
            Z_IMAGE_A,
            (
                "torch_dtype=dtype\n",
                "torch_dtype=dtype,\n            low_cpu_mem_usage=False,  # force it\n"
                "            device_map=None, ignore_mismatched_sizes=True\n",
            ),
        ),
        ("random-weights", "mismatch-ignored"),
        True,
    ),
    "the same in the newer loader": (
        "_mixin",
        patched(MIXIN, ("torch_dtype=dtype, **kwargs", "torch_dtype=dtype, low_cpu_mem_usage=False, **kwargs")),
        ("random-weights",),
        True,
    ),
    "handed to the newer loader": (
        "z_image",
        patched(Z_IMAGE_B, ("dtype=self.torch_dtype)", "dtype=self.torch_dtype, low_cpu_mem_usage=False)")),
        ("random-weights",),
        True,
    ),
    "blocks passed over": (
        "quantize",
        patched(
            QUANTIZE,
            (
                "        block.to(",
                "        is_meta = any(p.device.type == 'meta' for p in block.parameters())\n        if is_meta:\n"
                "            continue  # skip it\n        block.to(",
            ),
        ),
        ("meta-skipped",),
        True,
    ),
    "merges passed over": (
        "network_mixins",
        patched(
            MIXINS,
            (
                '        weight = org_sd["weight"]',
                '        if org_sd["weight"].device.type == "meta":\n            return\n'
                '        weight = org_sd["weight"]',
            ),
        ),
        ("meta-skipped",),
        True,
    ),
    "merges passed over, in fewer words": (
        "network_mixins",
        patched(
            MIXINS,
            (
                '        weight = org_sd["weight"]',
                '        if org_sd["weight"].is_meta: print("skipped"); return None\n'
                '        weight = org_sd["weight"]',
            ),
        ),
        ("meta-skipped",),
        True,
    ),
    "not moved, and every error printed": (
        "z_image",
        patched(
            Z_IMAGE_A,
            (
                "        pipe.transformer = pipe.transformer.to(self.device_torch)\n",
                "        try:\n"
                "            is_meta = any(p.device.type == 'meta' for p in pipe.transformer.parameters())\n"
                "            if not is_meta:\n"
                "                pipe.transformer = pipe.transformer.to(self.device_torch)\n"
                "            else:\n                print('skipping .to()')\n        except Exception as e:\n"
                "            print(e)\n",
            ),
        ),
        ("meta-skipped",),
        True,
    ),
    "not moved, without a word": (
        "z_image",
        patched(
            Z_IMAGE_A,
            (
                "        pipe.transformer = pipe.transformer.to(self.device_torch)\n",
                "        if not next(pipe.transformer.parameters()).is_meta:\n"
                "            pipe.transformer = pipe.transformer.to(self.device_torch)\n",
            ),
        ),
        ("meta-skipped",),
        True,
    ),
    "not moved, between other things that may fail": (
        "z_image",
        patched(
            Z_IMAGE_A,
            (
                "        pipe.transformer = pipe.transformer.to(self.device_torch)\n",
                "        try:\n            prepare(pipe)\n            if not pipe.transformer.weight.is_meta:\n"
                "                pipe.transformer = pipe.transformer.to(self.device_torch)\n"
                "        except Exception as e:\n            print(e)\n",
            ),
        ),
        ("meta-skipped",),
        False,
    ),
    "given empty memory": (
        "z_image",
        patched(Z_IMAGE_A, ("pipe.transformer.to(self", "pipe.transformer.to_empty(device=self")),
        ("to-empty",),
        True,
    ),
}
HEALTHY: dict[str, tuple[str, str]] = {
    "generation A": ("z_image", Z_IMAGE_A),
    "generation B": ("z_image", Z_IMAGE_B),
    "only a comment": (
        "z_image",
        Z_IMAGE_A.replace("dtype\n        )", "dtype\n            # low_cpu_mem_usage=False,\n        )"),
    ),
    "with low memory, as by default": (
        "_mixin",
        MIXIN.replace("**kwargs)\n\n", "low_cpu_mem_usage=True, **kwargs)\n\n"),
    ),
    "an error of their own": (
        "quantize",
        QUANTIZE.replace(
            "        block.to(",
            "        if any(p.is_meta for p in block.parameters()):\n            raise ValueError('incomplete')\n"
            "        block.to(",
        ),
    ),
    "a list of what is missing": (
        "quantize",
        QUANTIZE.replace(
            "    for block",
            "    missing = [n for n, p in model_to_quantize.named_parameters() if p.is_meta]\n    for block",
        ),
    ),
}
