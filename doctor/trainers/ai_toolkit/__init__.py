"""ai-toolkit: a YAML or JSON job with its processes."""

from ...model.trainer import Trainer, any_of, one_of_each

AI_TOOLKIT = Trainer(
    name="ai-toolkit",
    reader=f"{__name__}.read",
    marks=any_of("job+config", "job+process"),
    marker="toolkit/config_modules.py",
    miner=f"{__name__}.schema:mine",
    editor=f"{__name__}.editor:body",
    table="ai_toolkit.json",
    packages=("oyaml", "lycoris_lora"),
    requirements=("requirements.txt", "dgx_requirements.txt", "spark_requirements.txt"),
    entries=("run.py", "jobs/__init__.py", "extensions_built_in/sd_trainer/SDTrainer.py"),
    in_logs=r"ai-toolkit|extensions_built_in|[/\\]toolkit[/\\]|BaseSDTrainProcess|SDTrainer",
    failures=f"{__name__}:failures.yaml",
    recipe=f"{__name__}.refusals",
    writes=f"{__name__}.writes",
    start="python run.py {config}",
    has_processes=True,
    told=one_of_each("model", "datasets", "train"),
    sections=("", "train", "model", "network", "datasets/*", "sample", "save", "logging"),
    runner_keys=("train/gradient_checkpointing_interval", "logging/report_to"),
    workers=("datasets/0/num_workers", 2),
    prefetched=("datasets/0/prefetch_factor", 2),
    datasets_are_folders=True,
    caches_known=True,
    encodes_beside=True,
    lora_copies=True,
    optimizers_by_prefix=True,
    garbled_late=True,
    overflow="The loss becomes nan, the trainer counts it as 0 and goes on: the LoRA makes black images.",
    missing_package={
        "optimizer": "The trainer stops when it builds the optimizer, after the model was loaded and quantized.",
        "logging.wandb": "The trainer stops before the first step, after all latents and captions were encoded.",
    },
)
