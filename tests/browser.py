"""Pages as a real browser shows them: Chromium of the system, without a window. Where there is none, tests skip."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pytest
from playwright.sync_api import Browser, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# WCAG 2.1, 1.4.3: the contrast that text of any size needs.
CONTRAST = 4.5
# Each width and each scheme; one with the other where `-m thorough` asks for it.
WINDOWS = pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "dark"),
        (1000, "light"),
        *(pytest.param(*seldom, marks=pytest.mark.thorough) for seldom in ((360, "light"), (1000, "dark"))),
    ],
)

# Of each text its contrast with the ground behind it, by WCAG's formula, and its size.
_TEXTS = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => channels(colour).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || !element.checkVisibility() || element.tagName === "TITLE") continue;
    const style = getComputedStyle(element);
    const one = light(element instanceof SVGElement ? style.fill : style.color), other = light(ground(element));
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push([contrast, parseFloat(style.fontSize) * scale(element), text.data.trim().slice(0, 60)]);
  }
  function scale(element) {
    const drawing = element.closest("svg");
    return drawing ? drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : 1;
  }
  return found;
}"""


# How many elements hide a part of what they hold.
_CUT = """() => [...document.body.querySelectorAll("*")].filter((element) =>
  getComputedStyle(element).overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1).length"""


@dataclass(frozen=True)
class Text:
    """A text that is shown: its contrast with the ground, and the size of its letters in pixels of the screen."""

    contrast: float
    pixels: float
    words: str


@dataclass(frozen=True)
class Shown:
    """What a browser made of a page. `asked` are the addresses it went to beyond the page itself, `said` the lines of
    its console, `overflow` the pixels by which the page is wider than the window, `cut` the elements that do not
    show all that they hold, `ground` the colour of the page.
    """

    title: str
    texts: tuple[Text, ...]
    overflow: int
    cut: int
    ground: str
    images: int
    broken: int
    asked: tuple[str, ...]
    said: tuple[str, ...]


class Show(Protocol):
    def __call__(
        self, file: Path, width: int, scheme: Literal["light", "dark"], media: Literal["screen", "print"] = "screen"
    ) -> Shown:
        """Shows a file in a window of a width with everything unfolded; as it is printed, with nothing unfolded."""
        ...


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, started. Skips the test where there is none."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as play, play.chromium.launch(executable_path=program, args=["--no-sandbox"]) as started:
        yield started


@contextmanager
def browser() -> Iterator[Show]:
    """A browser that shows files. Skips the test where no Chromium is."""
    with chromium() as started:

        def show(
            file: Path, width: int, scheme: Literal["light", "dark"], media: Literal["screen", "print"] = "screen"
        ) -> Shown:
            page = started.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page.emulate_media(media=media, color_scheme=scheme)
            asked: list[str] = []
            said: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda line: said.append(line.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(file.as_uri())
            if media == "screen":
                page.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")
            shown = Shown(
                title=page.title(),
                texts=tuple(Text(*found) for found in page.evaluate(_TEXTS)),
                overflow=page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"),
                cut=page.evaluate(_CUT),
                ground=page.evaluate("getComputedStyle(document.body).backgroundColor"),
                images=page.locator("img").count(),
                broken=page.evaluate("[...document.images].filter((image) => !image.naturalWidth).length"),
                asked=tuple(url for url in asked if url != file.as_uri() and not url.startswith("data:")),
                said=tuple(said),
            )
            page.close()
            return shown

        yield show
