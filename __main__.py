"""`path/to/venv/python -m zdoctor`: the doctor of that interpreter's environment; `zdoctor` starts here, too."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line; returns the exit code. Ctrl-C is no traceback while the rest is imported, either."""
    try:
        from .doctor.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("zdoctor: stopped. Nothing is half done.", file=sys.stderr)
        return 130
    finally:
        gc.freeze()  # the process ends: looking once more through all that PyTorch made took 1.5 seconds


if __name__ == "__main__":
    raise SystemExit(main())
