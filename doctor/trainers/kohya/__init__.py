"""kohya's trainers, sd-scripts and musubi-tuner: options on a command line or in TOML, and a TOML of datasets."""

from ...model.trainer import Trainer, any_of, one_of_each

_SECTIONS = ("general", "datasets/*", "datasets/*/subsets/*")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_SD_MODELS = ("flux", "sdxl", "sd3", "lumina", "hunyuan_image", "anima")
_SD_SCRIPTS = (
    *(f"{model}_train" for model in _SD_MODELS),
    *("train_network", "train_db", "fine_tune", "train_textual_inversion", "sdxl_train_textual_inversion"),
)
_TOLD = one_of_each(
    "pretrained_model_name_or_path dit vae ae text_encoder text_encoder1 text_encoder2 clip_l clip_g t5xxl t5 qwen3",
    "dataset_config train_data_dir in_json dataset_class datasets",
    "output_dir output_name",
    "network_module network_dim network_alpha network_args network_weights lora_type",
    "max_train_steps max_train_epochs learning_rate unet_lr epoch",
)
_SD_OPTIONS = ("config_file", "dataset_config", "output_name")
_MODELS = (
    *("flux_2", "flux_kontext", "fpack", "hidream_o1", "hv", "hv_1_5", "ideogram4", "kandinsky5", "krea2"),
    *("qwen_image", "wan", "zimage"),
)
MUSUBI_TUNER = Trainer(
    name="musubi-tuner",
    called=("musubi",),
    reader=f"{__name__}.musubi",
    marks=any_of(
        *("dit", "image_directory", "image_jsonl_file", "video_directory", "video_jsonl_file"),
        *(f"datasets+{key}" for key in ("video_dir", "target_frames", "frame_extraction")),  # sd-scripts has none
        *("network_module+num_timestep_buckets", "network_module+flash_attn"),
        *(f"{model}_{script}" for model in _MODELS for script in ("train", "train_network")),
        *("cache_latents.py+dataset_config", "cache_text_encoder_outputs.py+dataset_config"),
    ),
    marker="src/musubi_tuner/dataset/config_utils.py",
    miner=f"{__name__}.schema:mine_musubi",
    editor=f"{__name__}.schema:for_editor",
    list_of=f"{__name__}.arguments:list_of",
    table="musubi.json",
    packages=("musubi_tuner",),
    requirements=("pyproject.toml",),
    entries=("src/musubi_tuner/hv_train_network.py",),
    in_logs=r"(?i:musubi)",
    failures=f"{__name__}:failures.yaml",
    recipe=f"{__name__}.recipe",
    writes=f"{__name__}.writes",
    told=_TOLD,
    refuses_unknown=frozenset(("section", "shell")),
    workers=("max_data_loader_n_workers", 8),
    pins="use_pinned_memory_for_block_swap",
    dataset_sections=_SECTIONS,
    component_files=True,
    all_sharded=True,
    strict_names=True,
    own_classes=True,
    top_suffixes=(*_SUFFIXES, ".avif"),
    optimizers_by_path=True,
    overflow="The loss may become nan; musubi-tuner's documentation leaves open which of the two is better.",
    overflow_is_certain=False,
)
SD_SCRIPTS = Trainer(
    name="sd-scripts",
    reader=f"{__name__}.sd_scripts",
    marks=any_of(
        *("network_module", "pretrained_model_name_or_path+train_data_dir"),
        *("pretrained_model_name_or_path+ae", "pretrained_model_name_or_path+dataset_config", "subsets", "image_dir"),
        "num_cpu_threads_per_process+max_resolution",
        *("flux1_checkbox", "lycoris_preset", "lora_type+network_dim", "caption_metadata_filename"),
        *("pretrained_model_name_or_path+save_model_as", "pretrained_model_name_or_path+output_name"),
        *(f"{model}_train_network" for model in _SD_MODELS),
        *(f"{script}+{option}" for script in _SD_SCRIPTS for option in _SD_OPTIONS),
    ),
    marker="library/train_util.py",
    miner=f"{__name__}.schema:mine_sd_scripts",
    editor=f"{__name__}.schema:for_editor",
    list_of=f"{__name__}.arguments:list_of",
    table="sd_scripts.json",
    packages=("library", "voluptuous"),
    requirements=("requirements.txt",),
    entries=("train_network.py",),
    in_logs=r"(?i:sd-scripts|sd_scripts|kohya|[/\\](?:flux_|sdxl_|sd3_)?train_network\.py)",
    failures=f"{__name__}:failures.yaml",
    recipe=f"{__name__}.recipe",
    writes=f"{__name__}.writes",
    has_gui=True,
    of_gui=("noise_offset_type", "epoch", "show_timesteps", "show_timesteps_resolution", "train_inpainting"),
    told=_TOLD,
    refuses_unknown=frozenset(("section", "shell")),
    workers=("max_data_loader_n_workers", 8),
    dataset_sections=_SECTIONS,
    component_files=True,
    transformer_in_folder=True,
    missing_on_meta=True,
    top_suffixes=_SUFFIXES,
    first_line=True,
)
