"""`zdoctor train` on whole configs of sd-scripts and musubi-tuner: what they count, cut, save and paint happens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from zdoctor.doctor.cli import main
from zdoctor.tests.part_files import flux_command

from . import parts as made
from .test_component_files_command import PLAIN, here, keep

__all__ = ["here"]


def test_numbered_folders_epochs_and_samples(
    here: Path, flux: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = made.flux_model(here / "model", flux)
    files = made.flux_parts(model, here / "parts")
    keep(here, "openai/clip-vit-large-patch14", model / "tokenizer")
    keep(here, "google/t5-v1_1-xxl", model / "tokenizer_2")
    for number, name in enumerate(("2_a cat", "1_a dog", "none")):
        (here / "train" / name).mkdir(parents=True)
        shutil.copy(circles / f"{number}.png", here / "train" / name)
    Path("p.txt").write_text("a cat --w 64 --h 64 --s 1\n")
    options = {
        **{name: value for name, value in PLAIN.items() if name not in ("dataset_config", "max_train_steps")},
        "pretrained_model_name_or_path": files["transformer"],
        "clip_l": files["text_encoder"],
        "t5xxl": files["text_encoder_2"],
        "ae": files["vae"],
        "network_train_unet_only": True,
        "model_prediction_type": "raw",
        "timestep_sampling": "flux_shift",
        "train_data_dir": "train",
        "resolution": "64,64",
        "network_alpha": 2,
        "network_args": ["train_blocks=single", "loraplus_lr_ratio=2"],
        "max_train_epochs": 2,
        "save_every_n_epochs": 1,
        "sample_prompts": "p.txt",
        "sample_every_n_epochs": 2,
    }
    Path("train.sh").write_text(flux_command({**options, "resume": "state"}))
    assert main(["check", "train.sh"]) == 1  # sd-scripts asks for the output folder
    assert "own trainer" not in capsys.readouterr().out
    Path("train.sh").write_text(flux_command(options))
    main(["check", "train.sh"])
    assert "own trainer" in capsys.readouterr().out
    save_file({"lora_unet_x.lora_down.weight": torch.zeros(4, 8)}, "old.safetensors")
    Path("other.sh").write_text(flux_command({**options, "network_weights": "old.safetensors"}))
    main(["check", "other.sh"])
    assert "own trainer" not in capsys.readouterr().out
    assert main(["train", "other.sh"]) == 1 and "MDL009" in capsys.readouterr().err
    assert main(["train", "train.sh"]) == 0
    said = capsys.readouterr().out
    assert "Finished: 6 steps." in said and "Not as sd-scripts: all files of the run lie in out/cat." in said
    output = here / "out" / "cat"
    names = sorted(path.name for path in output.glob("*.safetensors"))
    assert names == ["cat.safetensors", "cat_000000003.safetensors"]
    assert [path.name for path in (output / "samples").iterdir()] == ["cat_000000006_0.png"]
    tensors = load_file(output / "cat.safetensors")
    assert tensors and all(key.startswith("transformer.single_transformer_blocks.") for key in tensors)
    state = torch.load(output / ".cat.state.pt", weights_only=True)["lora"]
    key = next(key for key in tensors if key.endswith("lora_B.weight"))
    torch.testing.assert_close(tensors[key], state[key] * 0.5)
    turned = {"network_module": "networks.oft_flux", "network_args": [], "network_dim": 2, "output_name": "turned"}
    short = {"max_train_epochs": 1, "sample_every_n_epochs": 0, "loss_type": "huber", "huber_schedule": "constant"}
    Path("oft.sh").write_text(flux_command({**options, **turned, **short}))
    assert main(["train", "oft.sh"]) == 0 and "Finished: 3 steps." in capsys.readouterr().out
    blocks = load_file(here / "out" / "turned" / "turned.safetensors")
    assert blocks and all(".attn." in key and key.endswith(".oft_blocks") for key in blocks)
    both = {"network_train_unet_only": None, "network_args": ["train_t5xxl=True"], "text_encoder_lr": [1e-3, 1e-4]}
    Path("text.sh").write_text(flux_command({**options, **both, **short, "output_name": "text"}))
    assert main(["train", "text.sh"]) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    assert "Finished: 3 steps." in said and "the LoRA of T5 is in the same file" in said
    trained = {key.partition(".")[0] for key in load_file(here / "out" / "text" / "text.safetensors")}
    assert trained == {"transformer", "text_encoder", "text_encoders"}


def test_a_config_file_of_musubi(here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = made.zimage_model(here / "model", tiny)
    files = made.zimage_parts(model, here / "parts")
    keep(here, "Tongyi-MAI/Z-Image", model / "tokenizer", "tokenizer")
    (here / "data" / "1.txt").unlink()
    Image.new("RGB", (300, 100), "red").save(here / "data" / "wide.png")
    (here / "data" / "wide.txt").write_text("a red bar")
    Path("sets.toml").write_text(
        '[general]\nresolution = [96, 96]\ncaption_extension = ".txt"\nenable_bucket = true\n'
        '[[datasets]]\nimage_directory = "data"\nnum_repeats = 2\n'
    )
    options = {
        **{name: value for name, value in PLAIN.items() if name != "max_train_steps"},
        "dit": str(files["transformer"]),
        "text_encoder": str(files["text_encoder"]),
        "vae": str(files["vae"]),
        "network_module": "networks.lora_zimage",
        "learning_rate": 1e-3,
        "timestep_sampling": "shift",
        "discrete_flow_shift": 2.0,
        "lr_scheduler": "cosine",
        "lr_warmup_steps": 0.5,
        "max_train_epochs": 1,
    }
    Path("c.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items()))
    assert main(["train", "c.toml"]) == 0, capsys.readouterr()
    told = json.loads((here / "out" / "cat" / "run.json").read_text())["settings"]
    assert (told["timestep_sampling.density"]["shift"], told["datasets"][0]["buckets"][0]) == (2.0, 96)
    lines = (here / "out" / "cat" / "losses.jsonl").read_text().splitlines()
    assert [json.loads(line)["lr"] for line in lines] == pytest.approx([0.0, 5e-4, 1e-3, 5e-4])
    assert not any("modulation" in key for key in load_file(here / "out" / "cat" / "cat.safetensors"))
    # the same by a command that names the script, and with another network
    file = Path("loha.sh")
    file.write_text(
        "accelerate launch zimage_train_network.py --config_file c.toml --network_module networks.loha "
        "--output_name hada --max_train_epochs 1 --lr_scheduler constant --lr_warmup_steps 0\n"
    )
    assert main(["train", str(file)]) == 0, capsys.readouterr()
    hada = load_file(here / "out" / "hada" / "hada.safetensors")
    assert hada and all(".hada_w" in key and "modulation" not in key for key in hada)
