"""A session of pygls' own client with `zdoctor lsp`: marks while typing, repairs, explanations, completion."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from zdoctor.tests.configs_on_disk import write_config

SLIP = "optimzer: adamw"


class Editor:
    """An editor with one file open: what it shows, and what it was told."""

    def __init__(self, file: Path) -> None:
        self.uri, self.text, self.version = file.as_uri(), file.read_text(encoding="utf-8"), 0
        self.client = LanguageClient("editor", "1")
        self.shown: dict[int | None, list[lsp.Diagnostic]] = {}
        self.changed = asyncio.Event()

        def publish(told: lsp.PublishDiagnosticsParams) -> None:
            self.shown[told.version] = list(told.diagnostics)
            self.changed.set()

        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(publish)

    async def begin(self) -> None:
        await self.client.start_io(sys.executable, "-m", "zdoctor", "lsp", "--stdio")
        able = lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), root_uri=None)
        await self.client.initialize_async(able)
        self.client.initialized(lsp.InitializedParams())

    async def open(self) -> list[lsp.Diagnostic]:
        document = lsp.TextDocumentItem(self.uri, "yaml", 0, self.text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(document))
        return await self.marks()

    def write(self, text: str) -> None:
        self.text, self.version = text, self.version + 1
        document = lsp.VersionedTextDocumentIdentifier(self.version, self.uri)
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [whole]))

    async def marks(self) -> list[lsp.Diagnostic]:
        """Those of the text as it is now, as soon as they are there."""
        while self.version not in self.shown:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)
        return self.shown[self.version]

    def at(self, words: str) -> lsp.Position:
        """The place behind these words."""
        before = self.text[: self.text.index(words) + len(words)]
        return lsp.Position(before.count("\n"), len(before.rpartition("\n")[2]))

    async def completed(self, words: str) -> list[str]:
        """What is offered behind these words."""
        asked = lsp.CompletionParams(lsp.TextDocumentIdentifier(self.uri), self.at(words))
        items: Any = await self.client.text_document_completion_async(asked)
        return [item.label for item in items]

    async def end(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        stop: Any = self.client.stop
        await stop()


def session(file: Path, steps: Callable[[Editor], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        editor = Editor(file)
        await editor.begin()
        await steps(editor)
        await editor.end()

    asyncio.run(run())


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path)
    config.write_text(config.read_text().replace("optimizer: adamw", SLIP))
    return config


def test_a_slip_is_marked_mended_and_gone(file: Path) -> None:
    async def steps(editor: Editor) -> None:
        marks = {mark.code: mark for mark in await editor.open()}
        slip = marks["CFG002"]
        end = editor.at("optimzer")
        assert slip.range == lsp.Range(lsp.Position(end.line, end.character - len("optimzer")), end)
        assert slip.severity == lsp.DiagnosticSeverity.Warning and "optimizer" in slip.message
        asked = lsp.CodeActionParams(
            lsp.TextDocumentIdentifier(editor.uri), slip.range, lsp.CodeActionContext([slip])
        )
        actions: Any = await editor.client.text_document_code_action_async(asked)
        (action,) = (one for one in actions if "optimizer" in one.title)
        (edit,) = action.edit.changes[editor.uri]
        lines = editor.text.splitlines(keepends=True)
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
        editor.write("".join(lines))
        assert editor.text == file.read_text().replace("optimzer", "optimizer")
        assert "CFG002" not in {mark.code for mark in await editor.marks()}

    session(file, steps)


def test_keys_are_explained_and_completed(file: Path) -> None:
    async def steps(editor: Editor) -> None:
        await editor.open()
        asked = lsp.HoverParams(lsp.TextDocumentIdentifier(editor.uri), editor.at("lr"))
        hover: Any = await editor.client.text_document_hover_async(asked)
        assert "**train/lr**" in hover.contents.value and "ai-toolkit" in hover.contents.value
        assert "bf16" in await editor.completed("dtype: b")
        keys = await editor.completed("        opti")
        assert "optimizer" in keys and "ema_config" in keys and "linear_alpha" not in keys
        assert "linear_alpha" in await editor.completed("        linear")
        assert "caption_ext" in await editor.completed("          capt")
        editor.write(editor.text.replace("      train:\n", "      train:\n        gradi\n"))  # parses no more
        assert {mark.code for mark in await editor.marks()} >= {"CFG001"}
        assert "gradient_checkpointing" in await editor.completed("        gradi")

    session(file, steps)


def test_only_the_last_of_many_changes_counts(file: Path) -> None:
    async def steps(editor: Editor) -> None:
        await editor.open()
        for number in range(60):
            editor.write(editor.text.replace("steps: ", f"steps: {number % 10}"))
        marks = await editor.marks()
        assert len(editor.shown) < 30 and {mark.code for mark in marks} >= {"CFG002"}

    session(file, steps)


@pytest.mark.parametrize(
    "text", ["services:\n  web:\n    image: nginx\n", "", "\0\ud83d\ude00", "a: " + "x" * 11_000_000]
)
def test_what_is_no_config_is_left_alone(file: Path, text: str) -> None:
    async def steps(editor: Editor) -> None:
        editor.text = text
        assert await editor.open() == []
        editor.write(file.read_text())
        assert "CFG002" in {mark.code for mark in await editor.marks()}  # and the server lives on

    session(file, steps)


def test_places_are_told_as_the_editor_counts(file: Path) -> None:
    """In UTF-16, where a face takes two."""

    async def steps(editor: Editor) -> None:
        editor.text = editor.text.replace(SLIP, '"\N{GRINNING FACE}": 1, optimzer: adamw').replace(
            "      train:\n", "      train: {\n"
        )
        start = editor.text.index("train: {")
        head, body = editor.text[:start], editor.text[start:]
        inside, rest = body.split("      model:\n", 1)
        inside = inside.replace("\n        ", ",\n        ").replace("{,", "{").rstrip() + "}\n"
        editor.text = f"{head}{inside}      model:\n{rest}"
        marks = [mark for mark in await editor.open() if mark.code == "CFG002" and "optimzer" in mark.message]
        line = next(one for one in editor.text.splitlines() if "optimzer" in one)
        assert [mark.range.start.character for mark in marks] == [line.index("optimzer") + 1]

    session(file, steps)


def test_a_client_that_dies_ends_the_server(file: Path) -> None:
    async def steps() -> int | None:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "zdoctor", "lsp"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert server.stdin is not None
        server.stdin.write(b"Content-Length: 5\r\n\r\nhello")
        await server.stdin.drain()
        server.stdin.close()
        return await asyncio.wait_for(server.wait(), 60)

    assert asyncio.run(steps()) is not None
