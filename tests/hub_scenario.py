"""A trainer's way of loading, in a process of its own: `python -m zdoctor.tests.hub_scenario FOLDER`.

Builds the tiny pipeline, serves it, loads it component by component by its hub id (online, then offline), and from
the snapshot's path offline. Prints one line of JSON; the cache is left at FOLDER/hub.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from zdoctor.tests.hub_server import HubServer

REPO = "acme/tiny-image"


def main(folder: Path) -> None:
    with HubServer({}) as hub:
        os.environ.update(HF_ENDPOINT=hub.url, HF_HUB_CACHE=str(folder / "hub"))  # read when the client is imported
        from zdoctor.doctor.demo.tiny import build_tiny_pipeline

        model = folder / "model"
        build_tiny_pipeline(model)
        files = {p.relative_to(model).as_posix(): p.read_bytes() for p in sorted(model.rglob("*")) if p.is_file()}
        commit = hub.push(REPO, {**files, "README.md": b"# tiny", "assets/sample.png": b"\x89PNG"})
        snapshot = folder / "hub" / "models--acme--tiny-image" / "snapshots" / commit

        import huggingface_hub

        online = load(REPO)
        huggingface_hub.constants.HF_HUB_OFFLINE = True
        print(json.dumps({"online": online, "offline": load(REPO), "offline from the path": load(str(snapshot))}))


def load(model: str) -> str:
    """Load every part as ai-toolkit does; "" or the error."""
    diffusers: Any = import_module("diffusers")
    transformers: Any = import_module("transformers")
    parts = {
        "transformer": diffusers.ZImageTransformer2DModel,
        "tokenizer": transformers.AutoTokenizer,
        "text_encoder": transformers.Qwen3ForCausalLM,
        "vae": diffusers.AutoencoderKL,
    }
    try:
        for folder, loader in parts.items():
            loader.from_pretrained(model, subfolder=folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
