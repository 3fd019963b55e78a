"""Packages of versions that do not go together, each as its import says it. Read in transformers 5.23, diffusers
0.42.1, peft 0.21.2, huggingface_hub 2.4.0 and torch 2.13.0."""

from __future__ import annotations

from ...model.crashes import Known

_TOGETHER = "In the trainer's folder and its environment: pip install -r requirements.txt"
_ONE_ALONE = "Upgrading the one that is named alone moves the mismatch to the next package."
_CLIP = "https://github.com/huggingface/diffusers/issues/13833"

KNOWN = (
    Known(
        "peft does not go with this transformers: HybridCache is gone from transformers 5, which peft before 0.18 "
        "asks "
        "for.",
        f"{_TOGETHER}; without requirements: pip install -U peft",
        words=("cannot import name 'HybridCache' from 'transformers'",),
        alone=True,
        source="https://github.com/huggingface/peft/issues/3333",
    ),
    Known(
        "peft is too new for this transformers, which lacks what it asks for.",
        _TOGETHER,
        avoid=_ONE_ALONE,
        words=("cannot import name 'Cache' from 'transformers'", "cannot import name 'EncoderDecoderCache' from"),
        alone=True,
        source="https://github.com/huggingface/peft/issues/2292",
    ),
    Known(
        "diffusers is too old for this transformers: FLAX_WEIGHTS_NAME is gone from transformers 5.",
        f"{_TOGETHER}; without requirements: pip install -U diffusers",
        words=("cannot import name 'FLAX_WEIGHTS_NAME' from 'transformers",),
        alone=True,
        source="https://github.com/huggingface/diffusers/pull/12354",
    ),
    Known(
        "The text encoder is asked for a part that transformers took away in 5.6: CLIPTextModel has no text_model "
        "any "
        "more. The trainer or its diffusers is older than that.",
        f'{_TOGETHER}; without requirements: pip install "transformers<5.6"',
        words=("'CLIPTextModel' object has no attribute 'text_model'",),
        alone=True,
        source=_CLIP,
    ),
    Known(
        "huggingface_hub and transformers do not go together: the one that is installed is outside of what this "
        "transformers takes.",
        _TOGETHER,
        avoid=_ONE_ALONE,
        text=r"huggingface[-_]hub[<>=!~].*is required for a normal functioning of this module"
        r"|cannot import name '(is_offline_mode|split_torch_state_dict_into_shards)' from 'huggingface_hub",
        words=(
            "is required for a normal functioning of this module",
            "cannot import name 'is_offline_mode' from 'huggingface_hub",
            "cannot import name 'split_torch_state_dict_into_shards' from 'huggingface_hub",
        ),
        alone=True,
        source="https://github.com/pydantic/pydantic-ai/issues/4092",
    ),
    Known(
        "A package that transformers asks for has another version than it takes; the message names both.",
        _TOGETHER,
        avoid=_ONE_ALONE,
        words=("is required for a normal functioning of this module, but found",),
        alone=True,
        source="https://github.com/huggingface/transformers/blob/main/src/transformers/utils/versions.py",
    ),
    Known(
        "diffusers, or the program itself, is too old for this huggingface_hub, which has no cached_download since "
        "0.26.",
        f"{_TOGETHER}; without requirements: pip install -U diffusers",
        words=("cannot import name 'cached_download' from 'huggingface_hub",),
        alone=True,
        source="https://github.com/kijai/ComfyUI-FluxTrainer/issues/178",
    ),
    Known(
        "transformers is there, and gives away none of its models: torch is missing in this environment, older than "
        "this transformers takes, or broken; a file or folder of one's own called transformers does the same.",
        'python -c "import torch, transformers; print(torch.__version__, transformers.__version__)" shows both. '
        + _TOGETHER,
        text=r"[Cc]an ?not import name "
        r"'(?:Auto\w+|PreTrainedModel|PreTrainedTokenizer\w*|CLIP\w+|T5\w+|GenerationMixin)'"
        r" from '?transformers'?(?! ?\.)",
        words=("cannot import name '", "Can not import name '"),
        source="https://github.com/tdrussell/diffusion-pipe/issues/383",
    ),
    Known(
        "The class of this model is not in the diffusers or transformers that is installed: it is older than the "
        "model.",
        f"{_TOGETHER}; without requirements: pip install -U diffusers transformers; for a model of these days "
        "pip install git+https://github.com/huggingface/diffusers",
        avoid="Where the name is one of your own script, compare its spelling first.",
        text=r"cannot import name '\w+(?:Pipeline|Transformer[23]DModel|ForConditionalGeneration|ForCausalLM)' from "
        r"'?(?:diffusers|transformers)|module '?diffusers'? has no attribute '?\w+(?:Pipeline|Model)\b"
        r"|`(?:diffusers|transformers)` has no class `\w+`",
        words=(
            "cannot import name '",
            "Can not import name '",
            "module diffusers has no attribute",
            "` has no class `",
        ),
        source="https://github.com/black-forest-labs/flux2/issues/14",
    ),
    Known(
        "diffusers is too old for this program: it lacks a module that is asked for.",
        _TOGETHER,
        words=("No module named 'diffusers.", "No module named 'transformers."),
        alone=True,
        source="https://github.com/tdrussell/diffusion-pipe/issues/365",
    ),
    Known(
        "torchao and diffusers do not go together: the one asks the other for what was moved or removed there.",
        _TOGETHER,
        avoid=_ONE_ALONE,
        text=r"No module named 'torchao|cannot import name '\w+' from 'torchao"
        r"|Failed to import diffusers\..*name 'logger' is not defined",
        words=("Failed to import diffusers.", "from 'torchao", "No module named 'torchao."),
        alone=True,
        source="https://github.com/ace-step/ACE-Step-1.5/issues/982",
    ),
    Known(
        "torch is too old for the package that is imported, which asks it for a type of number that it does not have "
        "yet.",
        f"{_TOGETHER}; without requirements: a newer torch, and torchvision and torchaudio with it.",
        words=("module 'torch' has no attribute 'float8_", "module 'torch' has no attribute 'float4_"),
        text=r"module 'torch' has no attribute 'float[48]_",
        alone=True,
        source="https://github.com/pytorch/ao/issues/2783",
    ),
    Known(
        "torch is too old for the package that is imported: it cannot read how that package writes its operators.",
        f"{_TOGETHER}; without requirements: a newer torch, and torchvision and torchaudio with it.",
        words=("infer_schema(func): Parameter",),
        alone=True,
        source="https://github.com/vladmandic/sdnext/issues/4878",
    ),
    Known(
        "A package is too old for this torch: torch._six is gone since torch 2.",
        "Update the package that the traceback names (most often DeepSpeed).",
        words=("No module named 'torch._six'",),
        alone=True,
        source="https://github.com/2U1/Qwen-VL-Series-Finetune/issues/54",
    ),
    Known(
        "bitsandbytes is too old for this triton, which has no triton.ops any more.",
        "pip install -U bitsandbytes",
        words=("No module named 'triton.ops'", "No module named `triton.ops`"),
        alone=True,
        source="https://github.com/ostris/ai-toolkit/issues/279",
    ),
    Known(
        "The program hands dtype= to from_pretrained, which transformers before 4.56 does not know.",
        f"{_TOGETHER}; without requirements: pip install -U transformers",
        error="TypeError",
        text=r"(?:ForConditionalGeneration|ForCausalLM|Model)\.__init__\(\) got an unexpected keyword argument "
        r"'dtype'",
        alone=True,
        source="https://github.com/Dao-AILab/flash-attention/issues/2200",
    ),
    Known(
        "transformers could not import a part of itself, because a package that it needs there is missing or broken; "
        "most often torchvision does not belong to this torch.",
        'python -c "import torchvision, sentencepiece" and python -c "from transformers import T5EncoderModel", with '
        "the name from the message, show which one.",
        words=("Could not import module '",),
        text=r"Could not import module '\w+'\. Are this object's requirements defined correctly",
        alone=True,
        source="https://github.com/huggingface/transformers/issues/40089",
    ),
    Known(
        "The package kernels is newer than this transformers knows.",
        "pip uninstall kernels, or install the version that transformers names.",
        words=("Either a revision or a version must be specified",),
        source="https://github.com/huggingface/kernels",
    ),
    Known(
        "Two packages do not go with each other: one asks the other for something that this version of it lacks.",
        "Install the versions that the trainer's own requirements name: pip install -r requirements.txt",
        avoid=_ONE_ALONE,
        text=r"cannot import name '\w+' from "
        r"'?(diffusers|transformers|peft|accelerate|torchao|huggingface_hub|optimum|tokenizers|bitsandbytes)",
        words=("cannot import name '",),
        source="https://github.com/huggingface/transformers/issues/36503",
    ),
    Known(
        "A compiled module was built for another NumPy than the one installed: for NumPy 1, where 2 is installed, or "
        "the other way round.",
        f'{_TOGETHER}; without requirements: update the module that the traceback names, or pip install "numpy<2"',
        words=(
            "A module that was compiled using NumPy 1",
            "numpy.dtype size changed, may indicate binary incompatibility",
            "numpy.ndarray size changed, may indicate binary incompatibility",
            "numpy.core.multiarray failed to import",
            "_ARRAY_API not found",
        ),
        alone=True,
        source="https://github.com/hollowstrawberry/kohya-colab/issues/287",
    ),
    Known(
        "setuptools 82 has no pkg_resources any more, which an older package asks for at its start or while it is "
        "built; Python 3.12 brings no setuptools at all.",
        'pip install "setuptools<82"; for a package that is built, add --no-build-isolation to its pip install.',
        words=("No module named 'pkg_resources", 'No module named "pkg_resources"'),
        alone=True,
        source="https://github.com/openmpf/openmpf/issues/2048",
    ),
    Known(
        "Python 3.12 and newer have no distutils, which an older package asks for.",
        'pip install "setuptools<82", or a Python that the trainer names (3.10 to 3.12).',
        words=("No module named 'distutils", "No module named 'imp'"),
        alone=True,
        source="https://docs.python.org/3/whatsnew/3.12.html",
    ),
    Known(
        "This Python was built without a part of its standard library, because that part's headers were missing.",
        "Install the system's package (liblzma-dev, libsqlite3-dev, libbz2-dev, libffi-dev), then Python anew; or "
        "take "
        "a Python of uv: uv venv --python 3.12",
        words=("No module named '_lzma'", "No module named '_sqlite3'", "No module named '_bz2'", "named '_ctypes'"),
        alone=True,
        source="https://github.com/docling-project/docling/issues/3179",
    ),
)
