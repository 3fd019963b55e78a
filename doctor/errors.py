"""One error type for a user's mistake, and one handler that turns every exception into an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

USER_MISTAKE, OUR_BUG, INTERRUPTED = 2, 4, 130


class UserError(Exception):
    """Something the user can put right: one line for what is wrong, one for what to type."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def not_cached(repo: str, cached: Sequence[str], otherwise: str) -> UserError:
    """That `repo` is in none of the caches, which hold `cached`. A name that is near to one is likely a slip."""
    from difflib import get_close_matches

    near = get_close_matches(repo, cached, 1, 0.5)
    return UserError(f"{repo} is in no hub cache of this machine.", f"Did you mean {near[0]}?" if near else otherwise)


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; a traceback never reaches the user."""
    try:
        return command()
    except UserError as error:
        print(f"zdoctor: {printable(str(error))}", file=sys.stderr)
        if error.hint:
            print(f"  {printable(error.hint)}", file=sys.stderr)
        return USER_MISTAKE
    except KeyboardInterrupt as error:
        line = "\n" if sys.stderr.isatty() else ""  # after a line of progress, or the ^C that the terminal shows
        print(f"{line}zdoctor: stopped. Nothing is half done. {error}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        return _crashed(error)


def printable(text: str) -> str:
    """`text` without the control characters of file names, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _crashed(error: Exception) -> int:
    from .state import state_folder

    text = redacted(_crash_report(error))
    print(f"zdoctor: this is our bug: {type(error).__name__}: {printable(redacted(str(error)))}", file=sys.stderr)
    try:
        file = state_folder() / "zdoctor-crash.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"  A report without names or tokens to paste into an issue: {file}", file=sys.stderr)
    except OSError:
        print(text, file=sys.stderr)
    return OUR_BUG


def _crash_report(error: Exception) -> str:
    import platform

    from .. import __version__

    trace = "".join(traceback.format_exception(error))
    return (
        f"# zdoctor {__version__} crashed\n\n"
        f"- Python {platform.python_version()} on {platform.system()} {platform.release()}\n"
        f"- command: `{' '.join(sys.argv)}`\n\n```\n{trace}```\n"
    )


def redacted(text: str) -> str:
    """`text` without the home folder and without anything that looks like a hub token."""
    import re

    home = os.path.expanduser("~")
    if len(home) > 1:
        text = text.replace(home, "~")
    return re.sub(r"\bhf_[A-Za-z0-9]{10,}", "hf_***", text)
