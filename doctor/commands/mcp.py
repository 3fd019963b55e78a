"""`zdoctor mcp`: zdoctor as the tools of an agent, by the Model Context Protocol.

Results are the documents that the commands write as JSON. A repair is carried out only by the word that its plan was
shown with, and as it was shown.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from ... import __version__
from ...reports import crash_json, repairs_json, rules_json
from ...reports import json as report_json
from .. import apply as writer
from ..crash.question import nameless
from ..errors import UserError
from ..model import Plan, TrainingEffect
from ..rules import all_rules, select
from ..state import state_folder
from .check import check
from .explain import explained
from .fix import fix
from .rules import measured

Document = dict[str, Any]
_ABOUT = (
    "Says what would go wrong in a LoRA training run of ai-toolkit, SimpleTuner, sd-scripts or musubi-tuner, "
    "before it starts, and repairs it reversibly. Begin with check_config. Show the user what plan gives, and call "
    "apply only when they agree, with its word."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """It takes no words."""


def run(options: argparse.Namespace) -> int:
    try:
        import mcp.server
    except ImportError as error:
        raise UserError(
            f"The server for agents needs packages that are not here: {error.name}.", "pip install 'zdoctor[mcp]'"
        ) from error
    server = mcp.server.MCPServer("zdoctor", instructions=_ABOUT, version=__version__)
    for looks, tools in ((True, (check_config, explain_log, explain_rule, plan)), (False, (apply, undo))):
        hints = mcp.types.ToolAnnotations(read_only_hint=looks, destructive_hint=False, open_world_hint=False)
        for tool in tools:
            server.tool(annotations=hints)(_told(tool))
    server.run("stdio")
    return 0


def _told(tool: Callable[..., Document]) -> Callable[..., Document]:
    """The same, with what a user would be told of a mistake as the error of the tool."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def call(*args: Any, **words: Any) -> Document:
        try:
            return tool(*args, **words)
        except UserError as error:
            raise ToolError(" ".join(filter(None, (str(error), error.hint)))) from None

    return call


def check_config(config: str, trainer: str | None = None) -> Document:
    """What would go wrong in a training run, with where and why. `config` is the path of a trainer's config; of a
    LoRA (.safetensors) it says what is wrong with that. Changes nothing."""
    return _plain(report_json.as_data(check(config, trainer=trainer), __version__))


def explain_log(log: str, config: str | None = None) -> Document:
    """Why a training run ended, by the text of its log; with the path of its config, whether that is so here."""
    told, rules = explained(log, config)
    return _plain(
        nameless(report_json.plain(crash_json.as_data(told, rules, config, None, exit_code=0, version=__version__)))
    )


def explain_rule(rule: str) -> Document:
    """What a rule (its id or name, as a finding has it) looks at, why, and how it is mended."""
    return _plain(json.loads(rules_json.render(select(all_rules(), [rule], []), measured(), __version__)))


def plan(config: str, changes_result: bool = False) -> Document:
    """The repairs of a config, its files and its environment, with the difference that they make. Changes nothing.

    `changes_result` adds those that change what is learnt. `word` is what apply asks for.
    """
    done = fix(config, allow=_allowed(changes_result))
    document = json.loads(
        repairs_json.of_plan(done, [], {}, writer.describe, version=__version__, exit_code=done.before.exit_code)
    )
    return {"word": _word(done.plan), "plan": document}


def apply(config: str, word: str, changes_result: bool = False) -> Document:
    """Carry out a plan that the user has seen and agreed to: `word` is the one it was shown with. Can be undone."""
    shown = fix(config, allow=_allowed(changes_result)).plan
    binding = writer.bind(shown)
    if not shown.fixes or word != _word(shown):
        raise UserError("This is not the plan of that word: something has changed.", "Ask for plan again.")
    done = writer.apply(shown, binding=binding, state=state_folder())
    after = report_json.as_data(check(config), __version__)
    return {"applied": done.id, "what": [writer.describe(step) for step in shown.steps], "after": _plain(after)}


def undo(id: str) -> Document:
    """Take back a repair by its id, byte for byte."""
    return {"undone": id, "what": list(writer.undo(id, state=state_folder()))}


def _allowed(changes_result: bool) -> TrainingEffect:
    return "changes-result" if changes_result else "none"


def _word(plan: Plan) -> str:
    """What stands for exactly these steps, and the files as they are now."""
    return hashlib.sha256(repr((plan.steps, writer.bind(plan))).encode()).hexdigest()[:12]


def _plain(document: object) -> Document:
    found: Document = json.loads(report_json.dumps(document))
    return found
