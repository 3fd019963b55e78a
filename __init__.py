"""zdoctor: what would go wrong in a LoRA training run, why, the repair, and then the run itself.

The public face, loaded on first use: `zdoctor.check`, `zdoctor.fix`, `zdoctor.train`.
"""

from __future__ import annotations

import sys

# `python -m zdoctor` puts the current folder first among the places of modules: a re.py there is none of ours.
if sys.argv[:1] == ["-m"] and __name__ in sys.orig_argv and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "check", "fix", "train"]

if TYPE_CHECKING:
    from .doctor.commands.check import check
    from .doctor.commands.fix import fix
    from .doctor.commands.train import train


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(f".doctor.commands.{name}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
