"""From a text of any format to its tree, or the problem that it is none."""

from __future__ import annotations

from ..model import Problem, Where
from .node import TOO_DEEP, Node, Unreadable
from .text import Expanded, Lines


def parse(path: str, source: Expanded, format: str, lines: Lines) -> Node | Problem:
    """The tree of a config, or why there is none. Each parser is imported only where it is needed."""
    try:
        match format:
            case "json":
                from .json_tree import parse_json

                return parse_json(source)
            case "toml":
                from .toml_tree import parse_toml

                return parse_toml(source)
            case "env":
                from .env_tree import parse_env

                return parse_env(source)
            case _:
                from .yaml_tree import parse_yaml

                return parse_yaml(source)
    except Unreadable as error:
        return Problem(str(error), lines.where(error.offset), error.kind)
    except RecursionError:
        return Problem(TOO_DEEP, Where(path))
    except (IndexError, ValueError) as error:  # PyYAML's scanner stumbles over some damaged texts, as in the trainer
        return Problem(f"the YAML parser stumbled over it ({type(error).__name__}: {error})", Where(path))
