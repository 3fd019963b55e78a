"""Installations that failed: pip 25 and 26, uv 0.9, npm 11, Prisma 6, git 2.5x, and what compiles on this machine."""

from __future__ import annotations

from ...model.crashes import Known

_PYTORCH_INDEX = "https://download.pytorch.org/whl"
_WHEEL = (
    "Take a Python that the trainer names (most often 3.10 to 3.12), in an environment of its own: "
    "uv venv --python 3.12, or py -3.12 -m venv venv"
)
_NODE = "https://nodejs.org/en/download"

KNOWN = (
    Known(
        "flash-attn is compiled here, because no wheel of it fits, and the compiler of CUDA (nvcc) or torch itself "
        "is "
        "not found.",
        "Install a wheel that names this torch, CUDA, Python and C++ ABI: "
        "https://github.com/Dao-AILab/flash-attention/releases. Or do without: the trainers work with torch's own "
        "attention (sdpa).",
        avoid="A compilation takes an hour and much RAM; for a LoRA it is seldom worth it.",
        words=(
            "flash_attn was requested, but nvcc was not found",
            "Failed to build `flash-attn",
            "Failed building wheel for flash-attn",
            "Failed to build flash-attn",
            "Failed to build flash_attn",
            "https://github.com/Dao-AILab/flash-attention/releases/download/",
        ),
        text=r"nvcc was not found|Failed (?:to build|building wheel for) `?flash[-_]attn"
        r"|urlopen error.*flash-attention/releases",
        source="https://github.com/Dao-AILab/flash-attention/issues/2211",
    ),
    Known(
        "A package is compiled here and needs the CUDA toolkit (nvcc), which the driver and torch do not bring.",
        "Look for a wheel of that package for this torch, CUDA and Python first; else install the toolkit of "
        "torch.version.cuda and let CUDA_HOME name its folder.",
        words=("CUDA_HOME environment variable is not set", "nvcc was not found", "CUDA_HOME does not exist"),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/cpp_extension.py",
    ),
    Known(
        "The CUDA toolkit (nvcc) of this machine is of another version than the CUDA that torch was built with.",
        "Install the toolkit of torch.version.cuda, or the torch of nvcc --version.",
        words=("mismatches the version that was used to compile",),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/cpp_extension.py",
    ),
    Known(
        "A package is compiled here, and the C++ compiler of Windows is missing.",
        "Look for a wheel of that package for this Python first; else install the Build Tools of Visual Studio with "
        "'Desktop development with C++'.",
        words=("Microsoft Visual C++ 14.0 or greater is required",),
        source="https://github.com/pypa/setuptools/blob/main/setuptools/_distutils/compilers/C/msvc.py",
    ),
    Known(
        "While a package is built, pip hides the installed torch from it, and its build asks for torch.",
        "Install torch first, then: pip install --no-build-isolation PACKAGE",
        text=r"(?:get_requires_for_build_wheel|Getting requirements to build wheel|build backend returned an error)"
        r".*No module named '(?:torch|numpy|packaging|wheel)'",
        words=("Getting requirements to build wheel", "The build backend returned an error"),
        source="https://github.com/Dao-AILab/flash-attention/blob/main/README.md",
    ),
    Known(
        "A torch with +cu or +rocm in its version is on PyTorch's own index only, which was not asked; or there is "
        "none of it for this Python.",
        f"pip install torch==… torchvision==… --index-url {_PYTORCH_INDEX}/cu128 (the suffix without its plus).",
        text=r"(?:requirement|found for) torch\w*==[\d.]+\+(?:cu|rocm|cpu|xpu)",
        words=(
            "Could not find a version that satisfies the requirement torch",
            "No matching distribution found for t",
        ),
        source="https://github.com/harlanhong/ACTalker/issues/10",
    ),
    Known(
        "There is no file of this package for this Python and system: pip sees no version of it at all. The Python "
        "is "
        "too new or too old for it, or of 32 bits; or the name is wrong, or the index was not reached.",
        _WHEEL,
        text=r"\(from versions: none\)",
        words=("Could not find a version that satisfies the requirement",),
        source="https://github.com/pypa/pip/blob/25.3/src/pip/_internal/resolution/resolvelib/factory.py",
    ),
    Known(
        "The version that is asked for is not on the index, or not for this Python and system; pip lists those that "
        "are.",
        f"Take one of the versions of the message, or the Python that the version wants. {_WHEEL}",
        words=("Could not find a version that satisfies the requirement", "No matching distribution found for"),
        source="https://github.com/pypa/pip/blob/25.3/src/pip/_internal/resolution/resolvelib/factory.py",
    ),
    Known(
        "There is no wheel of a package for this Python or this system; uv's last lines name it and what it has "
        "wheels for.",
        _WHEEL,
        text=r"has no wheels with a matching (?:Python|platform|ABI)|no wheels? (?:are|is) available"
        r"|doesn't have a source distribution or wheel for the current platform",
        words=(
            "has no wheels with a matching",
            "a source distribution or wheel for the current platform",
            "No solution found when resolving",
        ),
        source="https://github.com/hiyouga/LlamaFactory/issues/8884",
    ),
    Known(
        "No set of versions satisfies all that is asked for together; the last lines name the two packages that "
        "exclude each other.",
        "Loosen or remove one of the two, as the trainer's own requirements have it; leave out what was added by "
        "hand.",
        words=(
            "No solution found when resolving",
            "ResolutionImpossible",
            "because these package versions have conflicting dependencies",
        ),
        source="https://docs.astral.sh/uv/concepts/resolution/",
    ),
    Known(
        "This Python is managed by the system or by uv and takes no packages: a virtual environment is needed.",
        "python3 -m venv venv (or uv venv), activate it, and install there; with uv: uv pip install …",
        avoid="--break-system-packages may damage the system's own programs.",
        words=("externally-managed-environment", "This environment is externally managed"),
        source="https://peps.python.org/pep-0668/",
    ),
    Known(
        "Windows allows no path of that length.",
        "Allow long paths (LongPathsEnabled in the registry) and git config --system core.longpaths true; or install "
        "into a short folder such as C:\\t.",
        words=("Filename too long", "enable long paths", "enable-long-paths", "Windows Long Path support"),
        source="https://pip.pypa.io/warnings/enable-long-paths",
    ),
    Known(
        "git lost the connection before all was there.",
        "Start again; git clone --depth 1 needs much less. Where it stays: git config --global http.version HTTP/1.1",
        words=(
            "fatal: early EOF",
            "fetch-pack: unexpected disconnect",
            "RPC failed; curl",
            "invalid index-pack output",
        ),
        source="https://git-scm.com/docs/git-config",
    ),
    Known(
        "git does not trust the folder, because another account owns it.",
        "git config --global --add safe.directory PATH, with the path of the message.",
        words=("detected dubious ownership in repository",),
        source="https://git-scm.com/docs/git-config",
    ),
    Known(
        "git is not installed, or not in PATH, and a package is fetched with it.",
        "Install git (https://git-scm.com/downloads), then open a new window.",
        words=(
            "Cannot find command 'git'",
            "Git executable not found",
            "'git' is not recognized",
            "git: command not ",
        ),
        source="https://github.com/pypa/pip/blob/25.3/src/pip/_internal/vcs/versioncontrol.py",
    ),
    Known(
        "The trainer's web page needs Node.js, which is not installed, or not in PATH.",
        f"Install it ({_NODE}, 20 or newer), then open a new window. Training by python run.py needs no Node.js.",
        words=(
            "'npm' is not recognized",
            "npm: The term 'npm'",
            "npm: command not found",
            "npm: not found",
            "'node' is not recognized",
            "The term 'npm' is not recognized",
            "node: command not found",
        ),
        source="https://github.com/ennis-ma/ComfyUI-Workflow-Hub/issues/1",
    ),
    Known(
        "Another process holds the engine of Prisma: the web page of an earlier start still runs, or a virus scanner "
        "reads the file.",
        "End every node process (Task Manager), then start again; where it stays remove ui/node_modules/.prisma and "
        "start again.",
        text=r"EPERM: operation not permitted.*query_engine",
        words=("EPERM: operation not permitted",),
        source="https://github.com/prisma/orm/issues/9184",
    ),
    Known(
        "npm could not fetch or start Prisma's engine: the line to binaries.prisma.sh, or an installation that is "
        "not "
        "whole.",
        "In the folder ui remove node_modules, then npm install again; a proxy has to let binaries.prisma.sh "
        "through.",
        text=r"@prisma[/\\]engines.*|binaries\.prisma\.sh",
        words=("npm error path", "npm ERR! path", "binaries.prisma.sh"),
        source="https://www.prisma.io/docs/orm/reference/error-reference",
    ),
    Known(
        "The database of the web page has no tables yet, or is of another version of it.",
        "In the folder ui: npm run update_db (npx prisma generate && npx prisma db push), then start again.",
        avoid="Removing the database file removes all jobs.",
        text=r"\bP2021\b|table `?main\.\w+`? does not exist|no such table: \w+|The column .* does not exist in the",
        words=("does not exist in the current database", "P2021", "no such table: Job", "no such table: Queue"),
        source="https://www.prisma.io/docs/orm/reference/error-reference",
    ),
    Known(
        "The database waited in vain: another process writes to it, or it lies on a drive that cannot be locked (a "
        "network share, a synchronized folder, /mnt/c in WSL).",
        "End every other process of the web page, and lay the database on a local disk.",
        words=("database is locked", "P1008", "Operations timed out after", "failed to respond to a query within"),
        text=r"database is locked|\bP1008\b|[Oo]perations timed out|failed to respond to a query within",
        source="https://www.prisma.io/docs/orm/reference/error-reference",
    ),
    Known(
        "A port is in use already: the trainer's web page, TensorBoard or another run is still open.",
        "End the process that has it, or take another port (--port; for several cards --main_process_port).",
        words=("Address already in use", "EADDRINUSE", "WinError 10048", "Cannot find empty port in range"),
        source="https://github.com/gradio-app/gradio/blob/main/gradio/http_server.py",
    ),
    Known(
        "Windows, a virus scanner or a policy refuses the file that is to be written or started.",
        "Close what uses the folder (an editor, a running trainer, OneDrive) and install again, into a folder of "
        "your "
        "own outside of Program Files, OneDrive and Desktop.",
        text=r"\[?WinError 5\]?.*(?:[Ss]ite-packages|[Ss]cripts[/\\]|node_modules)",
        words=("WinError 5]",),
        source="https://pip.pypa.io/en/stable/cli/pip_install/",
    ),
)

# What pip prints after everything else, and what is known only as long as nothing above says more.
LAST = (
    Known(
        "A package has no wheel that fits and could not be compiled; the lines above name it and say why.",
        f"{_WHEEL}. Else look for a wheel of that package for this Python, system and torch.",
        words=(
            "error: subprocess-exited-with-error",
            "Failed building wheel for",
            "error: metadata-generation-failed",
            "Failed to build installable wheels",
        ),
        source="https://pip.pypa.io/en/stable/reference/build-system/",
    ),
)
