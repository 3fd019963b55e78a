"""`zdoctor completion SHELL`: a script by which the shell completes commands, options, values, rules and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ..rules import all_rules
from ..trainers import names
from . import console
from .help_text import AsWritten

SHELLS = ("bash", "zsh", "fish", "powershell")
_FILES = ("CONFIG", "FILE", "FACTS.json", "LOGFILE", "SCRIPT.py:FUNCTION")
_FOLDERS = ("DIR", "DEST", "CHECKOUT")
WHERE = """bash:        zdoctor completion bash > ~/.local/share/bash-completion/completions/zdoctor
zsh:         zdoctor completion zsh > FOLDER/_zdoctor   with FOLDER in $fpath before compinit
fish:        zdoctor completion fish > ~/.config/fish/completions/zdoctor.fish
PowerShell:  zdoctor completion powershell >> $PROFILE"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parser.formatter_class = AsWritten
    parser.epilog = WHERE


def run(options: argparse.Namespace) -> int:
    import shtab

    ids = " ".join(rule.id for rule in all_rules())
    several, what = _completer("rules", ids), _completer("rule_or_log", ids)
    fitting = {"IDS": several, "LOGFILE|RULE": what, **dict.fromkeys(_FILES, shtab.FILE)}
    fitting |= dict.fromkeys(_FOLDERS, shtab.DIRECTORY)
    root: argparse.ArgumentParser = options.parser()
    for argument in _arguments(root):
        if argument.metavar == "NAME":
            argument.choices = names()
        elif argument.metavar in fitting:
            argument.complete = fitting[argument.metavar]  # as shtab reads it
    console.emit(shtab.complete(root, options.shell))
    return 0


def _arguments(root: argparse.ArgumentParser) -> Iterator[Any]:
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            for parser in action.choices.values():
                yield from parser._actions


def _completer(name: str, ids: str) -> dict[str, Any]:
    """One of the functions below as shtab takes it: what each shell calls, and what that is made of."""
    made = {shell: text.replace("IDS", ids) for shell, text in _FUNCTIONS[name].items()}
    return {**dict.fromkeys(SHELLS, f"_zdoctor_{name}"), "fish": f"(_zdoctor_{name})", "preamble": made}


# Rules with commas between them; and a rule or a file.
_FUNCTIONS = {
    "rules": {
        "bash": """_zdoctor_rules() {
  local head=""
  if [[ $1 == *,* ]]; then head="${1%,*},"; fi
  compgen -P "$head" -W "IDS" -- "${1##*,}"
}""",
        "zsh": "_zdoctor_rules() { _values -s , rule IDS }",
        "fish": """function _zdoctor_rules
  set -l word (string replace -r '^--[^=]*=' '' -- (commandline -ct))
  string replace -r '^' (string replace -r '[^,]*$' '' -- "$word") -- (string split ' ' 'IDS')
end""",
        "powershell": """function _zdoctor_rules {
  param([string]$word)
  $head = $word -replace '[^,]*$'
  'IDS' -split ' ' | ForEach-Object { $head + $_ } | Where-Object { $_ -like "$word*" }
}""",
    },
    "rule_or_log": {
        "bash": """_zdoctor_rule_or_log() { compgen -W "IDS" -- "$1"; compgen -f -- "$1"; }""",
        "zsh": "_zdoctor_rule_or_log() { compadd IDS; _files }",
        "fish": """function _zdoctor_rule_or_log
  string split ' ' 'IDS'
  __fish_complete_path (commandline -ct)
end""",
        "powershell": """function _zdoctor_rule_or_log {
  param([string]$word)
  'IDS' -split ' ' | Where-Object { $_ -like "$word*" }
  _shtab_powershell_compgen_files $word
}""",
    },
}
