"""`zdoctor facts`: what a check sees of this machine, redacted, as a machine file."""

from __future__ import annotations

import argparse
import socket
from typing import Any

from ..examine.config_file import load
from ..examine.examination import examine_config
from ..model.said import filled, joined
from ..probe.host import probe_host
from ..probe.live import LiveWorld
from ..probe.recorder import Recorder
from ..probe.redaction import redact
from . import console
from .config_argument import config_argument, named_or_found


def arguments(parser: argparse.ArgumentParser) -> None:
    config_argument(parser, "the trainer's config file, whose files then count")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it here instead of the terminal")
    parser.add_argument("--about", default="a recorded machine", help="a line that says which machine this is")
    parser.add_argument(
        "--keep-paths",
        action="store_true",
        help="leave names of folders and files, for check CONFIG --machine",
    )


def run(options: argparse.Namespace) -> int:
    config = named_or_found(options.config) if options.config else None
    record = facts(config, options.about, keep_paths=options.keep_paths)
    from ...reports.json import dumps

    console.emit(dumps(record, indent=1), options.output, spare=config or "")
    replaced = [joined(" \N{MULTIPLICATION SIGN} ", [str(count), kind]) for kind, count in record["redacted"].items()]
    told = filled("replaced: {what}.", {"what": joined(", ", replaced or ["nothing"])})
    stays = "Names of packages and words that zdoctor knows stay: read it before you hand it on."
    console.tell(joined(" ", [told, stays]))
    return 0


def facts(config: str | None, about: str, *, keep_paths: bool = False) -> dict[str, Any]:
    """Everything that a check of `config` (or, without one, of the bare machine) asks of this machine, redacted."""
    recorder = Recorder(LiveWorld())
    record: dict[str, Any] = {}
    if config is not None:
        examine_config(config, recorder)
        record["config"] = {"path": recorder.absolute(config), "text": load(config).decode("utf-8", "replace")}
    recorder.gpus()
    probe_host(recorder)
    recorder.mount(recorder.system.cwd)
    record = {**recorder.record(about), **record}
    return redact(record, recorder.system, recorder.variables, socket.gethostname(), keep_paths=keep_paths)
