"""CFG001: the file does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Problem, found
from ...doctor.model.unfinished import UNLESS_WHOLE, stops_unless
from ...doctor.rules import prevents, rule
from ..keys.places import line_at

# what the parser says -> what it means to someone who wrote a config, not a parser
_HINTS = (
    (r"the quote .* opened here", "Close the quote at the end of its line."),
    (
        r"found unknown escape|expected escape sequence|Invalid \\?escape|Invalid \\u|names no character"
        r"|Invalid character '.' in string|Invalid unicode value",
        "A backslash inside double quotes starts an escape; put a Windows path in single quotes or write it with /.",
    ),
    (r"'\\t' that cannot", "YAML does not take tabs for indentation; use spaces."),
    (
        r"mapping values are not allowed",
        "There is a second ':' in the line, or it is indented one step too far; a value with ': ' needs quotes.",
    ),
    (r"could not find expected ':'", "A key needs a colon and a space after it."),
    (r"found character '[%@`]'", "A value that starts with this character needs quotes."),
    (
        r"expected <block end>|expected the node content",
        "The indentation does not fit the lines above, or a quote or bracket is not closed.",
    ),
    (r"undefined alias", "A value that starts with * needs quotes."),
    (r"Expecting property name|trailing comma", "JSON takes no comma after the last entry and no comments."),
    (r"Expecting ',' delimiter|expected ',' or", "A comma, a quote or a bracket is missing just before this place."),
    (r"Unexpected character: '\\n'", "A value or a closing bracket is missing in this line."),
    (r"Unexpected character: the end of the file", "A bracket is not closed before the end of the file."),
    (r"Control characters .* not allowed in strings", "The quote is not closed in this line."),
    (
        r"Unexpected character: '[A-Za-z/~]'",
        "Text needs quotes (a Windows path single ones), and true and false are written in small letters.",
    ),
    (r"NUL bytes", "Name the text file (YAML, JSON or TOML) that the trainer is started with."),
    (r"BOM", "The file starts with a byte-order mark; save it as UTF-8 without one."),
)
_LEFT_OUT = re.compile(r"(?<!\S)(?:\.{3}|\u2026)(?!\S)")  # a word of a command that stands for others


@rule("CFG001", "error", "unparsable-config")
@prevents("yaml.scanner.ScannerError", "")
@prevents("yaml.parser.ParserError", "")
@prevents("json.decoder.JSONDecodeError", r"Expecting (property name|'.' delimiter|value: line (?!1 column 1 ))")
@prevents("json.decoder.JSONDecodeError", r"Illegal trailing comma|Extra data: |Unterminated string|Invalid control")
@prevents("toml.decoder.TomlDecodeError", "")
@prevents("ValueError", r"Environment variable \S+ not set\. Please ensure it's defined")
@prevents("ValueError", r"config file must have a (job key|config section|config\.name key)")
def unparsable_config(config: Config) -> Iterator[Finding]:
    """The config cannot be read.

    What: The trainer's own reader would refuse the file: broken YAML or JSON, a wrong encoding. A warning is an
    environment variable that is not set here, as it may be where the trainer is started, and a file in which nothing
    shows whose it is, which may be another program's.
    Why: Nothing else can be checked before the file reads; the parser's own message often names a later line.
    Repair: An unclosed quote, a byte-order mark, UTF-16, a trailing comma in JSON and a backslash path are put right
    where the correction is certain; the rest is shown.
    Signature: yaml.scanner.ScannerError, yaml.parser.ParserError, json.decoder.JSONDecodeError, UnicodeDecodeError,
    "Environment variable X not set", "config file must have a job key"
    """
    problem = config.problem
    if problem is None:
        return
    hint = next((text for pattern, text in _HINTS if re.search(pattern, problem.message)), "")
    here = problem.where.path == config.path and problem.kind in ("syntax", "environment", "encoding", "misread")
    line = line_at(config, problem.where.line) if here else ""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line.strip())
    if 4 * shown.count("\N{REPLACEMENT CHARACTER}") > len(shown):  # of a binary file no line is worth reading
        shown = ""
    # what a parser says is a clause of its own; everything else is said in sentences
    begun = {
        "syntax": "The file does not parse: {problem}.",
        "misread": "The file is taken for another one: {problem}.",
    }.get(problem.kind)
    message = begun or "{problem}"
    if shown:
        message += "\n  {line} | {shown}"
    if hint:
        message += "\n" + hint
    unless = "" if problem.kind != "syntax" else stops_unless(line)
    if config.format == "shell":
        abridged = problem.kind == "syntax" and any(_LEFT_OUT.search(one) for one in (line, _before(config, problem)))
        unless = f"The trainer stops at once. {UNLESS_WHOLE}" if abridged else ""
    # that no trainer has such keys is not known of forks, nor what is set where the trainer is started
    doubtful = bool(unless) or problem.kind == "environment" or (problem.kind == "foreign" and config.trainer is None)
    yield found(
        problem.where,
        message,
        otherwise=(
            "Nothing in it can be checked."
            if problem.kind in ("size", "foreign", "environment")
            else unless
            if unless
            else "The trainer goes on without what is left out."
            if problem.kind == "misread"
            else "The trainer stops at once, before it loads anything."
        ),
        evidence={"kind": problem.kind, "message": problem.message, "text": shown[:200]},
        severity="warning" if doubtful else None,
        problem=problem.message if begun is None else problem.message.rstrip("."),
        line=problem.where.line,
        shown=shown[:160],
    )


def _before(config: Config, problem: Problem) -> str:
    """The line above the one that a problem shows in."""
    return line_at(config, None if problem.where.line is None else problem.where.line - 1)
