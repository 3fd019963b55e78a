"""The names of the trainers, where they were."""

from __future__ import annotations

from ..model.trainers import BY_FILES as BY_FILES
from ..model.trainers import OTHERS as OTHERS
from ..model.trainers import OWN as OWN
