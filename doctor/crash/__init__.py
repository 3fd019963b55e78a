"""What a training log says about its end: the failure, its cause, and the rule that would have told before. Pure."""

from .compare import compare
from .explain import explain
from .failures import failures
from .lines import clean

__all__ = ["clean", "compare", "explain", "failures"]
