"""A session of the protocol's own client with `zdoctor mcp`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client, StdioServerParameters

from zdoctor.tests.configs_on_disk import write_config

SCHEMA = json.loads((Path(__file__).parents[3] / "reports" / "documents.schema.json").read_text(encoding="utf-8"))


class Agent:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def ask(self, tool: str, **words: Any) -> dict[str, Any]:
        """The result of a tool, which must be one."""
        told = await self.client.call_tool(tool, words)
        assert not told.is_error, told.content
        result: dict[str, Any] = told.structured_content or {}
        return result

    async def refused(self, tool: str, **words: Any) -> str:
        told = await self.client.call_tool(tool, words)
        assert told.is_error
        return "".join(getattr(part, "text", "") for part in told.content)


def session(steps: Callable[[Agent], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "zdoctor", "mcp"], env=dict(os.environ))
        async with Client(server) as client:
            await steps(Agent(client))

    asyncio.run(run())


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return write_config(tmp_path, folder_path='"C:\\Users\\me"')  # \U begins a character in YAML's double quotes


def test_its_tools_say_which_of_them_write() -> None:
    async def steps(agent: Agent) -> None:
        tools = (await agent.client.list_tools()).tools
        looks = {tool.name: tool.annotations is not None and tool.annotations.read_only_hint for tool in tools}
        assert looks == {
            **dict.fromkeys(("check_config", "explain_log", "explain_rule", "plan"), True),
            **dict.fromkeys(("apply", "undo"), False),
        }
        assert all(tool.description and tool.input_schema for tool in tools)

    session(steps)


def test_nothing_is_applied_without_the_word_of_its_plan(config: Path) -> None:
    before = config.read_text()

    async def steps(agent: Agent) -> None:
        report = await agent.ask("check_config", config=str(config))
        jsonschema.validate(report, SCHEMA)
        assert "PTH002" in {finding["rule"] for finding in report["findings"]}
        shown = await agent.ask("plan", config=str(config))
        jsonschema.validate(shown["plan"], SCHEMA)
        assert [fix["rule"] for fix in shown["plan"]["fixes"]] == ["PTH002"] and config.read_text() == before
        for word in ("", "yes", shown["word"][::-1]):
            assert "Ask for plan again" in await agent.refused("apply", config=str(config), word=word)
        config.write_text(before + "\n")
        assert "something has changed" in await agent.refused("apply", config=str(config), word=shown["word"])
        assert config.read_text() == before + "\n"
        config.write_text(before)
        shown = await agent.ask("plan", config=str(config))
        done = await agent.ask("apply", config=str(config), word=shown["word"])
        assert config.read_text() == before.replace('"', "'", 2)
        assert "PTH002" not in {finding["rule"] for finding in done["after"]["findings"]}
        assert (await agent.ask("undo", id=done["applied"]))["what"] and config.read_text() == before

    session(steps)


def test_logs_and_rules_are_explained() -> None:
    async def steps(agent: Agent) -> None:
        log = "NotImplementedError: Cannot copy out of meta tensor; no data!"
        told = await agent.ask("explain_log", log=log)
        jsonschema.validate(told, SCHEMA)
        assert told["known"]
        assert (await agent.ask("explain_rule", rule="MDL001"))["rules"]

    session(steps)


def test_mistakes_are_told_and_the_server_lives_on(tmp_path: Path) -> None:
    async def steps(agent: Agent) -> None:
        none = str(tmp_path / "none.yaml")
        assert "there is no such file" in await agent.refused("check_config", config=none)
        assert "NOPE" in await agent.refused("explain_rule", rule="NOPE")
        assert await agent.refused("apply", config=none, word="x")
        assert await agent.refused("undo", id="20200101")
        assert await agent.refused("check_config", config=5)
        assert (await agent.ask("explain_rule", rule="CFG001"))["rules"]

    session(steps)
