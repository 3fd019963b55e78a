"""What a step is carried out with."""

from __future__ import annotations

from ...model.record import dataclass
from ...state.receipts import Receipts
from ..actions.copy import Meter
from ..actions.journal import Journal


@dataclass(frozen=True)
class Work:
    """One transaction: its journal, who counts its bytes, and which files are known to be unchanged."""

    journal: Journal
    meter: Meter
    receipts: Receipts
