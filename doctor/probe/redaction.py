"""A machine file made fit to be shown to others: what names a person, a place or a secret is replaced, and counted.

The same thing gets the same stand-in everywhere, so that a path of the config is still found among the files.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..model import System
from ..model.printable import TOKEN

_PACKAGE = Path(__file__).parents[2]
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_?KEY|CREDENTIAL|AUTH", re.I)
_ASSIGNED = re.compile(
    r"""((?:token|secret|passw(?:or)?d|api_?key|access_?key|credentials?)["']?\s*[:=]\s*["']?)([^\s"'<,}&]{6,})""",
    re.I,
)
_IN_ADDRESS = re.compile(r"(://)[^/\s\"'@]+@|([?&;][\w-]*(?:token|key|sig|secret|passw|auth)\w*=)[^&\s\"'#]+", re.I)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_HOST = re.compile(r"(://|(?<![\w:\\/])(?:\\\\|//)(?=[\w-]))([^/\\\s\"':,?#]+)")
_PUBLIC = re.compile(
    r"(?:[\w-]+\.)*(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn|github\.com|pypi\.org|pytorch\.org"
    r"|pythonhosted\.org|readthedocs\.io|python\.org|nvidia\.com|localhost|wsl)|127\.0\.0\.1|wsl\.localhost|[?.]"
)
_USERS = re.compile(r"((?:/home|/Users|\b[A-Za-z]:[\\/]+Users|/media|/run/media)[\\/]+)([^\\/\s\"':,;]+)")
_NOBODY = ("user", "root", "users", "admin", "ubuntu", "Public", "Shared", "Default", "runner", "home", "opt")
_WORD = re.compile(r"[^\W_]+")
_MEANT = re.compile(r"\d+|\d*[a-z]?\d*|[0-9a-f]{32,}|.", re.I)  # numbers, 1e4, v2, digests
_KEY = re.compile(r"""["']?([\w.-]+)["']?\s*[:=]""")
_NOTES = re.compile(r'("ss_(?!network|base_model)\w+": ?")((?:[^"\\]|\\.)*)"')
_PROXY = re.compile(r"[\w-]*[A-Za-z.][\w.-]*")
_AS_IT_IS = ("gpus", "packages", "schema", "now_ns", "digests")

Pass = tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]]  # a kind, what is looked for, what stands in


def redact(
    record: Mapping[str, Any], system: System, variables: Mapping[str, str], host: str, *, keep_paths: bool = False
) -> dict[str, Any]:
    """The record without tokens, names of users and hosts, and the home folder; what was replaced is counted in it.

    Words of paths and of the config that zdoctor does not know become w1, w2, …. With `keep_paths` paths stay, and
    what is replaced are tokens, hosts and mail addresses.
    """
    counts: Counter[str] = Counter()
    passes = [*_secrets(variables), *(() if keep_paths else _people(system, variables)), *_hosts(variables, host)]
    words: dict[str, str] = {}

    def once(text: str) -> str:
        for kind, pattern, stand_in in passes:

            def replaced(match: re.Match[str], kind: str = kind, stand_in: Any = stand_in) -> str:
                made: str = stand_in(match)
                counts[kind] += made != match[0]
                return made

            text = pattern.sub(replaced, text)
        return text

    def worded(text: str) -> str:
        return _WORD.sub(lambda match: words.get(match[0], match[0]), text)

    def walked(value: Any, change: Callable[[str, bool], str], in_files: bool = False) -> Any:
        if isinstance(value, str):
            return change(value, in_files)
        if isinstance(value, list | tuple):
            return [walked(item, change, in_files) for item in value]
        if not isinstance(value, dict):
            return value
        made = {}
        for key, item in value.items():
            if key in _AS_IT_IS or (key == "ranges" and in_files):
                made[key] = item
            else:
                name = change(key, in_files) if in_files and ("/" in key or "\\" in key) else key
                made[name] = walked(item, change, in_files or key == "files")
        return made

    def shape(text: str, in_files: bool) -> str:
        return worded(text) if in_files or "/" in text or "\\" in text else text

    done = walked(record, lambda text, _: once(text))
    environment = done["system"]["environment"]
    for name in environment:
        if name.upper().endswith("_PROXY"):
            environment[name] = _PROXY.sub(lambda m: _proxy_word(m[0], counts), environment[name])
    contents = list(_contents(done["files"]))
    for entry, at, text, whole in contents:
        _put(entry, at, text, once(_NOTES.sub(_noted(counts), text)), whole)
    if not keep_paths:
        words |= _unknown_words(done)
        done = walked(done, shape)
        if "config" in done:
            done["config"]["text"] = worded(done["config"]["text"])
        for entry, at, text, whole in _contents(done["files"]):
            _put(entry, at, text, worded(text), whole)
        counts["word of a path or of the config"] = len(words)
    return {**done, "redacted": {kind: count for kind, count in sorted(counts.items()) if count}}


def _secrets(variables: Mapping[str, str]) -> Iterator[Pass]:
    secrets = {value for name, value in variables.items() if _SECRET_NAME.search(name) and len(value) > 5}
    secrets = {value for value in secrets if not re.match(r"[/\\~.]|[A-Za-z]:[\\/]", value)}
    if secrets:
        yield "token or password", _any_of(secrets), lambda m: "***"
    yield "token or password", TOKEN, lambda m: m[1] + "***"
    yield "token or password", _ASSIGNED, lambda m: m[1] + "***"
    yield "key in an address", _IN_ADDRESS, lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***"
    yield "mail address", _MAIL, lambda m: "someone@host"


def _people(system: System, variables: Mapping[str, str]) -> Iterator[Pass]:
    neutral = "C:\\Users\\user" if system.os == "windows" else "/home/user"
    home = system.home.rstrip("/\\")
    if len(home) > 1 and home != neutral:
        parts = r"[\\/]+".join(re.escape(part) for part in re.split(r"[\\/]+", home))
        flags = re.I if system.os == "windows" else 0
        pattern = re.compile(rf"{parts}(?![^\W_])", flags)
        yield (
            "home folder",
            pattern,
            lambda m: neutral.replace("\\", "/") if "/" in m[0] else _as_written(neutral, m[0]),
        )
    named = [variables.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    users = {name for name in (*named, re.split(r"[\\/]", home)[-1]) if len(name) > 2 and name not in _NOBODY}
    if users:
        yield "user name", _any_of(users, whole=True), lambda m: "user"
    others: dict[str, str] = {}
    yield (
        "user name",
        _USERS,
        lambda m: m[0] if m[2] in _NOBODY else m[1] + others.setdefault(m[2], f"user{len(others) + 2}"),
    )


def _hosts(variables: Mapping[str, str], host: str) -> Iterator[Pass]:
    hosts = {name for name in (host, *map(variables.get, ("HOSTNAME", "COMPUTERNAME"))) if name and len(name) > 2}
    if hosts - {"localhost"}:
        yield "host name", _any_of(hosts - {"localhost"}, whole=True), lambda m: "host"
    yield "host name", _HOST, lambda m: m[0] if _PUBLIC.fullmatch(m[2]) or "*" in m[2] else m[1] + "host"


def _any_of(texts: set[str], *, whole: bool = False) -> re.Pattern[str]:
    """The longest first; `whole`: not inside a longer word."""
    either = "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])" if whole else either, re.I if whole else 0)


def _as_written(neutral: str, found: str) -> str:
    """With the separators of what it stands in for: slashes, or backslashes that are escaped."""
    if "\\" in neutral and "/" in found:
        return neutral.replace("\\", "/")
    return neutral.replace("\\", "\\\\") if "\\\\" in found else neutral


def _proxy_word(word: str, counts: Counter[str]) -> str:
    if word.lower() in ("http", "https", "localhost", "host", "127.0.0.1") or word.lower().startswith("socks"):
        return word
    counts["host name"] += 1
    return "host"


def _noted(counts: Counter[str]) -> Callable[[re.Match[str]], str]:
    """What a trainer noted in a LoRA (folders, captions, comments), as long as it was."""

    def veiled(match: re.Match[str]) -> str:
        counts["note in a LoRA"] += 1
        return match[1] + re.sub(r"[^\W\d]", "x", match[2]) + '"'

    return veiled


def _unknown_words(record: Mapping[str, Any]) -> dict[str, str]:
    """Stand-ins for the words of paths and of the config that do not occur in zdoctor's own source."""
    config = record.get("config", {}).get("text", "")
    texts = [json.dumps(record[name], ensure_ascii=False) for name in ("system", "mounts", "speeds", "elsewhere")]
    for path, entry in record["files"].items():
        texts += [path, *(entry or {}).get("names", ()), (entry or {}).get("link", "")]
    found = dict.fromkeys(_WORD.findall(" ".join([*texts, config])))
    known = {word.lower() for file in _sources() for word in _WORD.findall(file.read_text(encoding="utf-8"))}
    known |= {word.lower() for key in _KEY.findall(config) for word in _WORD.findall(key)}
    new = [word for word in found if word.lower() not in known and not _MEANT.fullmatch(word)]
    return {word: f"w{number}" for number, word in enumerate(new, 1)}


def _sources() -> Iterator[Path]:
    for folder in ("checks", "doctor", "fixes"):
        for names in ("*.py", "names.json"):
            yield from (_PACKAGE / folder).rglob(names)


def _contents(files: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], int, str, bool]]:
    """What was read of the files: entry, number of the range, text, and whether it is all of the file, as text."""
    for entry in files.values():
        for at, (start, coded) in enumerate((entry or {}).get("ranges", ())):
            content = base64.b64decode(coded)
            try:
                yield entry, at, content.decode("utf-8"), start == 0 and len(content) == entry.get("size")
            except UnicodeDecodeError:
                yield entry, at, content.decode("latin-1"), False


def _put(entry: dict[str, Any], at: int, before: str, after: str, whole: bool) -> None:
    """A content that was changed: all of a text file with its new size, a part of one as long as it was."""
    if before == after:
        return
    start, coded = entry["ranges"][at]
    content = after.encode("utf-8")
    if not whole:
        content = _as_long(base64.b64decode(coded), before, after)
    else:
        entry["size"] = len(content)
    entry["ranges"] = [*entry["ranges"][:at], [start, base64.b64encode(content).decode()], *entry["ranges"][at + 1 :]]


def _as_long(content: bytes, before: str, after: str) -> bytes:
    """The bytes with an x for each letter of the words that are no longer there."""
    kept = set(_WORD.findall(after))
    for word in set(_WORD.findall(before)) - kept:
        for coded in {word.encode("utf-8"), word.encode("latin-1", "ignore")} - {b""}:
            content = content.replace(coded, b"x" * len(coded))
    return content
