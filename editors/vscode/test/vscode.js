// As much of VS Code as the extension and its language client ask for: open files, settings, marks and messages.
"use strict";

const { pathToFileURL } = require("node:url");

class Uri {
  constructor(text) {
    Object.assign(this, { text, scheme: "file", fsPath: new URL(text).pathname });
  }
  static parse = (text) => new Uri(text);
  static file = (path) => new Uri(pathToFileURL(path).href);
  toString() {
    return this.text;
  }
}

const nothing = { dispose() {} };
const event = () => nothing;
/** Whatever else is asked for: a class that can be called, extended and asked for its members. */
const anything = () =>
  new Proxy(class {}, {
    get: (target, name) => (name in target || typeof name === "symbol" ? target[name] : (target[name] = anything())),
    apply: () => nothing,
  });

const words = ["append", "appendLine", "error", "warn", "info", "debug", "trace", "show", "dispose"];
const channel = { ...Object.fromEntries(words.map((word) => [word, () => {}])), onDidChangeLogLevel: event };

/** A `vscode` with these settings and these files open. `told` collects the messages, `marked(uri)` waits for marks. */
function pretend(settings, documents) {
  const told = [];
  const marks = new Map();
  const waiting = [];
  const known = {
    Uri,
    EventEmitter: class {
      listeners = [];
      event = (listener) => (this.listeners.push(listener), nothing);
      fire = (value) => this.listeners.forEach((listener) => listener(value));
      dispose() {}
    },
    CancellationTokenSource: class {
      token = { isCancellationRequested: false, onCancellationRequested: event };
      cancel() {}
      dispose() {}
    },
    window: {
      showErrorMessage: async (text) => void told.push(text),
      createOutputChannel: () => channel,
      tabGroups: { all: [], onDidChangeTabs: event },
      visibleTextEditors: [],
    },
    workspace: {
      textDocuments: documents,
      getConfiguration: () => ({ get: (name, otherwise) => settings[name] ?? otherwise }),
    },
    languages: {
      match: () => 1,
      createDiagnosticCollection: () => ({
        set(uri, found) {
          marks.set(String(uri), found);
          waiting.splice(0).forEach((wake) => wake());
        },
        delete() {},
        clear() {},
        dispose() {},
      }),
    },
    version: "1.100.0",
  };
  const member = (part) =>
    new Proxy(part, {
      get: (target, name) => (name in target ? target[name] : /^on/.test(String(name)) ? event : anything()),
    });
  const module = member({ ...known, window: member(known.window), workspace: member(known.workspace), languages: member(known.languages) });
  const marked = async (uri) => {
    while (!marks.get(uri)?.length) await new Promise((wake) => waiting.push(wake));
    return marks.get(uri);
  };
  return { module, told, marked };
}

module.exports = { Uri, pretend };
