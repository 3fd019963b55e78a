// Starts `zdoctor lsp` for files that may be configs of a trainer; all that is shown comes from there.
"use strict";

const { window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const LANGUAGES = ["yaml", "toml", "json", "jsonc", "shellscript"];
let client;

/** The command that starts the server: by the interpreter of the settings, else the program on the PATH. */
function server() {
  const interpreter = workspace.getConfiguration("zdoctor").get("interpreter", "").trim();
  return interpreter ? { command: interpreter, args: ["-m", "zdoctor", "lsp"] } : { command: "zdoctor", args: ["lsp"] };
}

async function start() {
  const chosen = server();
  const documentSelector = LANGUAGES.map((language) => ({ scheme: "file", language }));
  client = new LanguageClient("zdoctor", "zdoctor", chosen, { documentSelector });
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `zdoctor did not start (${[chosen.command, ...chosen.args].join(" ")}): ${error.message}. ` +
        "Type pip install \"zdoctor[lsp]\" with the Python that runs your trainer, and name that Python in the setting zdoctor.interpreter.",
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running?.needsStop()) await running.stop();
}

async function activate(context) {
  context.subscriptions.push(
    workspace.onDidChangeConfiguration(async (change) => {
      if (change.affectsConfiguration("zdoctor.interpreter")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
