"""Compiled packages that cannot work together, by what their own metadata and file names say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Run, found
from ..doctor.model.environment import Environment, Installed, Version, release
from ..doctor.rules import NotApplicable, prevents, rule
from .packages import of_optimizer

# bitsandbytes 0.50.0 takes the nearest library of the same major CUDA version, older ones only the exact one
# (bitsandbytes/cextension.py of 0.45.5, 0.48.2 and 0.50.2; commit 9da71092).
_NEAREST_SINCE = (0, 50)
# What a build says of its torch in its version: flash_attn 2.8.3+cu12torch2.8cxx11abitrue,
# natten 0.21.0+torch270cu128, torch_scatter 2.1.2+pt26cu124; sageattention 2.2.0+cu128torch2.9.0andhigher.post4 keeps
# to the stable ABI.
_LABELS = (r"torch(\d)\.(\d+)", r"torch(\d)(\d{1,2})0(?=cu|$)", r"pt(\d)(\d{1,2})(?=cu|$)")


@rule("PKG014", "warning", "bitsandbytes-without-this-cuda")
@prevents("RuntimeError", r"Configured CUDA binary not found|No compatible CUDA binary found")
@prevents("AttributeError", r"'NoneType' object has no attribute 'cadam")
def bitsandbytes_without_this_cuda(run: Run, environment: Environment, installed: Installed) -> Iterator[Finding]:
    """bitsandbytes has no library for the CUDA version of this PyTorch.

    What: The libraries in bitsandbytes' own list of files, which have their CUDA version in their names, against the
    CUDA version that torch was built for. From 0.50 on another one of the same major version will do. It is an error
    where the optimizer of the config is one of bitsandbytes.
    Why: It loads the library of torch's CUDA version. 0.47 and older have none for CUDA 13, which PyPI's torch has
    from 2.11 on.
    Repair: Install a newer bitsandbytes (--allow asked, as PKG006).
    Upstream: https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/cextension.py
    Signature: RuntimeError: Configured CUDA binary not found at …/libbitsandbytes_cuda130.so
    """
    known = installed.metadata.get("bitsandbytes")
    if known is None or not environment.cuda or not known.libraries:
        raise NotApplicable
    there = [(int(one[1]), int(one[2])) for name in known.libraries if (one := re.search(r"_cuda(\d\d)(\d)\.", name))]
    nearest = release(known.version) >= _NEAREST_SINCE
    if any(one == environment.cuda or (nearest and one[0] == environment.cuda[0]) for one in there):
        return
    used = "bitsandbytes" in of_optimizer(run)
    yield found(
        run.where("optimizer") if used else None,
        "{python} has bitsandbytes {version}, which holds no library for CUDA {cuda}, and torch {torch}.",
        otherwise="The 8-bit optimizer ends when it is built or takes its first step."
        if used
        else "8-bit optimizers and quantizing by bitsandbytes end when they are used.",
        evidence={
            "python": environment.python,
            "root": environment.root,
            "requirement": "a newer bitsandbytes",
            "wanted": "bitsandbytes>=0.50",
        },
        severity="error" if used else None,
        version=known.version,
        cuda=_dotted(environment.cuda),
        torch=environment.versions["torch"],
    )


@rule("PKG015", "warning", "built-for-another-torch")
@prevents("ImportError", r"(flash_attn|natten|sageattention|torch_scatter)\S*: undefined symbol")
@prevents("ImportError", r"DLL load failed while importing (flash_attn|_C|_fused|_qattn)")
def built_for_another_torch(environment: Environment, installed: Installed) -> Iterator[Finding]:
    """A compiled package names in its own version another torch than the one that is installed.

    What: Versions, and names of wheels that were installed from an address, whose label names a torch
    (flash_attn 2.8.3+cu12torch2.8cxx11abitrue) or a CUDA version beside it, against the torch that is there.
    torchvision and torchaudio are PKG009 and PKG008, which their metadata tell.
    Why: It is linked against the symbols of one torch. pip knows nothing of that and updates torch under it.
    Repair: None by zdoctor; install the build for this torch from where the other one came from.
    Upstream: https://github.com/Dao-AILab/flash-attention/releases
    Signature: ImportError: flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda…
    """
    torch = release(environment.versions.get("torch", ""))[:2]
    if not torch:
        raise NotApplicable
    for one in installed.metadata.values():
        label = one.version.partition("+")[2] or re.sub(r"%2B", "+", one.url).rpartition("/")[2].partition("+")[2]
        built = _torch_of(label)
        cuda = re.search(r"cu(\d\d)", label)
        if built is None:
            continue
        other_cuda = cuda is not None and environment.cuda and int(cuda[1]) != environment.cuda[0]
        fits = torch >= built if "andhigher" in label else torch == built
        if fits and not other_cuda:
            continue
        yield found(
            None,
            "{python} has {package} {version}, built for torch {built}{cuda}, and torch {torch}.",
            otherwise="It ends where it is imported: undefined symbol (on Windows: DLL load failed).",
            evidence={"python": environment.python, "package": one.name},
            version=one.version,
            built=_dotted(built),
            cuda=f" and CUDA {cuda[1]}" if cuda else "",
            torch=environment.versions["torch"],
        )


def _torch_of(label: str) -> Version | None:
    for pattern in _LABELS:
        if told := re.search(pattern, label):
            return int(told[1]), int(told[2])
    return None


@rule("PKG016", "warning", "torchao-that-peft-refuses")
@prevents("ImportError", r"Found an incompatible version of torchao")
def torchao_that_peft_refuses(environment: Environment) -> Iterator[Finding]:
    """peft refuses the torchao that is installed.

    What: A peft of 0.19 or newer beside a torchao older than 0.16. Neither package's metadata says it.
    Why: Whenever it puts a LoRA into a layer, peft looks for torchao and ends where it finds an older one, whether
    the model is quantized by it or not. ai-toolkit pins torchao 0.10 and peft 0.18; an update of peft parts them.
    Repair: Install peft 0.18 (--allow asked, as PKG006); or uninstall torchao where the trainer does not import it.
    Upstream: https://github.com/huggingface/peft/blob/v0.19.0/src/peft/import_utils.py
    Signature: ImportError: Found an incompatible version of torchao. Found version 0.10.0, but only versions above
    0.16.0 are supported
    """
    peft, torchao = (release(environment.versions.get(name, "")) for name in ("peft", "torchao"))
    if not (peft and torchao):
        raise NotApplicable
    if peft >= (0, 19) and torchao < (0, 16):
        yield found(
            None,
            "{python} has peft {peft}, which refuses torchao {torchao}.",
            otherwise="Putting a LoRA into a model by peft ends: Found an incompatible version of torchao.",
            evidence={
                "python": environment.python,
                "root": environment.root,
                "requirement": "peft 0.18",
                "wanted": "peft>=0.18,<0.19",
            },
            peft=_dotted(peft),
            torchao=_dotted(torchao),
        )


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
