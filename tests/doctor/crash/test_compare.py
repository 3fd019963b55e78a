"""Two logs side by side: what is said of them is what is not the same, and nothing else."""

from __future__ import annotations

import textwrap

from hypothesis import given, settings
from hypothesis import strategies as st

from zdoctor.doctor.crash.compare import compare
from zdoctor.reports.crash import comparison_lines
from zdoctor.reports.painting import Screen, paint

WORKED = textwrap.dedent(
    """\
    2026-11-20 10:00:00,123 INFO Python 3.11.9 torch 2.5.1+cu124
    Running 1 job
    loading shards: 100%|#####| 3/3 [00:10<00:00, 3.1s/it]
    Loaded 24 images from /data/cats
    Quantizing transformer
    Caching latents took 3.2 s
    run:  10%|#  | 100/1000 [01:00<09:00, 1.6it/s, lr: 1.0e-04 loss: 3.2e-01]
    Saved checkpoint to out/run.safetensors
    """
)
FAILED = textwrap.dedent(
    """\
    2026-11-21 12:00:00,456 INFO Python 3.11.9 torch 2.13.0+cu130
    Running 1 job
    loading shards: 100%|#####| 3/3 [00:14<00:00, 4.1s/it]
    UserWarning: None of the inputs have requires_grad=True. Gradients will be None
    Loaded 23 images from /data/cats
    Using a new cache
    Quantizing transformer
    Caching latents took 9.9 s
    run:  10%|#  | 100/1000 [01:00<09:00, 1.6it/s, lr: 1.0e-04 loss: nan]
    Traceback (most recent call last):
      File "run.py", line 3, in <module>
        main()
    ValueError: no
    """
)


def test_what_is_not_the_same() -> None:
    seen = compare(WORKED, FAILED)
    assert [(change.good[-20:], change.at) for change in seen.changed] == [
        (".9 torch 2.5.1+cu124", 1),
        ("ages from /data/cats", 5),
    ]
    assert [at for at, _ in seen.warnings] == [4]
    assert seen.others == ((6, "Using a new cache"),)
    assert (seen.parted, seen.common) == (8, "Caching latents took 9.9 s")
    assert seen.then == ("Saved checkpoint to out/run.safetensors",)
    assert (seen.bad_loss, seen.good_losses, seen.bad_losses) == (9, 1, 1)


def test_in_words() -> None:
    text = paint(comparison_lines(compare(WORKED, FAILED)))
    assert "Line 9 of the failed run is the first loss that is no finite number." in text
    assert "Loaded 24 images" in text and "Loaded 23 images" in text
    assert "Traceback" not in text and "took" not in text.split("last line")[0]


def test_logs_that_have_nothing_in_common() -> None:
    assert "no line in common" in paint(comparison_lines(compare("one program\n", "another thing\n")))
    assert "no line in common" in paint(comparison_lines(compare("", "")))


@settings(deadline=None)  # the tables of known failures are read at the first
@given(st.lists(st.sampled_from([*WORKED.splitlines(), *FAILED.splitlines()]), max_size=30).map("\n".join))
def test_a_log_is_the_same_as_itself(log: str) -> None:
    seen = compare(log, log)
    assert (seen.changed, seen.warnings, seen.others) == ((), (), ())
    paint(comparison_lines(seen))


@settings(deadline=None)  # the tables of known failures are read at the first
@given(st.text(max_size=300), st.text(max_size=300))
def test_any_two_texts_are_compared(one: str, other: str) -> None:
    paint(comparison_lines(compare(one, other)), Screen(width=60))
