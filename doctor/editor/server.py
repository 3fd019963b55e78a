"""The language server: what an editor asks of a config over stdin and stdout, answered by pygls.

One check runs at a time. While it runs an editor may change the text as often as it likes: only the last one is
looked at next. The machine is looked at anew when a file is opened or saved, not at every key. Repairs are examined
when they are asked for, which takes as long as the check itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from ..configs.text import format_of
from ..errors import UserError
from ..examine.examination import Examination
from ..probe.world import World
from .keys import Keys, explained, keys_of, offered
from .marks import Mark, marks, mended

_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
_EFFECT = {"changes-result": " (changes what is learnt)"}


@dataclass
class Opened:
    """A file that is open: the last look at it, and the keys that its trainer reads."""

    seen: Examination | None = None
    keys: Keys | None = None
    waits: bool = False
    busy: bool = False


class ConfigServer(LanguageServer):
    """A server and the files that are open in its editor."""

    def __init__(self, version: str, examined: Callable[..., Examination]) -> None:
        super().__init__("zdoctor", version)
        self.examined = examined
        self.opened: dict[str, Opened] = {}
        self.worlds: dict[str | None, World] = {}
        self.checks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="check")

    async def look(self, uri: str, *, anew: bool = False) -> None:
        """Check the text as it is now, once more as long as it has changed meanwhile, and show what was found."""
        if anew:
            self.worlds = {}
        opened = self.opened.setdefault(uri, Opened())
        opened.waits = True
        if opened.busy:
            return
        opened.busy = True
        try:
            while opened.waits and uri in self.opened:
                opened.waits = False
                document = self.workspace.get_text_document(uri)
                text, version = document.source, document.version
                seen = await asyncio.get_running_loop().run_in_executor(self.checks, self._seen, document.path, text)
                if opened.waits or uri not in self.opened:
                    continue
                opened.seen = seen
                opened.keys = (keys_of(seen) if seen is not None else None) or opened.keys
                shown = [_diagnostic(*one) for one in self._placed(document, seen)]
                self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, shown, version))
        finally:
            opened.busy = False

    async def repaired(self, document: TextDocument) -> list[tuple[lsp.Range, Mark]]:
        """The marks of the text as it is now, with the repairs that hold."""
        asked = partial(self._seen, document.path, document.source, prove=True)
        seen = await asyncio.get_running_loop().run_in_executor(self.checks, asked)
        return [] if seen is None else list(self._placed(document, seen))

    def _seen(self, path: str, text: str, *, prove: bool = False) -> Examination | None:
        """Nothing of what cannot be looked at; an error of ours is said to the editor, and the server lives on."""
        try:
            return self.examined(path, worlds=self.worlds, text=text.encode("utf-8", "surrogatepass"), prove=prove)
        except UserError:
            return None
        except Exception as error:
            self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Error, f"zdoctor: our bug: {error!r}"))
            return None

    def _placed(self, document: TextDocument, seen: Examination | None) -> Iterator[tuple[lsp.Range, Mark]]:
        for mark in () if seen is None else marks(seen):
            place = lsp.Range(lsp.Position(mark.line, mark.start), lsp.Position(mark.line, mark.end))
            yield document.position_codec.range_to_client_units(document.lines, place), mark


def _diagnostic(place: lsp.Range, mark: Mark) -> lsp.Diagnostic:
    finding = mark.finding
    return lsp.Diagnostic(
        place,
        "\n".join(filter(None, (finding.text(), finding.consequence()))),
        _SEVERITIES[finding.severity or "error"],
        code=finding.rule,
        source="zdoctor",
    )


def _edit(document: TextDocument, after: str) -> lsp.TextEdit:
    """The lines that a repair changes, replaced as a whole."""
    before, new = document.lines, after.splitlines(keepends=True)
    least = min(len(before), len(new))
    first = next((n for n in range(least) if before[n] != new[n]), least)
    last = next((n for n in range(least - first) if before[-1 - n] != new[-1 - n]), least - first)
    place = lsp.Range(lsp.Position(first, 0), lsp.Position(len(before) - last, 0))
    return lsp.TextEdit(place, "".join(new[first : len(new) - last]))


def config_server(version: str, examined: Callable[..., Examination]) -> ConfigServer:
    """A server with all that it answers; `examined` checks a config, as the commands do."""
    server = ConfigServer(version, examined)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(server: ConfigServer, asked: lsp.DidOpenTextDocumentParams) -> None:
        await server.look(asked.text_document.uri, anew=True)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(server: ConfigServer, asked: lsp.DidChangeTextDocumentParams) -> None:
        await server.look(asked.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(server: ConfigServer, asked: lsp.DidSaveTextDocumentParams) -> None:
        await server.look(asked.text_document.uri, anew=True)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(server: ConfigServer, asked: lsp.DidCloseTextDocumentParams) -> None:
        server.opened.pop(asked.text_document.uri, None)
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(asked.text_document.uri, []))

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    async def repairs(server: ConfigServer, asked: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = server.workspace.get_text_document(asked.text_document.uri)
        text, wanted = document.source, range(asked.range.start.line, asked.range.end.line + 1)
        made = []
        for place, mark in await server.repaired(document):
            for fix in mark.finding.fixes if place.start.line in wanted else ():
                after = mended(text, document.path, fix)
                if after is not None and text == document.source:
                    change = lsp.WorkspaceEdit({document.uri: [_edit(document, after)]})
                    title = fix.title[:1].upper() + fix.title[1:] + _EFFECT.get(fix.training_effect, "")
                    marked = [_diagnostic(place, mark)]
                    made.append(lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, marked, edit=change))
        return made

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(server: ConfigServer, asked: lsp.HoverParams) -> lsp.Hover | None:
        opened = server.opened.get(asked.text_document.uri)
        if opened is None or opened.seen is None or opened.keys is None:
            return None
        place = _own_units(server, asked.text_document.uri, asked.position)
        told = explained(opened.seen, opened.keys, place.line, place.character)
        return None if told is None else lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, told))

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["-", '"', " ", "="]))
    def completion(server: ConfigServer, asked: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        opened = server.opened.get(asked.text_document.uri)
        if opened is None or opened.keys is None:
            return []
        document = server.workspace.get_text_document(asked.text_document.uri)
        place = _own_units(server, document.uri, asked.position)
        format = format_of(document.path, document.source)
        found = offered(opened.keys, format, document.source, place.line, place.character)
        return [lsp.CompletionItem(name, detail=detail or None) for name, detail in found]

    return server


def _own_units(server: ConfigServer, uri: str, place: lsp.Position) -> lsp.Position:
    """The place in characters, where the client may count in UTF-16."""
    document = server.workspace.get_text_document(uri)
    own = document.position_codec.position_from_client_units(document.lines, place)
    return lsp.Position(own.line, own.character)
