"""Root as somebody to whom the modes of files apply, and who still owns this package and the interpreter's.

Another user would see neither where the checkout lies below a folder of mode 0700, as root's home is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PASSING_MODES = 1 << 1 | 1 << 2 | 1 << 3  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
_GET_SECUREBITS, _SET_SECUREBITS = 27, 28
_NO_ROOT, _NO_SETUID_FIXUP = 1 << 0, 1 << 2  # started programs get nothing back; access() asks as open() does
_VERSION_3 = 0x20080522


@contextmanager
def modes_apply() -> Iterator[None]:
    """On Linux root lets go of what passes modes over, in this thread and what it starts; nobody else has that."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; then their upper halves
    _require(libc.capget(header, held) == 0)
    fewer = (ctypes.c_uint32 * 6)(held[0] & ~_PASSING_MODES, *held[1:])
    bits = libc.prctl(_GET_SECUREBITS, 0, 0, 0, 0)
    _require(libc.prctl(_SET_SECUREBITS, bits | _NO_ROOT | _NO_SETUID_FIXUP, 0, 0, 0) == 0)
    try:
        _require(libc.capset(header, fewer) == 0)
        yield
    finally:
        _require(libc.capset(header, held) == 0)
        _require(libc.prctl(_SET_SECUREBITS, bits, 0, 0, 0) == 0)


def _require(done: bool) -> None:
    if not done:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
