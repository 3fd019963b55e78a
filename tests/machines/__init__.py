"""The recorded machines of the test bed, each a function that returns a machine record.

None was recorded from a stranger's computer: each is put together from what is publicly known of such a machine,
and says so. Model folders carry the real tensor names and shapes (full size where memory matters, tiny elsewhere).
"""

from __future__ import annotations

import hashlib
import json
import ntpath
import posixpath
from functools import cache
from typing import Any

from zdoctor.doctor.families.tensors import needed_tensors

GIB = 1 << 30
WSL = "Linux 5.15.167.4-microsoft-standard-WSL2"
COMMIT = "5f" * 20
# ai-toolkit's environment, installed for the card
PACKAGES = {
    "torch": "2.13.0+cu130",
    "diffusers": "0.40.0",
    "transformers": "5.5.3",
    "huggingface_hub": "1.23.0",
    "hf_xet": "1.8.0",
    "bitsandbytes": "0.50.2",
    "prodigyopt": "1.1.2",
    "oyaml": "1.0",
    "lycoris_lora": "1.8.3",
}
Record = dict[str, Any]

FULL: dict[str, dict[str, Any]] = {
    "transformer": {
        "_class_name": "ZImageTransformer2DModel",
        "all_patch_size": [2],
        "all_f_patch_size": [1],
        "in_channels": 16,
        "dim": 3840,
        "n_layers": 30,
        "n_refiner_layers": 2,
        "n_heads": 30,
        "n_kv_heads": 30,
        "cap_feat_dim": 2560,
        "axes_dims": [32, 48, 48],
        "axes_lens": [1024, 512, 512],
    },
    "text_encoder": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "intermediate_size": 9728,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "vae": {
        "_class_name": "AutoencoderKL",
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": 16,
        "layers_per_block": 2,
        "block_out_channels": [128, 256, 512, 512],
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "norm_num_groups": 32,
        "sample_size": 1024,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "mid_block_add_attention": True,
    },
}

FLUX_DEV: dict[str, dict[str, Any]] = {
    "transformer": {
        "_class_name": "FluxTransformer2DModel",
        "patch_size": 1,
        "in_channels": 64,
        "num_layers": 19,
        "num_single_layers": 38,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "guidance_embeds": True,
    },
    "text_encoder": {
        "architectures": ["CLIPTextModel"],
        "model_type": "clip_text_model",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 77,
        "vocab_size": 49408,
    },
    "text_encoder_2": {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "d_model": 4096,
        "d_kv": 64,
        "d_ff": 10240,
        "num_layers": 24,
        "num_heads": 64,
        "vocab_size": 32128,
        "feed_forward_proj": "gated-gelu",
    },
    "vae": FULL["vae"],
}


def model(folder: str, join: Any, parts: dict[str, dict[str, Any]] = FULL) -> dict[str, Any]:
    """The files of a complete Z-Image pipeline below `folder`."""
    files: dict[str, Any] = {}
    for name, config in parts.items():
        files[join(folder, name, "config.json")] = {"json": config}
        class_name = config.get("_class_name") or config["architectures"][0]
        tensors = {k: ["BF16", list(v)] for k, v in (needed_tensors(class_name, config) or {}).items()}
        file = "model.safetensors" if name.startswith("text_encoder") else "diffusion_pytorch_model.safetensors"
        files[join(folder, name, file)] = {"tensors": tensors}
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        files[join(folder, "tokenizer", file)] = {"text": "{}"}
    files[join(folder, "scheduler", "scheduler_config.json")] = {"json": {"shift": 3.0}}
    classes = {"transformer": "ZImageTransformer2DModel", "text_encoder": "Qwen3ForCausalLM", "vae": "AutoencoderKL"}
    files[join(folder, "model_index.json")] = {"json": {"_class_name": "ZImagePipeline", **classes}}
    return files


def flux_model(folder: str, join: Any) -> dict[str, Any]:
    """The files of a complete FLUX.1-dev below `folder`, CLIP under the names of older versions, as published."""
    files = model(folder, join, FLUX_DEV)
    clip = files[join(folder, "text_encoder", "model.safetensors")]
    clip["tensors"] = {f"text_model.{name}": tensor for name, tensor in clip["tensors"].items()}
    for file in ("tokenizer.json", "tokenizer_config.json", "spiece.model"):
        files[join(folder, "tokenizer_2", file)] = {"text": "{}"}
    files[join(folder, "model_index.json")] = {"json": {"_class_name": "FluxPipeline"}}
    return files


def cached(hub: str, join: Any, repo: str, files: dict[str, Any], *, symlinks: bool = True) -> dict[str, Any]:
    """The same files as a hub cache: blobs, a snapshot of links (or of plain files), a ref and the tree listing."""
    root = join(hub, "models--" + repo.replace("/", "--"))
    made: dict[str, Any] = {}
    tree: dict[str, Any] = {}
    for name, entry in files.items():
        text = json.dumps(entry, sort_keys=True).encode()
        if "tensors" in entry:
            size = _size(entry["tensors"])
            sha = hashlib.sha256(text).hexdigest()
            tree[name] = {"size": size, "blob_id": hashlib.sha1(text).hexdigest(), "lfs_sha256": sha}
            blob = sha
        else:
            data = (entry["text"] if "text" in entry else json.dumps(entry["json"])).encode()
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            tree[name] = {"size": len(data), "blob_id": blob}
        place = join(root, "snapshots", COMMIT, *name.split("/"))
        if symlinks:
            up = "/".join([".."] * (2 + name.count("/")))
            made[place] = {"link": f"{up}/blobs/{blob}"}
            made[join(root, "blobs", blob)] = entry
        else:
            made[place] = entry
    made[join(root, "refs", "main")] = {"text": COMMIT}
    made[join(root, "trees", f"{COMMIT}.json")] = {"json": {"format_version": 1, "files": tree}}
    return made


def _size(tensors: dict[str, Any]) -> int:
    offset, header = 0, {}
    for name, (dtype, shape) in tensors.items():
        count = 1
        for side in shape:
            count *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + count * 2]}
        offset += count * 2
    return 8 + len(json.dumps(header).encode()) + offset


def adapter(parts: dict[str, dict[str, Any]] = FULL, rank: int = 16) -> dict[str, Any]:
    """A training adapter over the eight Linears of every layer."""
    dim, layers = parts["transformer"]["dim"], parts["transformer"]["n_layers"]
    inner = int(dim / 3 * 8)
    shapes = {
        **dict.fromkeys(("attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0"), (dim, dim)),
        "feed_forward.w1": (inner, dim),
        "feed_forward.w2": (dim, inner),
        "feed_forward.w3": (inner, dim),
        "adaLN_modulation.0": (4 * dim, min(dim, 256)),
    }
    tensors = {}
    for layer in range(layers):
        for linear, (rows, columns) in shapes.items():
            stem = f"diffusion_model.layers.{layer}.{linear}"
            tensors[f"{stem}.lora_A.weight"] = ["BF16", [rank, columns]]
            tensors[f"{stem}.lora_B.weight"] = ["BF16", [rows, rank]]
    return {"tensors": tensors}


def dataset(folder: str, join: Any, count: int = 12, side: int = 1024) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for index in range(count):
        files[join(folder, f"{index:03d}.png")] = {"size": 900_000 + index, "image": [side, side]}
        files[join(folder, f"{index:03d}.txt")] = {"text": "a woman"}
    return files


def system(os: str, memory: int, home: str, cwd: str, **environment: str) -> Record:
    return {
        "os": os,
        "release": {"linux": "Linux 6.8", "windows": "Windows 11"}[os],
        "python": "3.11.9",
        "cwd": cwd,
        "home": home,
        "cpus": 8,
        "memory_total": memory,
        "memory_available": int(memory * 0.85),
        "environment": environment,
    }


def gpu(name: str, total: float, free: float, capability: tuple[int, int]) -> Record:
    return {
        "name": name,
        "memory_total": int(total * GIB),
        "memory_free": int(free * GIB),
        "capability": list(capability),
        "driver": "580.65",
    }


def machine(about: str, system: Record, files: dict[str, Any], **sections: Any) -> Record:
    return {
        "schema": "zdoctor.machine/1",
        "about": about,
        "live": False,
        "complete": True,
        "system": system,
        "host": {"shared_memory": 8 * GIB, "open_files": 1024} if system["os"] == "linux" else {},
        "packages": PACKAGES,
        "metadata": [{"name": name, "version": version, "folder": ""} for name, version in PACKAGES.items()],
        **sections,
        "files": files,
    }


def speed(path: str, kind: str, latency: float, low: float, high: float, filesystem: str = "ext4") -> Record:
    return {"path": path, "kind": kind, "filesystem": filesystem, "latency": latency, "low": low, "high": high}


def kaggle() -> Record:
    """The seed's machine after the seed's own download script: tokenizer and text-encoder configs only."""
    join, base = posixpath.join, "/kaggle/working/Z-Image-Turbo-HF"
    whole = model(base, join)
    shards = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
    names = list(whole[join(base, "text_encoder", "model.safetensors")]["tensors"])
    weight_map = {name: shards[min(2, i * 3 // len(names))] for i, name in enumerate(names)}
    index = {"metadata": {"total_size": 8_044_936_192}, "weight_map": weight_map}
    files = {path: entry for path, entry in whole.items() if "/tokenizer/" in path}
    files[join(base, "text_encoder", "config.json")] = whole[join(base, "text_encoder", "config.json")]
    files[join(base, "text_encoder", "generation_config.json")] = {"text": "{}"}
    files[join(base, "text_encoder", "model.safetensors.index.json")] = {"json": index}
    folder = "/kaggle/working/zimage_turbo_training_adapter"
    files[join(folder, "zimage_turbo_training_adapter_v2.safetensors")] = adapter()
    files |= dataset("/kaggle/input/testarossa-dataset/testarossa-dataset", join, 20)
    files["/kaggle/working/ai-toolkit/run.py"] = {"text": ""}
    return machine(
        "a Kaggle notebook with two T4, put together from public documentation",
        system("linux", 30 * GIB, "/root", "/kaggle/working/ai-toolkit"),
        files,
        gpus=[gpu("Tesla T4", 15.0, 14.7, (7, 5))] * 2,
        mounts=[
            {"point": "/", "filesystem": "overlay", "free": 8 * 10**9, "refusal": None},
            {"point": "/kaggle/input", "filesystem": "ext4", "free": 0, "refusal": "read-only file system"},
            {"point": "/kaggle/working", "filesystem": "ext4", "free": 19 * 10**9, "refusal": None},
        ],
        speeds=[speed("/", "ssd", 2e-4, 3e8, 9e8, "overlay")],
    )


def healthy_kaggle() -> Record:
    """The healthy twin: the same notebook with the whole model as a data set and the images copied to working."""
    join = posixpath.join
    record = kaggle()
    record["about"] = "a Kaggle notebook with two T4 where everything is in place"
    record["files"] |= model("/kaggle/input/z-image-turbo/Z-Image-Turbo", join)
    record["files"] |= dataset("/kaggle/working/testarossa-dataset", join, 20)
    return record


def windows() -> Record:
    """A desktop with the cache on the system SSD, without symbolic links, and the model copied to a hard disk."""
    join = ntpath.join
    hub = r"C:\Users\mei\.cache\huggingface\hub"
    files = model(r"D:\ai-models\Z-Image-Turbo", join)
    plain = model("", posixpath.join)
    files |= cached(hub, join, "Tongyi-MAI/Z-Image-Turbo", plain, symlinks=False)
    files[r"D:\ai-models\zimage_turbo_training_adapter\zimage_turbo_training_adapter_v2.safetensors"] = adapter()
    files |= dataset(r"D:\data\bob", join)
    files[r"C:\ai-toolkit\run.py"] = {"text": "x" * 70_000}
    return machine(
        "a Windows desktop with an SSD and a hard disk, put together from a user's report",
        system("windows", 64 * GIB, r"C:\Users\mei", r"C:\ai-toolkit"),
        files,
        gpus=[gpu("NVIDIA GeForce RTX 4090", 24.0, 22.4, (8, 9))],
        mounts=[
            {"point": "C:\\", "filesystem": "NTFS", "free": 300 * 10**9, "refusal": None},
            {"point": "D:\\", "filesystem": "NTFS", "free": 900 * 10**9, "refusal": None},
        ],
        speeds=[
            speed("C:\\", "ssd", 1e-4, 1.5e9, 3e9, "NTFS"),
            speed("D:\\", "hdd", 0.012, 9e7, 1.6e8, "NTFS"),
        ],
    )


def colab() -> Record:
    """Colab with the model on a mounted drive."""
    join = posixpath.join
    files = model("/content/drive/MyDrive/Z-Image-Turbo", join)
    files |= dataset("/content/drive/MyDrive/faces", join)
    files["/content/ai-toolkit/run.py"] = {"text": "x" * 70_000}
    return machine(
        "a Colab notebook with an L4, put together from public documentation",
        system("linux", 53 * GIB, "/root", "/content/ai-toolkit"),
        files,
        gpus=[gpu("NVIDIA L4", 22.5, 22.0, (8, 9))],
        mounts=[
            {"point": "/", "filesystem": "overlay", "free": 180 * 10**9, "refusal": None},
            {"point": "/content/drive", "filesystem": "fuse.drive", "free": 10 * 10**9, "refusal": None},
        ],
        speeds=[
            speed("/", "ssd", 2e-4, 8e8, 1.4e9, "overlay"),
            speed("/content/drive", "network", 0.04, 2.5e7, 6e7, "fuse.drive"),
        ],
    )


def wsl() -> Record:
    """A WSL laptop whose cache lost its ref after an interrupted update."""
    join, hub = posixpath.join, "/home/tran/.cache/huggingface/hub"
    files = cached(hub, join, "Tongyi-MAI/Z-Image-Turbo", model("", join))
    root = join(hub, "models--Tongyi-MAI--Z-Image-Turbo")
    files[join(root, "refs", "main")] = {"text": "9e" * 20}
    files[join(root, "blobs", "7c" * 32 + ".0123abcd.incomplete")] = {"size": 4_000_000_000, "modified_ns": 1}
    files |= dataset("/mnt/c/Users/tran/pictures", join, side=768)
    files["/home/tran/ai-toolkit/run.py"] = {"text": ""}
    return machine(
        "a laptop under WSL 2, put together from users' reports",
        {**system("linux", 31 * GIB, "/home/tran", "/home/tran/ai-toolkit"), "release": WSL},
        files,
        gpus=[gpu("NVIDIA GeForce RTX 4060 Laptop GPU", 8.0, 6.9, (8, 9))],
        mounts=[
            {"point": "/", "filesystem": "ext4", "free": 400 * 10**9, "refusal": None},
            {"point": "/mnt/c", "filesystem": "9p", "free": 80 * 10**9, "refusal": None},
        ],
        speeds=[speed("/", "ssd", 1e-4, 1e9, 2e9), speed("/mnt/c", "network", 2e-3, 5e7, 2e8, "9p")],
    )


def server() -> Record:
    """A shared server whose first card is nearly full of other people's work."""
    join = posixpath.join
    files = model("/data/models/Z-Image-Turbo", join)
    files["/data/models/adapters/zimage_turbo_training_adapter_v2.safetensors"] = adapter()
    files |= dataset("/data/faces", join)
    files["/home/lin/ai-toolkit/run.py"] = {"text": ""}
    return machine(
        "a shared server with one A6000, put together from a user's report",
        system("linux", 251 * GIB, "/home/lin", "/home/lin/ai-toolkit"),
        files,
        gpus=[gpu("NVIDIA RTX A6000", 48.0, 3.1, (8, 6))],
        mounts=[{"point": "/", "filesystem": "ext4", "free": 900 * 10**9, "refusal": None}],
        speeds=[speed("/", "ssd", 9e-5, 2e9, 3e9)],
    )


def no_driver() -> Record:
    """The server after a driver update without a restart: NVML does not answer."""
    record = server()
    record["about"] = "a server whose GPU driver does not answer"
    record["gpus"] = "NVML: Driver/library version mismatch"
    return record


def full_disk() -> Record:
    """A disk with nothing left on it."""
    record = server()
    record["about"] = "a server whose disk is full"
    record["mounts"] = [{"point": "/", "filesystem": "ext4", "free": 0, "refusal": "no space left"}]
    record["gpus"] = [gpu("NVIDIA RTX A6000", 48.0, 47.0, (8, 6))]
    return record


def healthy() -> Record:
    """The server on a good day, with the adapter and the model in place."""
    record = server()
    record["about"] = "a server where everything is in place"
    record["gpus"] = [gpu("NVIDIA RTX A6000", 48.0, 47.2, (8, 6))]
    return record


def flux() -> Record:
    """A workstation with FLUX.1-dev in a folder, a copy of it that was cut off, and the same in the hub cache."""
    join, torn = posixpath.join, "/models/FLUX.1-dev-copy"
    files = flux_model("/models/FLUX.1-dev", join)
    copy = flux_model(torn, join)
    del copy[join(torn, "text_encoder_2", "model.safetensors")]
    files |= copy | cached(
        "/home/ana/.cache/huggingface/hub", join, "black-forest-labs/FLUX.1-dev", flux_model("", join)
    )
    files |= dataset("/data/faces", join)
    files["/home/ana/ai-toolkit/run.py"] = {"text": ""}
    return machine(
        "a workstation with FLUX.1-dev, put together from public documentation",
        system("linux", 128 * GIB, "/home/ana", "/home/ana/ai-toolkit"),
        files,
        gpus=[gpu("NVIDIA GeForce RTX 4090", 24.0, 23.3, (8, 9))],
        mounts=[{"point": "/", "filesystem": "ext4", "free": 900 * 10**9, "refusal": None}],
        speeds=[speed("/", "ssd", 9e-5, 2e9, 3e9)],
    )


def _with_torch(record: Record, version: str) -> Record:
    """The machine with another build of torch."""
    packages = {**PACKAGES, "torch": version}
    metadata = [{"name": name, "version": of, "folder": ""} for name, of in packages.items()]
    return {**record, "packages": packages, "metadata": metadata}


def container() -> Record:
    """The server's container as Docker starts it: 64 MB of shared memory, 64 GB of RAM by its control group."""
    record = healthy()
    record["about"] = "a container with Docker's own limits, put together from public documentation"
    record["host"]["shared_memory"] = 64 << 20
    record["system"] |= {"memory_total": 64 * GIB, "memory_available": 60 * GIB, "contained": True, "swap": 0}
    return record


def spilling() -> Record:
    """The Windows desktop with a small card, and a page file of a fixed size."""
    record = windows()
    record["about"] = "a Windows desktop with a card of 8 GB, put together from users' reports"
    record["gpus"] = [{**gpu("NVIDIA GeForce RTX 3070", 8.0, 7.1, (8, 6)), "driver_model": "WDDM"}]
    record["host"] = {"commit_limit": 70 * GIB, "commit_free": 6 * GIB, "long_paths": False}
    return record


def gb10() -> Record:
    """A GB10, whose GPU has no memory of its own, as NVML and the system tell of one."""
    record = healthy()
    record["about"] = "a DGX Spark, put together from what its driver was seen to say"
    record["system"] |= {"memory_total": 119 * GIB, "memory_available": 110 * GIB, "machine": "aarch64"}
    card = {**gpu("NVIDIA GB10", 119, 110, (12, 1)), "unified": True}
    record["gpus"] = [{**card, "source": "recorded: it shares the computer's memory"}]
    return record


def rocm() -> Record:
    """A workstation with a card of AMD and torch for it."""
    record = _with_torch(healthy(), "2.13.0+rocm7.1")
    record["about"] = "a workstation with a Radeon RX 7900 XTX, put together from its driver's documentation"
    card = gpu("AMD GPU (gfx1100)", 24.0, 23.1, (0, 0))
    record["gpus"] = [{**card, "capability": None, "driver": "", "maker": "amd"}]
    return record


def mac() -> Record:
    """A Mac with the memory that its GPU shares, and torch from PyPI."""
    record = _with_torch(healthy(), "2.13.0")
    record["about"] = "a Mac Studio with an M3 Ultra, put together from public documentation"
    record["system"] |= {"os": "darwin", "release": "Darwin 25.1.0", "machine": "arm64"}
    record["system"] |= {"memory_total": 96 * GIB, "memory_available": 80 * GIB}
    record["gpus"], record["host"] = [], {"open_files": 256, "encoding": "UTF-8"}
    record["mounts"] = [{"point": "/", "filesystem": "apfs", "free": 900 * 10**9, "refusal": None}]
    return record


MACHINES = {
    "kaggle_t4x2": kaggle,
    "kaggle_healthy": healthy_kaggle,
    "windows_hdd": windows,
    "colab": colab,
    "wsl_laptop": wsl,
    "a6000_shared": server,
    "no_driver": no_driver,
    "full_disk": full_disk,
    "healthy": healthy,
    "flux_workstation": flux,
    "container": container,
    "windows_spill": spilling,
    "gb10": gb10,
    "rocm": rocm,
    "mac": mac,
}


def load(name: str) -> Record:
    """The record of a machine, as it would be read from a machine file."""
    record: Record = json.loads(_written(name))
    return record


@cache
def _written(name: str) -> str:
    return json.dumps(MACHINES[name]())


def text(name: str) -> str:
    """The machine file: one file or section a line, so that differences stay readable."""
    compact = json.dumps(MACHINES[name](), ensure_ascii=False, separators=(",", ":"))
    return compact.replace('},"/', '},\n"/').replace(',"files":', ',\n"files":') + "\n"
