"""ai-toolkit: values that it refuses late, datasets, memory."""

from __future__ import annotations

from ..shapes import ai_toolkit

_BASE = "jobs/process/BaseSDTrainProcess.py"

CASES: dict[str, tuple[str, str, str]] = {
    # ai-toolkit: values that it refuses late
    "qtype nf4": (
        ai_toolkit("KeyError: 'nf4'", "return qtypes[qtype]", "get_qtype", "toolkit/util/quantize.py"),
        "CFG004",
        "qtype",
    ),
    "recovery adapter of one part": (
        ai_toolkit("IndexError: list index out of range", 'repo_id = f"{path_split[0]}/{path_split[1]}"'),
        "CFG004",
        "recovery adapter",
    ),
    "optimizer adamw16": (ai_toolkit("ValueError: Unknown optimizer type adamw16"), "CFG004", ""),
    "scheduler step": (
        ai_toolkit("TypeError: StepLR.__init__() got an unexpected keyword argument 'total_iters'"),
        "CFG004",
        "",
    ),
    "scheduler polynomial": (
        ai_toolkit("ValueError: Scheduler must be cosine, cosine_with_restarts, step, linear or constant"),
        "CFG004",
        "",
    ),
    "arch z-image": (
        ai_toolkit(
            "ValueError: Pipeline <class 'diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion."
            "StableDiffusionPipeline'> expected ['vae', 'unet'], but only {'vae'} were passed."
        ),
        "CFG004",
        "",
    ),
    "linear 0": (
        ai_toolkit("ValueError: There are not any lora modules in this network. Check your config and try again"),
        "CFG004",
        "",
    ),
    "timestep_type sigmod": (ai_toolkit("ValueError: Invalid timestep type: sigmod"), "CFG004", ""),
    "content_or_style stlye": (ai_toolkit("ValueError: Unknown content_or_style stlye", file=_BASE), "CFG004", ""),
    "quoted lr": (ai_toolkit("TypeError: can't multiply sequence by non-int of type 'float'"), "CFG004", ""),
    "quoted lr, 8-bit": (
        ai_toolkit("TypeError: '<=' not supported between instances of 'float' and 'str'"),
        "CFG004",
        "",
    ),
    "no name_or_path": (ai_toolkit("ValueError: name_or_path must be specified"), "CFG004", ""),
    "unknown job": (ai_toolkit("ValueError: Unknown job type extention"), "CFG004", ""),
    "unknown process": (
        ai_toolkit("ValueError: config file is invalid. Unknown process type: sd_trainr"),
        "CFG004",
        "",
    ),
    "two adapters": (
        ai_toolkit("ValueError: Cannot use accuracy recovery adapter and assistant lora at the same time. Use one."),
        "CFG004",
        "",
    ),
    "text encoder trained and unloaded": (
        ai_toolkit("ValueError: Cannot unload text encoder if training text encoder"),
        "CFG004",
        "",
    ),
    "inference LoRA": (
        ai_toolkit("AttributeError: 'NoneType' object has no attribute 'is_active'"),
        "CFG004",
        "inference_lora_path",
    ),
    "no training_folder": (
        ai_toolkit(
            "TypeError: expected str, bytes or os.PathLike object, not NoneType",
            "x",
            file="jobs/process/BaseTrainProcess.py",
        ),
        "CFG004",
        "training_folder",
    ),
    "no datasets": (
        ai_toolkit("TypeError: 'NoneType' object is not iterable", "for raw_dataset in raw_datasets:", file=_BASE),
        "CFG004",
        "datasets",
    ),
    "no variable": (
        ai_toolkit("ValueError: Environment variable DATA not set. Please ensure it's defined before proceeding."),
        "CFG001",
        "",
    ),
    "no job key": (ai_toolkit("ValueError: config file must have a job key"), "CFG001", ""),
    "config not found": (ai_toolkit("ValueError: Could not find config file foo.yaml"), "", "whole path"),
    "escape in YAML": (
        ai_toolkit(
            'yaml.scanner.ScannerError: while scanning\n  in "x.yaml", line 5, column 9\nfound unknown escape '
            "character 'Z'"
        ),
        "PTH002",
        "",
    ),
    "eight digits": (
        ai_toolkit("OverflowError: Python int too large to convert to C int", "yaml.load(x)"),
        "PTH002",
        "eight digits",
    ),
    "unclosed quote": (
        ai_toolkit("yaml.parser.ParserError: expected <block end>, but found '<scalar>'"),
        "CFG001",
        "",
    ),
    # ai-toolkit: datasets, caches, memory
    "config in another encoding": (
        ai_toolkit(
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe4 in position 9", file="toolkit/config.py"
        ),
        "CFG001",
        "The config",
    ),
    "caption in another encoding": (
        ai_toolkit("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x92 in position 3: invalid start byte"),
        "DAT003",
        "UTF-8",
    ),
    "name outside of the code page": (
        ai_toolkit("UnicodeEncodeError: 'charmap' codec can't encode characters in position 0-3"),
        "",
        "code page",
    ),
    "cache of another text encoder": (
        ai_toolkit(
            "RuntimeError: The size of tensor a (512) must match the size of tensor b (32) at non-singleton "
            "dimension 1",
            "cap_feats = self.cap_embedder(cap_feats)",
        ),
        "",
        "_t_e_cache",
    ),
    "three steps without room": (
        ai_toolkit("RuntimeError: OOM during training step 3 times in a row, aborting training", file=_BASE),
        "MEM001",
        "not enough memory",
    ),
    "page file": (
        ai_toolkit("OSError: The paging file is too small for this operation to complete. (os error 1455)"),
        "MEM002",
        "page file",
    ),
    "parts on two devices": (
        ai_toolkit("RuntimeError: Expected all tensors to be on the same device, but found at least two devices"),
        "",
        "layer_offloading",
    ),
    "stale diffusers": (
        ai_toolkit(
            "ImportError: Diffusers is out of date. Update diffusers to the latest version by doing pip uninstall"
        ),
        "PKG004",
        "newer diffusers",
    ),
    "packages apart": (
        ai_toolkit("ImportError: cannot import name 'Gemma4UnifiedForConditionalGeneration' from 'transformers'"),
        "",
        "5.9.0 not yet. The one that is installed is older.",
    ),
    "half an installation": (
        ai_toolkit(
            "ModuleNotFoundError: Could not import module 'T5EncoderModel'. Are this object's requirements "
            "defined correctly?"
        ),
        "",
        "could not import a part",
    ),
    "torchvision of another torch": (
        ai_toolkit("RuntimeError: operator torchvision::nms does not exist"),
        "",
        "torchvision",
    ),
    "lion": (
        ai_toolkit("ImportError: Please install lion_pytorch to use Lion optimizer -> pip install lion-pytorch"),
        "PKG005",
        "lion",
    ),
    "push without a token": (
        ai_toolkit("EOFError: EOF when reading a line", "interpreter_login(new_session=False)", file=_BASE),
        "TRN011",
        "token",
    ),
    "no key for wandb": (
        ai_toolkit("wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login()"),
        "TRN011",
        "key",
    ),
    "the message only": ("Error running job: Unknown optimizer type adamw16\n", "CFG004", ""),
    "not finite": ("".join(f"loss is nan\nstep {n}\n" for n in range(4)), "TRN003", "finite"),
    "not quantized": (
        "Failed to quantize attention.to_q: tuple index out of range\n" * 3,
        "",
        "could not be quantized",
    ),
    "captions not read": ("This will train only with a blank prompt or trigger word, if set\n", "TRN006", "captions"),
    "steps left out": (
        "################\n# OOM during training step, skipping batch 1/3 #\n################\n",
        "MEM001",
        "leaves such a step out",
    ),
}
