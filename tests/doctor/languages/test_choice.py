"""Which language is meant, by the command line and by the environment."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.languages import ENGLISH, asked, chosen, speak

MEANT = [
    ({}, "en"),
    ({"LANG": "C.UTF-8"}, "en"),
    ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
    ({"LANG": "zh_SG"}, "zh_CN"),
    ({"LANG": "zh_HK.UTF-8"}, "zh_TW"),
    ({"LANG": "vi_VN.UTF-8"}, "vi"),
    ({"LANG": "de_DE.UTF-8"}, "en"),
    ({"LANG": "vi_VN", "LC_ALL": "C"}, "en"),
    ({"LANG": "en_US", "LC_MESSAGES": "zh_TW"}, "zh_TW"),
    ({"LANG": "de_DE", "LANGUAGE": "fr:zh_Hant:en"}, "zh_TW"),
    ({"LANG": "en_US", "LANGUAGE": "en:vi"}, "en"),
    ({"LANG": "C", "LANGUAGE": "vi"}, "en"),
    ({"LANG": "vi_VN", "ZDOCTOR_LANG": "en"}, "en"),
    ({"ZDOCTOR_LANG": "zh-Hans"}, "zh_CN"),
    ({"ZDOCTOR_LANG": "xx"}, "en"),
]


@pytest.mark.parametrize(("environ", "language"), MEANT)
def test_the_environment_says_which_language(environ: dict[str, str], language: str) -> None:
    assert chosen(environ) == language


def test_the_option_stands_anywhere_before_the_words_of_another_command() -> None:
    assert asked(["--lang", "vi", "check", "a.yaml"], {}) == ("vi", ["check", "a.yaml"])
    assert asked(["check", "--lang=zh_TW", "a.yaml"], {"LANG": "vi"}) == ("zh_TW", ["check", "a.yaml"])
    words = ["run", "--", "train.py", "--lang", "vi"]
    assert asked(words, {}) == ("en", words)
    assert asked(["check", "--lang"], {}) == ("en", ["check", "--lang"])  # argparse says what is missing
    with pytest.raises(UserError, match="no language that zdoctor speaks"):
        asked(["check", "--lang", "klingon"], {})


def test_a_terminal_that_cannot_show_it_gets_english() -> None:
    latin = TextIOWrapper(BytesIO(), encoding="latin-1")
    assert asked(["check"], {"LANG": "zh_CN"}, latin)[0] == "en"
    assert asked(["check"], {"LANG": "zh_CN"}, TextIOWrapper(BytesIO(), encoding="utf-8"))[0] == "zh_CN"


def test_a_page_tells_what_a_rule_is_about_in_its_language(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[3] / "examples"
    words = ["check", str(root / "kaggle_zimage.yaml"), "--machine", str(root / "kaggle_t4x2.json")]
    try:
        main(["--lang", "zh_TW", *words, "--format", "html"])
    finally:
        speak(ENGLISH)
    told = capsys.readouterr().out
    assert "本地的模型資料夾缺少載入器會要的部件" in told and "A local model folder that lacks" not in told
