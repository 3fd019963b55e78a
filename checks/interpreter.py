"""Which Python runs, whether it is whole, what it takes its packages from, and where it lies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Finding, Host, System, found
from ..doctor.model.environment import Environment, Installed
from ..doctor.rules import NotApplicable, prevents, rule
from .environment import MOST

_NETWORK = re.compile(r"nfs\d?|cifs|smb\w*|afp\w*|webdav|davfs\d?|mapped drive|fuse\.(sshfs|rclone|davfs2?|smb\w*)")


@rule("PKG013", "error", "environment-without-its-python")
def environment_without_its_python(environment: Environment) -> Iterator[Finding]:
    """The virtual environment was made of a Python that is no longer there.

    What: The interpreter behind the environment: what bin/python leads to, on Windows the folder that pyvenv.cfg
    names as home.
    Why: That Python was uninstalled, updated to another release, or the environment was moved from another machine.
    Repair: A new environment beside it, of the same release of Python and with the same versions (--allow asked); the
    old one stays. Or install that Python again.
    Upstream: https://docs.python.org/3/library/venv.html
    Signature: No Python at '…'; bad interpreter: No such file or directory
    """
    if not environment.folders:
        raise NotApplicable
    if environment.base_gone:
        yield found(
            None,
            "{python} was made of {base}, which is not there.",
            otherwise="Nothing of this environment starts.",
            evidence={"python": environment.python},
            base=environment.base_gone,
        )


@rule("PKG019", "warning", "packages-from-outside")
def packages_from_outside(installed: Installed, environment: Environment) -> Iterator[Finding]:
    """Packages from outside of an environment are imported in place of its own, in other versions.

    What: The folders that Python looks through before those of a virtual environment, of conda or of a portable
    build: PYTHONPATH, and for conda what was installed for the user (pip install --user, ~/.local). Only what the
    trainer leans on is compared. A virtual environment that lets the packages of its system in has its own first.
    Why: pip and conda install into the environment, and what they install is not what is imported.
    Repair: PYTHONPATH unset, or PYTHONNOUSERSITE set, in the shell that starts the trainer; the command is shown.
    Upstream: https://docs.python.org/3/library/site.html, https://docs.python.org/3/using/cmdline.html
    Signature: None; the version that is printed is another than pip list of the environment says.
    """
    if not environment.own:
        raise NotApplicable
    for folder in dict.fromkeys(one.folder for one in installed.hidden):
        told = [f"{one.name} {one.by} (its own: {one.version})" for one in installed.hidden if one.folder == folder]
        yield found(
            None,
            "{python} imports from {folder} before it looks among its own packages: {packages}{more}.",
            otherwise="What is installed into the environment is not what runs; nobody tried the two together.",
            evidence={"python": environment.python, "folder": folder, "packages": ", ".join(told[:MOST])},
            more=f" and {len(told) - MOST} more" if len(told) > MOST else "",
        )


@rule("PKG022", "warning", "script-past-its-environment")
def script_past_its_environment(environment: Environment) -> Iterator[Finding]:
    """A start script starts the python that PATH has, and not the environment that lies there.

    What: The .bat and .cmd files in and beside the checkout that start the trainer, by their text: what they set,
    enter and activate before they name a Python. Of PATH the first python.exe; it is an error where that is the one
    of no length in WindowsApps, which opens the Microsoft Store. What hangs on a condition is not judged.
    Why: A window that a double click opens has no environment activated. The packages that were installed into it
    are not there then, or others are.
    Repair: None by zdoctor; above that line: call venv\\Scripts\\activate.bat
    Upstream: https://docs.python.org/3/using/windows.html, https://docs.python.org/3/library/venv.html
    Signature: Python was not found; run without arguments to install from the Microsoft Store
    """
    if not environment.past:
        raise NotApplicable
    message = "{script} starts the python that PATH has, and not {python}."
    if environment.is_stub:
        message = "{script} starts {first}, which only opens the Microsoft Store, and not {python}."
    elif environment.on_path:
        message = "{script} starts {first}, which PATH has first, and not {python}."
    yield found(
        None,
        message,
        otherwise="Unless the environment is activated before, its packages are not those that run.",
        severity="error" if environment.is_stub else None,
        evidence={"python": environment.python, "script": environment.past},
        first=environment.on_path,
    )


@rule("PKG023", "note", "environment-far-away")
@prevents("OSError", r"\[Errno 37\] No locks available")
def environment_far_away(environment: Environment, host: Host, system: System) -> Iterator[Finding]:
    """The packages lie on a network mount, or in a folder that is copied into a cloud.

    What: What the environment lies on by the table of mounts: NFS, SMB (CIFS), AFP, WebDAV, sshfs, rclone, a mapped
    drive of Windows; and the folders that OneDrive and iCloud name, as HST007, for which it is a warning.
    Why: A start of a trainer reads some six thousand modules of its packages (counted: torch 2.13, transformers and
    diffusers), one by one, each a question to the server. Some servers refuse locks or links, which pip, uv and the
    hub client take. What a cloud has not seen used for a while it takes off this disk.
    Repair: None by zdoctor; make the environment on a disk of this machine.
    Upstream: https://docs.astral.sh/uv/concepts/cache/ (links), https://pip.pypa.io/en/stable/topics/caching/
    Signature: OSError: [Errno 37] No locks available
    """
    place = environment.root or environment.own
    if _NETWORK.fullmatch(environment.filesystem):
        yield found(
            None,
            "{python} lies on a network mount ({filesystem}).",
            otherwise="Every start asks the server for thousands of files; installs may have locks or links refused.",
            evidence={"python": environment.python, "filesystem": environment.filesystem},
        )
    cloud = next((one for one in host.synced if place and system.is_inside(place, one)), None)
    if cloud:
        yield found(
            None,
            "{python} lies in {cloud}, which is copied into a cloud.",
            otherwise="Files are sent up as they are written, and may be locked, or taken off this disk later.",
            severity="warning",
            evidence={"python": environment.python, "cloud": cloud},
        )
