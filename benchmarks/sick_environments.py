"""What environments.py makes: a healthy environment, sick ones with the rules that must tell, healthy twins."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zdoctor.doctor.apply.steps.make_environment import python_of
from zdoctor.doctor.model.environment import plain
from zdoctor.doctor.packages.names import modules_of
from zdoctor.tests.environments import pip, put, wheel

HEALTHY = {
    "oyaml": ("1.0", ["pyyaml"]), "pyyaml": ("6.0.3", []), "lycoris-lora": ("1.8.3", []), "numpy": ("1.26.4", []),
    "torch": ("2.9.1", []), "torchvision": ("0.24.1", ["torch==2.9.1", "numpy"]), "safetensors": ("0.5.3", []),
    "transformers": ("5.5.3", ["huggingface-hub<2,>=1.5", "tokenizers<=0.23,>=0.22", "numpy>=1.17"]),
    "tokenizers": ("0.22.1", []), "huggingface-hub": ("1.23.0", ["filelock"]), "filelock": ("3.20.0", []),
    "peft": ("0.18.1", ["torch>=1.13", "transformers"]), "einops": ("0.8.1", []),
    "accelerate": ("1.12.0", ["numpy<3", 'rich; extra == "rich"']),
    "scipy": ("1.12.0", ["numpy<1.29"]), "opencv-python": ("4.10.0.84", ["numpy>=1.21"]),
}  # fmt: skip
OTHERS = (
    ("numpy", "2.1.3"), ("tokenizers", "0.24.0"), ("huggingface-hub", "2.4.0"), ("filelock", "1.0"),
    ("torch", "2.8.0"), ("transformers", "4.57.1"), ("transformers", "5.9.0"), ("late", "1.0"),
    ("peft", "0.10.0", ["torch>=1.13", "transformers<5"]), ("scipy", "1.16.0"), ("opencv-python", "4.9.0.80"),
    ("opencv-python-headless", "4.11.0.86"), ("opencv-python-headless", "4.10.0.84"), ("pandas", "2.2.1"),
    ("matplotlib", "3.8.3"), ("onnxruntime", "1.19.2"), ("onnxruntime-gpu", "1.19.2"), ("pynvml", "11.5.3"),
    ("nvidia-ml-py", "12.575"), ("einops", "0.7.0"), ("einops", "0.9.0rc1"), ("lycoris-lora", "2.0"),
    ("torchvision", "0.23.0", ["torch==2.8.0"]), ("accelerate", "1.0.0", ["numpy<2"]), ("diffusers", "0.36.0"),
    ("triton-windows", "3.5.0"), ("torchao", "0.10.0"), ("peft", "0.19.1", ["torch>=1.13", "transformers"]),
    ("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue"), ("flash-attn", "2.8.3+cu12torch2.9cxx11abitrue"),
    ("bitsandbytes", "0.45.5"), ("bitsandbytes", "0.50.2"),
)  # fmt: skip
REQUIREMENTS = """-r base.txt
transformers==5.5.3  # pinned
huggingface_hub==1.23.0
peft==0.18.1
scipy==1.12.0
"""
BASE = """oyaml
LyCORIS_lora==1.8.3
torch>=2.1
opencv-python
einops
accelerate
only-there ; sys_platform == 'nowhere'
"""
RUN = "import oyaml\nimport transformers\nfrom toolkit.more import einops\nprint('started')\n"
MORE = "import einops\ntry:\n    import late\nexcept ImportError:\n    late = None\n"
GIT = "git+https://github.com/huggingface/diffusers.git@c943837899b16cbae2f619b8dd4f7bb6f07dd81a\n"
DIRECT = '{"url": "https://github.com/huggingface/diffusers.git", "vcs_info": {"vcs": "git", "commit_id": "%s"}}'
COMMIT = "c943837899b16cbae2f619b8dd4f7bb6f07dd81a"
TOO_NEW = "3.13"
OUTSIDE = "outside"  # a folder of a checkout that PYTHONPATH names, where it is there
Damage = Callable[[Path, Path], None]  # of a checkout's folder, and of its folder of packages


def nothing(root: Path, site: Path) -> None:
    pass


@dataclass(frozen=True)
class Case:
    """`install` and `remove` are what pip does to the healthy one, `asked` what the checkout asks for beside."""

    name: str
    expected: str
    install: Sequence[str] = ()
    remove: Sequence[str] = ()
    asked: str = ""
    damage: Damage = nothing


def gone(name: str) -> Damage:
    return lambda root, site: (site / name).unlink()


def text(name: str, content: str) -> Damage:
    def write(root: Path, site: Path) -> None:
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(content)

    return write


def builds(torch: str, vision: str) -> Damage:
    def write(root: Path, site: Path) -> None:
        (site / "torch" / "version.py").write_text(f"__version__ = '{torch}'\n")
        (site / "torchvision" / "version.py").write_text(f"__version__ = '{vision}'\n")

    return write


def pyvenv(old: str, new: str) -> Damage:
    def write(root: Path, site: Path) -> None:
        settings = root / "venv" / "pyvenv.cfg"
        settings.write_text(settings.read_text().replace(old, new))

    return write


def of_uv(root: Path, site: Path) -> None:
    """As uv leaves its name; what it installs into is the same."""
    pyvenv("home = ", "uv = 0.13.9\nhome = ")(root, site)
    (root / "venv" / ".lock").touch()


def outside(name: str, version: str) -> Damage:
    """A folder that PYTHONPATH names."""

    def write(root: Path, site: Path) -> None:
        made = wheel(root, name, version, files=files_of(name))
        put(root / OUTSIDE, made)
        made.unlink()

    return write


def without_base(root: Path, site: Path) -> None:
    python = root / "venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/usr/lib/removed/bin/python3")


def of_another_python(root: Path, site: Path) -> None:
    """A release of Python that SciPy 1.12 has no wheel for, and all the rest in it."""
    python, again = python_of(TOO_NEW), root / "venv"
    lines = [f"{info.name.removesuffix('.dist-info').replace('-', '==', 1)}" for info in site.glob("*.dist-info")]
    shutil.rmtree(again)
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(again)], check=True)
    wanted = [line for line in lines if not line.startswith("scipy")]
    pip(again / "bin" / "python", root.parent / "wheels", "--no-deps", *wanted)


def cut_library(root: Path, site: Path) -> None:
    """As a full disk leaves it: the list of files says more bytes than there are."""
    (site / "torch" / "lib").mkdir()
    (site / "torch" / "lib" / "libtorch_cpu.so").write_bytes(b"x")
    with (site / "torch-2.9.1.dist-info" / "RECORD").open("a") as record:
        record.write("torch/lib/libtorch_cpu.so,sha256=x,4096\n")


def listed(info: str, *files: str, torch: str = "2.9.1") -> Damage:
    """Files that a package lists as its own, and the build that torch names."""

    def write(root: Path, site: Path) -> None:
        (site / "torch" / "version.py").write_text(f"__version__ = '{torch}'\n")
        with (site / info / "RECORD").open("a") as record:
            for file in files:
                (site / file).write_bytes(b"x")
                record.write(f"{file},sha256=x,1\n")

    return write


BITSANDBYTES = listed("bitsandbytes-0.45.5.dist-info", "bitsandbytes/libbitsandbytes_cuda128.so", torch="2.9.1+cu130")
OTHER_PYTHON = listed("numpy-1.26.4.dist-info", "numpy/_core.cpython-399-x86_64-linux-gnu.so")


def tagged(info: str, tag: str) -> Damage:
    """As a wheel for another machine leaves it, which a copied environment or `pip --platform` brings."""
    return text(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")


def of_git(commit: str) -> Damage:
    return text("diffusers-0.36.0.dist-info/direct_url.json", DIRECT % commit)


SICK = (
    Case("missing, imported", "PKG006", remove=["oyaml"]),
    Case("missing, imported by a module", "PKG006", remove=["einops"]),
    Case("two missing", "PKG006", remove=["oyaml", "einops"]),
    Case("missing, never imported", "PKG007", remove=["lycoris-lora"]),
    Case("missing, imported in a try", "PKG007", asked="late\n"),
    Case("missing, under a marker", "PKG007", asked='late ; python_version >= "3.8"\n'),
    Case("older than its pin", "PKG007", install=["transformers==4.57.1"]),
    Case("newer than its pin", "PKG007", install=["transformers==5.9.0"]),
    Case("a pin in a file that is named", "PKG007", install=["lycoris-lora==2.0"]),
    Case("a compatible release", "PKG007", asked="einops~=0.7.0\n"),
    Case("an excluded release", "PKG007", asked="einops!=0.8.1\n"),
    Case("an upper bound", "PKG007", asked="einops>=0.5,<0.8\n"),
    Case("a star", "PKG007", asked="einops==0.7.*\n"),
    Case("with extras and hashes", "PKG007", asked="einops[all]==0.7.0 --hash=sha256:00\n"),
    Case("over two lines", "PKG007", asked="einops>=0.5,\\\n  <0.8\n"),
    Case("another commit", "PKG007", install=["diffusers==0.36.0"], asked=GIT, damage=of_git("0" * 40)),
    Case("a release for a commit", "PKG007", install=["diffusers==0.36.0"], asked=GIT),
    Case("tokenizers too new", "PKG008", install=["tokenizers==0.24.0"]),
    Case("hub too new", "PKG008", install=["huggingface-hub==2.4.0"]),
    Case("what a dependency needs is missing", "PKG008", remove=["filelock"]),
    Case("peft of other transformers", "PKG007 PKG008", install=["peft==0.10.0"]),
    Case("a missing YAML", "PKG008", remove=["pyyaml"]),
    Case("accelerate of NumPy 1", "PKG008 PKG011", install=["numpy==2.1.3", "accelerate==1.0.0"]),
    Case("SciPy of NumPy 1", "PKG008 PKG011", install=["numpy==2.1.3"]),
    Case("OpenCV of NumPy 1", "PKG008 PKG011", install=["numpy==2.1.3", "opencv-python==4.9.0.80"]),
    Case("pandas of NumPy 1", "PKG008 PKG011", install=["numpy==2.1.3", "pandas==2.2.1"]),
    Case("matplotlib of NumPy 1", "PKG008 PKG011", install=["numpy==2.1.3", "matplotlib==3.8.3"]),
    Case("torchvision of another torch", "PKG009", install=["torch==2.8.0"]),
    Case("an older torchvision", "PKG009", install=["torchvision==0.23.0"]),
    Case("torch without CUDA", "PKG009", damage=builds("2.9.1+cpu", "0.24.1+cu128")),
    Case("two CUDA versions", "PKG009", damage=builds("2.9.1+cu130", "0.24.1+cu128")),
    Case("a module is gone", "PKG010", damage=gone("einops/__init__.py")),
    Case("metadata is empty", "PKG010", damage=text("einops-0.8.1.dist-info/METADATA", "")),
    Case("metadata is gone", "PKG010", damage=gone("einops-0.8.1.dist-info/METADATA")),
    Case("a library was cut", "PKG010", damage=cut_library),
    Case("left over", "PKG010", damage=lambda root, site: (site / "~cipy").mkdir()),
    Case("two OpenCVs", "PKG012", install=["opencv-python-headless==4.11.0.86"]),
    Case("two onnxruntimes", "PKG012", install=["onnxruntime==1.19.2", "onnxruntime-gpu==1.19.2"]),
    Case("two pynvmls", "PKG012", install=["pynvml==11.5.3", "nvidia-ml-py==12.575"]),
    Case("its Python is gone", "PKG013", damage=without_base),
    Case("bitsandbytes of another CUDA", "PKG014", install=["bitsandbytes==0.45.5"], damage=BITSANDBYTES),
    Case("flash-attn of another torch", "PKG015", install=["flash-attn==2.8.3+cu12torch2.8cxx11abitrue"]),
    Case("peft updated, torchao not", "PKG007 PKG016", install=["torchao==0.10.0", "peft==0.19.1"]),
    Case("NumPy of another Python", "PKG017", damage=OTHER_PYTHON),
    Case("a wheel for aarch64", "PKG020", damage=tagged("einops-0.8.1.dist-info", "py3-none-manylinux_2_28_aarch64")),
    Case("a wheel for Windows", "PKG020", damage=tagged("tokenizers-0.22.1.dist-info", "cp39-abi3-win_amd64")),
    Case("a wheel for Alpine", "PKG020", damage=tagged("scipy-1.12.0.dist-info", "py3-none-musllinux_1_2_x86_64")),
    Case(
        "a wheel for a newer glibc",
        "PKG020",
        damage=tagged("peft-0.18.1.dist-info", "py3-none-manylinux_2_99_x86_64"),
    ),
    Case("a wheel for Python 3.8", "PKG017", damage=tagged("scipy-1.12.0.dist-info", "cp38-cp38-linux_x86_64")),
    Case("a Python too new for a pin", "PKG007 PKG018", damage=of_another_python),
    Case("missing and broken", "PKG006 PKG010", remove=["oyaml"], damage=gone("tokenizers/__init__.py")),
    Case("old, and NumPy 2", "PKG007 PKG008 PKG011", install=["transformers==4.57.1", "numpy==2.1.3"]),
    Case("missing, and uv made it", "PKG006", remove=["oyaml"], damage=of_uv),
    Case("another pin, and uv made it", "PKG007", install=["transformers==4.57.1"], damage=of_uv),
    Case("hidden by PYTHONPATH", "PKG007 PKG019", damage=outside("einops", "0.7.0"), asked="einops>=0.8\n"),
    Case("torchvision and a pin", "PKG007 PKG009", install=["torch==2.8.0", "transformers==5.9.0"]),
)
TWINS = (
    Case("as the README says", ""),
    Case("a build of torch", "", damage=builds("2.9.1+cu128", "0.24.1+cu128")),
    Case("builds of one CUDA", "", damage=builds("2.9.1+cu128", "0.24.1+cu126")),
    Case("newer where it is free", "", install=["einops==0.7.0"]),
    Case("a release candidate", "", install=["einops==0.9.0rc1"]),
    Case("headless in place of OpenCV", "", install=["opencv-python-headless==4.10.0.84"], remove=["opencv-python"]),
    Case("both OpenCVs of one version", "", install=["opencv-python-headless==4.10.0.84"]),
    Case("Triton for Windows", "", install=["triton-windows==3.5.0"], asked="triton\n"),
    Case("the commit that is asked for", "", install=["diffusers==0.36.0"], asked=GIT, damage=of_git(COMMIT)),
    Case("flash-attn of this torch", "", install=["flash-attn==2.8.3+cu12torch2.9cxx11abitrue"]),
    Case("torchao beside the pinned peft", "", install=["torchao==0.10.0"]),
    Case("an edited module", "", damage=text("einops/__init__.py", "x = 1\n")),
    Case("an extra nobody asked for", "", asked="accelerate\n"),
    Case("every syntax", "", asked="--index-url https://x.invalid\n-e .\n./local\n# einops==9\n--find-links x\n"),
    Case("bounds for what is not there", "", asked="-c bounds.txt\n"),
    Case("its system's packages are let in", "", asked="pip\n", damage=pyvenv("packages = false", "packages = true")),
    Case("made by uv", "", damage=of_uv),
    Case("a wheel for this machine", "", damage=tagged("scipy-1.12.0.dist-info", "cp38-abi3-manylinux2014_x86_64")),
    Case("PYTHONPATH with the same", "", damage=outside("einops", "0.8.1")),
    Case("NumPy 2 and what goes with it", "", install=["numpy==2.1.3", "scipy==1.16.0"], asked="scipy==1.16.0\n"),
)


def files_of(name: str) -> dict[str, str]:
    """A package's modules, by the names that they are imported by; torch sees no card."""
    text = "class cuda:\n    device_count = staticmethod(lambda: 0)\n" if name == "torch" else ""
    return {f"{module.replace('.', '/')}/__init__.py": text for module in modules_of(plain(name))}
