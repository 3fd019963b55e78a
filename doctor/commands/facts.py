"""`zdoctor facts`: what a check sees of this machine, redacted, as a machine file."""

from __future__ import annotations

import argparse
from typing import Any

from ..examine.examination import examine_config
from ..probe.host import probe_host
from ..probe.live import LiveWorld
from ..probe.recorder import Recorder
from . import console
from .config_argument import config_argument, named_or_found


def arguments(parser: argparse.ArgumentParser) -> None:
    config_argument(parser, "the trainer's config file, whose files then count")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead of the terminal")
    parser.add_argument("--about", default="a recorded machine", help="a line that says which machine this is")


def run(options: argparse.Namespace) -> int:
    config = named_or_found(options.config) if options.config else None
    record = facts(config, options.about)
    from ...reports.json import dumps

    console.emit(dumps(record, indent=1), options.output, spare=config or "")
    return 0


def facts(config: str | None, about: str) -> dict[str, Any]:
    """Everything that a check of `config` (or, without one, of the bare machine) asks of this machine, redacted."""
    recorder = Recorder(LiveWorld())
    if config is not None:
        examine_config(config, recorder)
    recorder.gpus()
    probe_host(recorder)
    recorder.mount(recorder.system.cwd)
    return recorder.record(about)
