// The bundle as it is packaged, in a pretended VS Code, with a real `zdoctor lsp`. ZDOCTOR_PYTHON has zdoctor[lsp].
"use strict";

const assert = require("node:assert");
const { mkdtempSync, rmSync } = require("node:fs");
const Module = require("node:module");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");

const { Uri, pretend } = require("./vscode.js");

const BUNDLE = require.resolve("../out/extension.js");
const TEXT = "job: extension\nconfig:\n  name: a\n  process:\n    - type: diffusion_trainer\n      train:\n        optimzer: adamw\n";

/** The extension, loaded anew beside this `vscode`. */
function loaded(vscode) {
  const load = Module._load;
  Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
  try {
    delete require.cache[BUNDLE];
    return require(BUNDLE);
  } finally {
    Module._load = load;
  }
}

test("a misspelt key of an open config is marked", { timeout: 60_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "zdoctor-vscode-"));
  const uri = Uri.file(join(folder, "config.yaml"));
  const open = { uri, languageId: "yaml", version: 1, getText: () => TEXT };
  const { module, told, marked } = pretend({ interpreter: process.env.ZDOCTOR_PYTHON ?? "python3" }, [open]);
  const extension = loaded(module);
  try {
    await extension.activate({ subscriptions: [] });
    assert.deepStrictEqual(told, []);
    const found = await marked(String(uri));
    assert.ok(found.some((mark) => mark.code?.value === "CFG002" || mark.code === "CFG002"));
  } finally {
    await extension.deactivate();
    rmSync(folder, { recursive: true });
  }
});

test("where zdoctor does not start, it is said what to type", { timeout: 60_000 }, async () => {
  const { module, told } = pretend({ interpreter: "/nowhere/python" }, []);
  const extension = loaded(module);
  await extension.activate({ subscriptions: [] });
  await extension.deactivate();
  assert.match(told.join("\n"), /nowhere.*pip install "zdoctor\[lsp\]"/s);
});
