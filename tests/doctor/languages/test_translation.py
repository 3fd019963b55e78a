"""A finished English text leads back to its template, whatever was filled in, and unknown text stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor.doctor.languages.translation import Translation
from zdoctor.doctor.model.said import AsIs, filled, joined, listed

CATALOGUE = r"""
msgid ""
msgstr ""
"Language: zh_CN\n"

msgid "{path} does not exist; it should be {what}."
msgstr "{path} 不存在；它应当是{what}。"

msgid "the base model"
msgstr "底模"

msgid "the dataset"
msgstr "数据集"

msgid "It holds {count}: {names}."
msgstr "其中有 {count} 个：{names}。"

msgid "It holds {count:.1f}: {names}."
msgstr "其中有 {count:.1f} 个：{names}。"

msgid "{key} is {value!r}, which is no number."
msgstr "{key} 是 {value!r}，不是数字。"

msgid "{count} rules passed"
msgstr "{count} 条规则通过"

msgid "{count} not known"
msgstr "{count} 条未知"

#, fuzzy, python-brace-format
msgid "reworded since {when}"
msgstr "旧的译文 {when}"

msgid "{count} modules in {kinds}"
msgstr "{count} 个模块（{kinds}）"

msgid "applied by {names}"
msgstr "{names} 会使用它"

msgid "left open"
msgstr ""

msgid "a \"quoted\" text\nof two lines"
msgstr "“引用”"
"续行"
"""

VALUES = {"key": "lr", "value": "much", "count": 2, "names": "a, b"}
TEXTS = [
    ("/a b/c does not exist; it should be the base model.", "/a b/c 不存在；它应当是底模。"),
    ("x does not exist; it should be the base model and the dataset.", "x 不存在；它应当是底模、数据集。"),
    ("x does not exist; it should be whatever. It holds 2: a, b.", "x 不存在；它应当是whatever。其中有 2 个：a, b。"),
    ("lr is 'much', which is no number.", "lr 是 'much'，不是数字。"),
    ("5 rules passed, 2 not known · 12 ms", "5 条规则通过，2 条未知 · 12 ms"),
    (
        "LoRA for Flux; rank 2; 8 modules in BF16; applied by a, b",
        "LoRA for Flux；rank 2；8 个模块（BF16）；a, b 会使用它",
    ),
    ('a "quoted" text\nof two lines', "“引用”续行"),
    ("  the base model  ", "  底模  "),
    *((text, text) for text in ("reworded since May", "left open", "5 rules, passed", "", "{", "{x} {", "a" * 9000)),
]


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Translation:
    file = tmp_path_factory.mktemp("zh_CN") / "screen.po"
    file.write_text(CATALOGUE, encoding="utf-8")
    return Translation("zh_CN", [file, file.with_name("missing.po")])


@pytest.mark.parametrize(("english", "chinese"), TEXTS)
def test_a_finished_text_is_translated_by_its_template(translation: Translation, english: str, chinese: str) -> None:
    assert translation(english) == chinese


def test_a_text_that_knows_its_template_needs_no_search(translation: Translation) -> None:
    template = "{path} does not exist; it should be {what}. It holds {count}: {names}."
    said = filled(template, {"path": "does not exist; it", "what": "the base model", "count": 2, "names": "a, b"})
    assert translation(said) == "does not exist; it 不存在；它应当是底模。其中有 2 个：a, b。"


def test_a_template_formats_its_arguments_as_in_english(translation: Translation) -> None:
    said = filled("{key} is {value!r}, which is no number. It holds {count:.1f}: {names}.", VALUES)
    assert translation(said) == "lr 是 'much'，不是数字。其中有 2.0 个：a, b。"


PUT_TOGETHER = [
    (joined("; ", ("the dataset", "", joined(", ", ("the base model", "x")))), "数据集；底模，x"),
    (listed(("the dataset", "the base model", "x")), "数据集、底模和 x"),
    (listed(("a", "b")), "a 和 b"),
    (listed(["the dataset"]), "数据集"),
    (filled("It holds {count}: {names}.", {"count": 2, "names": listed(("y", "z"))}), "其中有 2 个：y 和 z。"),
    (filled("{problem}", {"problem": "It holds 2: a, b. It holds 3: c."}), "其中有 2 个：a, b。其中有 3 个：c。"),
    (
        filled("It holds {count}: {names}.\n  {line} | x\nthe dataset", {"count": 2, "names": "a", "line": 3}),
        "其中有 2 个：a。\n  3 | x\n数据集",
    ),
    (filled("It holds {count}: {names}.", {"count": 1, "names": "the base model"}), "其中有 1 个：底模。"),
    (AsIs("the dataset"), "the dataset"),
    (joined(": ", ("the dataset", AsIs("the base model"))), "数据集：the base model"),
]


@pytest.mark.parametrize(("english", "chinese"), PUT_TOGETHER)
def test_what_was_put_together_is_translated_part_by_part(
    translation: Translation, english: str, chinese: str
) -> None:
    assert translation(english) == chinese


def test_a_catalogue_is_read_with_the_line_ends_of_windows_and_up_to_where_it_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "screen.po"
    written = CATALOGUE.partition("续行")[0].encode()
    for data in (written, written.replace(b"\n", b"\r\n")):
        file.write_bytes(data)
        translation = Translation("zh_CN", [file])
        assert translation("the dataset") == "数据集"
        assert translation('a "quoted" text\nof two lines') == 'a "quoted" text\nof two lines'
        assert translation("reworded since May") == "reworded since May"


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\x00", b'msgid "', b'\nmsgid "a b"\nmsgstr "\xff {x}"\n'])
def test_a_damaged_catalogue_translates_what_it_can(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "screen.po"
    file.write_bytes(damage)
    translation = Translation("vi", [file])
    assert translation("nothing of it") == "nothing of it"
    assert translation("a b")
