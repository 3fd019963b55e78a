"""What a program says in its own words, in any usual language: a path that is not there, or that it may not open."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..model.crashes import Failure, Known
from ..model.record import replace
from . import table
from .failures import REPORTED, SAID
from .lines import Lines

_ABSENT = re.compile(
    r"\b(?:does(?: not|n't) exists?|do(?: not|n't) exist|(?:was |were )?not (?:be )?found|no such (?:file|folder|"
    r"directory|path)|(?:can|could)(?:not|n't| not) (?:be found|find)|not a (?:valid )?(?:folder|directory|file))\b"
    r"|不存在|找不到|未找到|没有找到|沒有找到|[无無]法找到|見つかりません|見つからない|存在しません|存在しない"
    r"|찾을 수 없|존재하지 않|не найден|не существу|не уда(?:лось|ется|ётся) найти"
    r"|nicht gefunden|existiert nicht|nicht finden|nicht vorhanden"
    r"|introuvable|n'existe pas|pas (?:été )?trouvé|no existe|no encontrad|no se (?:encuentra|encontró|ha encontrado)"
    r"|não existe|não encontrad|non esiste|non trovat|không tồn tại|không tìm thấy",
    re.I,
)
_DENIED = re.compile(
    r"\b(?:permission|access) (?:is |was )?denied\b|拒绝访问|拒絕存取|存取被拒|权限不够"
    r"|アクセスが拒否|許可がありません"
    r"|액세스가 거부|권한이 없|отказано в доступе|zugriff verweigert|keine berechtigung"
    r"|accès refusé|permission non accordée"
    r"|acceso denegado|permiso denegado|acesso negado|accesso negato|[Tt]ruy cập bị từ chối",
    re.I,
)
# What is looked for, where its path is not told.
_PLACE = re.compile(
    r"\b(?:folder|director(?:y|ies)|path|file|dataset|checkpoint)s?\b|目[录錄]|文件|資料夾|檔案|路[径徑]|フォルダ|ディレクトリ|ファイル|パス"
    r"|폴더|디렉터리|디렉토리|파일|경로|папк|каталог|файл|путь|ordner|verzeichnis|datei|pfad|dossier|fichier|chemin"
    r"|carpeta|archivo|directorio|ruta|pasta|arquivo|cartella|thư mục|tệp|tập tin|đường dẫn",
    re.I,
)
_PATH = re.compile(
    r"(?:(?<=['\"`])|(?<=[“「«]))(?P<quoted>[^'\"`”」»\n]*[/\\][^'\"`”」»\n]*)(?=['\"`”」»])"
    r"|(?<![\w/\\:.-])(?P<bare>(?:[A-Za-z]:[\\/]|~?/|\.{1,2}[\\/]|(?!\d+/\d|and/or\b|I/O\b|N/A\b)[\w.-]+[\\/](?=[\w.]))[^\s'\"`”」»,;:*?<>|。，（）()]*)"
)
_ROOTED = re.compile(r"[/~\\]|[A-Za-z]:")
# How a line says that it is of a failure.
_MARKED = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|FAILED|Error|Fatal|Failed)\b|\b(?:error|fatal|failed):|[❌✗✘⛔]|错误|錯誤|失[败敗]|エラー|오류|Ошибка|Fehler"
    r"|Erreur|Erro\b|Errore|Lỗi"
)
# A program goes on without it, or it is of something else.
_HARMLESS = re.compile(
    r"warn|skip|ignor|default|creat|fall|download|instead|optional|will be|continu|\busing\b|https?://|\braise \w"
    r"|\.(?:so|dll)\b|警告|跳过|跳過|忽略|默认|預設|创建|建立|スキップ|無視|作成|건너|предупр|пропу|созда|warnung"
    r"|über(?:sprungen|gangen)|ignoré|avertissement|omit|bỏ qua|cảnh báo",
    re.I,
)
_LATEST = 15
_LAST = 3
_LONGEST = 400
_FEW_WORDS = 8  # without a path or a mark more are a sentence of somebody

_WHERE = (
    "Compare it letter by letter with what is on the disk, and as the program sees it (containers, WSL and notebooks "
    "have paths of their own, and one that a notebook's cell makes or mounts is gone with its session); then correct "
    "the setting that names it."
)
_HERE = (
    "Start the program in the folder from which that path counts (most often its own), or write the whole path in "
    "the settings."
)
_ERRORS = "https://docs.python.org/3/library/errno.html"
_RELATIVE = Known(
    "What the program looks for is not there: {path}. That path counts from the folder in which the program was "
    "started, so it may lie elsewhere.",
    f"{_HERE} {_WHERE}",
    rule="PTH004",
    source=_ERRORS,
)
_WHOLE = Known("What the program looks for is not there: {path}.", _WHERE, rule="PTH004", source=_ERRORS)
_UNTOLD = Known(
    "A file or folder that the program looks for is not there; the words around it tell which setting names it.",
    _WHERE,
    rule="PTH004",
    source=_ERRORS,
)
_REFUSED = Known(
    "The system refuses this account a file or folder: {path}. It belongs to another account (in a container most "
    "often root), is write-protected, or another program such as a virus scanner or OneDrive guards it.",
    "Let the run write into a folder of your own outside of Program Files, OneDrive and system folders; on Linux "
    "sudo chown -R $USER FOLDER, with that folder.",
    source=_ERRORS,
)


def complaint(lines: Lines, failure: Failure | None) -> tuple[Failure, Known] | None:
    """What the failure's own words complain of, else the first of the last lines that does."""
    if failure is not None and failure.frames:
        return None
    if failure is not None and (known := _complained(failure.message.partition("\n")[0])) is not None:
        return failure, known
    if failure is not None and failure.name not in (SAID, REPORTED):
        return None
    said = ((_said(lines, at), _complained(lines[at])) for at in _latest(lines))
    return next(((line, known) for line, known in said if known is not None), None)


def _latest(lines: Lines) -> Iterator[int]:
    """The last lines that are marked as of a failure, in order, or that nearly nothing comes after; none that is
    known as a warning."""
    told = [at for at in range(max(0, len(lines) - 4 * _LATEST), len(lines)) if lines[at].strip()][-_LATEST:]
    warned = [word for known in table.warned() for word in known.words]
    for at in told:
        if (at in told[-_LAST:] or _MARKED.search(lines[at])) and not any(word in lines[at] for word in warned):
            yield at


def _said(lines: Lines, at: int) -> Failure:
    return Failure(SAID, lines[at].strip(), (), lines.numbers[at], begin=lines.numbers[at])


def _complained(line: str) -> Known | None:
    if len(line) > _LONGEST or _HARMLESS.search(line):
        return None
    path = next((found["quoted"] or found["bare"] for found in _PATH.finditer(line)), "")
    if _ABSENT.search(line):
        known = (_WHOLE if _ROOTED.match(path) else _RELATIVE) if path else _UNTOLD
        told = path or (_PLACE.search(line) and (_MARKED.search(line) or len(line.split()) <= _FEW_WORDS))
        return _with(known, path) if told else None
    return _with(_REFUSED, path) if path and _DENIED.search(line) else None


def _with(known: Known, path: str) -> Known:
    return replace(known, text=f"(?P<path>{re.escape(path)})" if path else "")
