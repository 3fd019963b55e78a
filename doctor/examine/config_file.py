"""A config's bytes, and those of the files beside it; for what cannot be read, the name that was meant."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from ..configs.reading import LARGEST
from ..errors import UserError
from ..trainers.read import Beside, Found

READ_LIMIT = LARGEST + 1  # one byte past what a reader accepts, so that it can say "too large"


def load(path: str) -> bytes:
    """The bytes of a config. Raises UserError for what is no readable file."""
    file = Path(path)
    try:
        found = file.stat()
        if stat.S_ISDIR(found.st_mode):
            raise UserError(f"{path} is a folder, not a config file.", _configs_hint(file))
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{path} is not a regular file.")
        with file.open("rb") as handle:
            return handle.read(READ_LIMIT)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file.", _near(file)) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def beside(config: str, texts: Mapping[str, bytes] | None = None) -> Beside:
    """Finds what a config names as its trainer does, relative to the working directory.

    A config may be checked from elsewhere, so the folders above it are tried as working directories, too. `texts`
    stand in for the content of files, by their paths.
    """

    def find(name: str) -> Found | None:
        for folder in (Path(), *Path(config).absolute().parents):
            file = folder / name
            try:
                if file.is_file():
                    known = None if texts is None else texts.get(str(file))
                    return Found(str(file), load(str(file)) if known is None else known)
            except (OSError, ValueError, UserError):
                continue
        return None

    return find


def _near(file: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [p.name for p in file.parent.iterdir() if p.suffix in (".yaml", ".yml", ".json", ".toml", ".py")]
    except OSError:
        return f"The folder {file.parent} does not exist either."
    alike = get_close_matches(file.stem, [Path(name).stem for name in names], 3)  # all endings are alike
    close = get_close_matches(file.name, [name for name in names if Path(name).stem in alike], 1)
    return f"Did you mean {file.parent / close[0]}?" if close else f"Looked in {file.parent.absolute()}."


def _configs_hint(folder: Path) -> str:
    names = sorted(p.name for pattern in ("*.yaml", "*.yml") for p in folder.glob(pattern))[:3]
    return f"It holds {', '.join(names)}." if names else "Name the YAML or JSON file of your trainer."
