"""`zdoctor probe SCRIPT.py:build_model`: one step of a user's own model, and what of it is not trained."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__
from ...reports import json as json_report
from ...reports import terminal
from ...reports.painting import PAGE, paint
from ..configs.python_tree import Unparsable, parsed
from ..crash.explain import explain
from ..errors import UserError
from ..examine.config_file import load
from ..examine.examination import examine_config
from ..model import MicroStep, Report, Unknown
from ..model.amounts import amount
from ..model.record import replace
from ..model.shell import quoted
from ..probe.live import LiveWorld, shell_here
from ..progress import open_progress
from . import console
from .config_argument import format_argument

if TYPE_CHECKING:
    from ..probe.microstep import Tried

DEADLINE = 300.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="SCRIPT.py:FUNCTION", help="a function that returns (module, batch)")
    parser.add_argument("--batch", metavar="N", type=int, help="call FUNCTION(batch=N)")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=DEADLINE, help=f"default: {DEADLINE:.0f}")
    format_argument(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report here instead of the terminal")


def run(options: argparse.Namespace) -> int:
    """The exit code: 1 when something is not trained, 3 when the deadline ended the step."""
    with open_progress() as progress:
        progress.doing("running one step in a process of its own")
        report, step = probe(options.target, batch=options.batch, deadline=options.timeout)
    if options.format == "json":
        measured = None if isinstance(step, Unknown) else step
        data: json_report.ProbeDocument = {**json_report.as_data(report, __version__), "microstep": measured}
        text = json_report.dumps(data)
    else:
        screen = PAGE if options.output else console.screen()
        text = paint(terminal.lines(report, screen), screen)
        text += "" if isinstance(step, Unknown) else f"{_measured(step)}\n"
    console.emit(text, options.output, spare=report.config)
    return report.exit_code


def probe(target: str, *, batch: int | None = None, deadline: float = DEADLINE) -> tuple[Report, MicroStep | Unknown]:
    """Check a script and run one step of what its function builds, in a process of its own.

    Raises UserError for a target that is none.
    """
    script, colon, function = target.rpartition(":")
    if not colon or not script.endswith(".py") or not function.isidentifier():
        raise UserError(f"{target} names no function of a script.", "zdoctor probe train.py:build_model")
    text = load(script).decode("utf-8", "replace")
    _require(script, text, function, batch)
    from ..probe.microstep import try_step

    tried = try_step(str(Path(script).absolute()), function, batch=batch, deadline=deadline)
    step = _explained(tried, Path(script))
    report = examine_config(script, LiveWorld(), microstep=step).report
    cut = step.reason if isinstance(step, Unknown) else ""
    return replace(report, command="probe", cut_short=cut), step


def _require(script: str, text: str, function: str, batch: int | None) -> None:
    """Refuse what cannot work before torch is imported for it. A script that does not parse is left to the check."""
    try:
        tree = parsed(text)
    except Unparsable as error:
        raise UserError(f"{script}: {error}.", f"zdoctor check {quoted(script, shell_here())}") from None
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    other = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        alias.asname or alias.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for alias in n.names
    }
    if function not in defined and function not in other and "*" not in other:
        names = ", ".join(name for name in defined if not name.startswith("_")) or "none"
        raise UserError(f"{script} has no function {function}.", f"Its functions: {names}.")
    if batch is not None and function in defined:
        given = defined[function].args
        if given.kwarg is None and "batch" not in {a.arg for a in (*given.args, *given.kwonlyargs)}:
            raise UserError(f"{function} of {script} takes no batch.", f"def {function}(batch=1): …")


def _explained(tried: Tried, script: Path) -> MicroStep | Unknown:
    """The step with what is known of its failure, and the line of the script where it happened."""
    step = tried.step
    if isinstance(step, Unknown) or not step.failed:
        return step
    told = explain(tried.trace, ())
    frames = told.failure.frames if told.failure is not None else ()
    lines = [frame.line for frame in frames if Path(frame.file).name == script.name]
    step = replace(step, line=lines[-1] if lines else None)
    known = told.known
    return step if known is None else replace(step, why=told.cause, do=told.do, avoid=known.avoid)


def _measured(step: MicroStep) -> str:
    """What was measured, in a line."""
    parts = [f"{len(step.trainable)} trainable tensors, {step.parameters:,} parameters"]
    if step.loss is not None:
        stand_in = " (the mean square of the output: the script gives no loss)" if step.stand_in else ""
        parts.append(f"loss {step.loss:.6g}{stand_in}")
    if step.optimizer:
        parts.append(step.optimizer)
    if step.peak_bytes:
        what = "on the card" if step.device.startswith("cuda") else "of the process"
        parts.append(f"peak memory {what} {amount(step.peak_bytes)}")
    return f"measured on {step.device or 'cpu'}: {' · '.join(parts)} · {step.seconds:.1f} s"
