"""SimpleTuner: options in JSON, TOML or shell variables, and a file of datasets."""

from ...model.trainer import Trainer, any_of

SIMPLETUNER = Trainer(
    name="SimpleTuner",
    reader=f"{__name__}.read",
    marks=any_of(
        *("model_family", "data_backend_config", "model_type+output_dir", "dataloader_config", "trainer_extra_args"),
        # a file of datasets, and a config.env that only says how the trainer is started
        *("instance_data_dir+id", "cache_dir_vae+id", "training_num_processes"),
    ),
    marker="simpletuner/helpers/configuration/cmd_args.py",
    miner=f"{__name__}.schema:mine",
    editor=f"{__name__}.schema:for_editor",
    table="simpletuner.json",
    packages=("simpletuner",),
    requirements=("pyproject.toml",),
    entries=("simpletuner/train.py",),
    in_logs=r"(?i:simpletuner)",
    failures=f"{__name__}:failures.yaml",
    recipe=f"{__name__}.recipe",
    becomes_command_line=True,
    dataset_sections=("general", "datasets/*", "datasets/*/subsets/*"),
    refuses_unknown=frozenset(("top", "shell")),
    pins="ramtorch",
    checkpoint_folders=True,
    encodes_first=True,
    lora_as_model=True,
    draws_under_autocast=True,
    keeps_gradients=True,
    skips_garbled=True,
)
