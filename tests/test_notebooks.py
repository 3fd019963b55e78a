"""The notebooks of examples/: one runs as it is, in a kernel of its own; the other has the same code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"


def read(name: str) -> Any:
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def code(notebook: Any) -> list[str]:
    """What its code cells do: their lines but for comments."""
    cells = [cell.source.splitlines() for cell in notebook.cells if cell.cell_type == "code"]
    return ["\n".join(line.partition("  #")[0] for line in lines) for lines in cells]


def shown(cell: Any, kind: str) -> str:
    """What a cell shows of one kind: "text/html", or "text" for all that was printed."""
    outputs = [output.get("text" if kind == "text" else "data", {}) for output in cell.get("outputs", ())]
    return "".join(one if isinstance(one, str) else one.get(kind, "") for one in outputs)


def test_a_notebook_checks_repairs_and_trains(tmp_path: Path) -> None:
    notebook = read("kaggle")
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pages = [page for cell in notebook.cells if (page := shown(cell, "text/html"))]
    assert len(pages) == 2, "a check before the repairs, and one after them"
    assert all(f"{rule} " in pages[0] for rule in ("MDL001", "PTH001", "PTH002", "HUB001", "MEM001"))
    assert "no error found" in pages[1] and "no error found" not in pages[0]
    (told,) = [text for cell in notebook.cells if "step 6/6" in (text := shown(cell, "text"))]
    assert "\r" not in told and "\x1b" not in told, "a cell keeps what a terminal draws over"
    assert Path(told.split()[-1]).is_file() and told.split()[-1].endswith(".safetensors")


def test_it_installs_from_its_checkout_or_from_where_the_reader_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"ZDOCTOR": ""}
    exec(code(read("kaggle"))[1].partition("\nif importlib")[0], names)
    monkeypatch.chdir(EXAMPLES)
    assert names["source"]() == f"{EXAMPLES.parent}[train]"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="ZDOCTOR"):
        names["source"]()
    for said, asked in (
        ("/kaggle/input/z", "/kaggle/input/z[train]"),
        ("git+https://a/z", "zdoctor[train] @ git+https://a/z"),
    ):
        names["ZDOCTOR"] = said
        assert names["source"]() == asked


def test_the_notebooks_differ_in_words_alone_and_are_kept_without_outputs() -> None:
    kaggle, colab = read("kaggle"), read("colab")
    assert code(kaggle) == code(colab)
    cells = [*kaggle.cells, *colab.cells]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
