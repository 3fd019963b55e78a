"""The machine: its file systems, its processes, its driver."""

from __future__ import annotations

from ...model.crashes import Known

_WHERE = "Set PYTHONFAULTHANDLER=1 and start again: the log then shows the line of Python at which it happens."

KNOWN = (
    Known(
        "A program that is to be started is not installed, or not found in PATH.",
        "Install the program that the message names.",
        error="FileNotFoundError",
        text=r"No such file or directory|WinError 2\b",
        where=r"_execute_child|subprocess\.py",
        alone=True,
        source="https://docs.python.org/3/library/subprocess.html",
    ),
    Known(
        "The process may not open more files.",
        "ulimit -n 65536 before the start, or fewer workers that read pictures.",
        error="OSError",
        words=("[Errno 24] Too many open files",),
        source="https://docs.python.org/3/library/errno.html",
    ),
    Known(
        "What this account may write is used up, though the disk may have room.",
        "Remove what is not needed, or let the run and HF_HOME write elsewhere.",
        error="OSError",
        text=r"\[Errno 122\] Disk quota exceeded",
        rule="DSK002",
        source="https://docs.python.org/3/library/errno.html",
    ),
    Known(
        "A network drive was disconnected while it was read.",
        "Mount it again, and copy model and pictures to a local disk before the start.",
        error="OSError",
        text=r"\[Errno 107\] Transport endpoint is not connected|\[Errno 116\] Stale file handle",
        source="https://docs.python.org/3/library/errno.html",
    ),
    Known(
        "Another program holds the file open: a second run, a viewer, a virus scanner or a synchronized folder.",
        "Close it, or let the run write into a folder that nothing else watches.",
        text=r"being used by another process|WinError 32\b|os error 32\b",
        words=("[WinError 32]", "(os error 32)", "being used by another process"),
        source="https://github.com/PozzettiAndrea/ComfyUI-UniRig/issues/9",
    ),
    Known(
        "The cloud's program (OneDrive, iCloud) keeps this file elsewhere and did not give it in time.",
        "Move the pictures and the model out of the synchronized folder, or set them to be always kept on this "
        "device.",
        words=("The cloud operation", "WinError 362", "WinError 426", "cloud file provider"),
        text=r"WinError (?:36[0-9]|39[0-9]|426)\b|[Cc]loud (?:operation|file provider)",
        source="https://learn.microsoft.com/windows/win32/debug/system-error-codes--0-499-",
    ),
    Known(
        "A virus scanner has taken the file for harmful and refuses it.",
        "Look into the scanner's history, and allow the file when its source is the right one.",
        words=("WinError 225",),
        text=r"WinError 225\b",
        source="https://learn.microsoft.com/windows/win32/debug/system-error-codes--0-499-",
    ),
    Known(
        "The system refuses this account the file or folder: it belongs to another account (in a container most "
        "often "
        "root), is write-protected, or another program such as a virus scanner or OneDrive guards it.",
        "Let the run write into a folder of your own outside of Program Files, OneDrive and system folders; on Linux "
        "sudo chown -R $USER FOLDER, with the folder of the message.",
        avoid="Starting as administrator or root leaves files that the next start may not touch.",
        error="PermissionError",
        text=r"\[Errno 13\]|\[WinError 5\]",
        rule="PTH001",
        source="https://docs.python.org/3/library/exceptions.html#PermissionError",
    ),
    Known(
        "A file for the shell or for settings was saved with the line ends of Windows (CRLF), so that each value "
        "ends "
        "with a character that cannot be seen.",
        "sed -i 's/\\r$//' FILE for each .sh and .env file, and in git: git config core.autocrlf input",
        words=("$'\\r': command not found", "\\r': No such file", "invalid choice: '", "bash\\r", "bash^M"),
        text=r"\$'\\r'|\\r['\"]: No such file|invalid choice: '[^']*\\r'|(?:bash|sh)(?:\\r|\^M)",
        source="https://github.com/bghira/SimpleTuner/issues/632",
    ),
    Known(
        "A backslash path in double quotes holds \\U and eight digits, which YAML reads as a character.",
        "Put the path in single quotes, or write forward slashes.",
        error="OverflowError",
        rule="PTH002",
        where=r"yaml",
        source="https://yaml.org/spec/1.1/#id872840",
    ),
    Known(
        "A compiled library touched memory that was not its own. The place above is the line of Python that led "
        "there.",
        "Install the package that it calls anew, in the version that goes with this PyTorch; then look at the "
        "driver.",
        error="SegmentationFault",
        text=r"^Fatal Python error: ",
        source="https://docs.python.org/3/library/faulthandler.html",
    ),
    Known(
        "A compiled library touched memory that was not its own; the log does not tell which. PyTorch, its "
        "extensions and the driver are such libraries.",
        _WHERE,
        error="SegmentationFault",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "A compiled library ended the process; its own words stand above.",
        _WHERE,
        error="Aborted",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "A compiled library uses instructions that this processor does not have.",
        _WHERE + " Then install a build of that library for older processors.",
        error="IllegalInstruction",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    Known(
        "Windows ended the process because its stack was full (0xC00000FD).",
        _WHERE,
        error="StackOverflow",
        source="https://learn.microsoft.com/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60bebca55",
    ),
    Known(
        "Windows did not find a library (DLL) that the program needs (0xC0000135).",
        "Install the Microsoft Visual C++ Redistributable, and the trainer's environment anew.",
        error="MissingLibrary",
        source="https://learn.microsoft.com/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60bebca55",
    ),
    Known(
        "Somebody stopped the run, by Ctrl-C or by the button of a notebook.",
        "Nothing has to be repaired.",
        error="KeyboardInterrupt",
        source="https://docs.python.org/3/library/exceptions.html",
    ),
    Known(
        "The log ends amid a traceback, before it says what went wrong.",
        "Look at the end of the output where it was made; the line that names the error comes after the last frame.",
        error="CutOff",
        source="https://docs.python.org/3/library/traceback.html",
    ),
)
