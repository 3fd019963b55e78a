"""What a training log says about its end: the failure, its cause, and the rule that would have told before. Pure."""

from .explain import explain
from .failures import failures
from .lines import clean
from .reading import decode, excerpt

__all__ = ["clean", "decode", "excerpt", "explain", "failures"]
