"""A config of SimpleTuner as its reader decodes it: in the system's encoding, whatever that is."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Host, Run, System, Where, found
from ...doctor.rules import prevents, rule


@rule("SIM012", "error", "config-in-another-encoding", trainers=("SimpleTuner",))
@prevents("UnicodeDecodeError", r"codec can't decode byte[\s\S]*config")
def config_in_another_encoding(run: Run, config: Config, host: Host, system: System) -> Iterator[Finding]:
    """SimpleTuner reads its config in the system's encoding, which is not the config's.

    What: The encoding that Python takes where none is named, and the letters of the config beyond ASCII. The file of
    datasets is read as UTF-8 everywhere, and captions are.
    Why: SimpleTuner opens its config.json, .toml or .env without naming an encoding. Windows has one for each region;
    prompts, triggers and paths in other scripts are garbled without a word, or end the start.
    Repair: PYTHONUTF8=1 in the environment of the trainer; or ASCII alone (in JSON \\u00e9 for é).
    Upstream: https://docs.python.org/3/using/cmdline.html (PYTHONUTF8),
    simpletuner/helpers/configuration/json_file.py
    Signature: UnicodeDecodeError: 'charmap' codec can't decode byte …; 'gbk' codec can't decode byte …
    """
    if (
        run.kind == "other"
        or not host.encoding
        or config.text.isascii()
        or system.environment.get("PYTHONUTF8") == "1"
    ):
        return
    data = config.text.encode(config.encoding, "surrogateescape")
    number, line = next((at, line) for at, line in enumerate(config.text.splitlines(), 1) if not line.isascii())
    try:
        if codecs.lookup(host.encoding).name == "utf-8":
            return
        read = data.decode(host.encoding)
    except LookupError:
        return
    except UnicodeDecodeError:
        read = ""
    if read == config.text:
        return
    letter = next(letter for letter in line if not letter.isascii())
    yield found(
        Where(config.path, number, line.index(letter) + 1),
        "SimpleTuner reads this file as {encoding}, the system's encoding; it is {own}, and {letter} is in it.",
        otherwise="Prompts and paths with such letters are garbled without a word."
        if read
        else "The trainer ends with UnicodeDecodeError at its start.",
        evidence={"encoding": host.encoding},
        own=config.encoding.upper(),
        letter=letter,
    )
