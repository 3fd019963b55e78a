"""What sd-scripts asserts of the sizes of buckets: their steps, and that they hold the resolution."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Config, Finding, Run, Severity
from ...doctor.trainers.kohya.read import settings_of_datasets
from . import DATA, anywhere, number, refused

# verify_bucket_reso_steps of each script
_BUCKETS = {
    **dict.fromkeys(("fine_tune", "train_db", "train_network", "train_textual_inversion"), 64),
    **dict.fromkeys(("sdxl_train", "sdxl_train_network", "sdxl_train_textual_inversion"), 32),
    **dict.fromkeys(("flux_train_network", "hunyuan_image_train_network", "sd3_train_network"), 32),
    **dict.fromkeys(("anima_train", "anima_train_network", "flux_train", "lumina_train", "lumina_train_network"), 16),
    "sd3_train": 8,
}
# library/config_util.py
_DEFAULTS = {"min_bucket_reso": 256, "max_bucket_reso": 1024}


def bucket_sizes(config: Config, run: Run) -> Iterator[Finding]:
    key, least = anywhere(run, "bucket_reso_steps"), _BUCKETS.get(run.process_type)
    # nobody looks at the steps where masks lie beside the pictures
    looked_at = anywhere(run, "enable_bucket") and not anywhere(run, "conditioning_data_dir")
    if key is not None and least and looked_at and number(run, key) % least:
        why = "bucket_reso_steps is {steps}; for this script it must be a multiple of {least}."
        # Stable Diffusion's own scripts have asked for 64 since 2024 only
        severity: Severity | None = "warning" if least == 64 else None
        yield refused(run, key, why, DATA, severity=severity, steps=run.setting(key), least=least)
    seen: set[str] = set()  # subsets share what stands in their dataset
    for own in settings_of_datasets(run):
        sides, steps = _sides(own.raw("resolution")), int(own.number("bucket_reso_steps", default=64))
        if not (own.flag("enable_bucket") and sides and steps > 0):
            continue
        for name, default in _DEFAULTS.items():
            written = own.has(name)
            key, limit = own.key(name if written else "resolution"), int(own.number(name, default=default))
            # beside a file of options alone a command line may give what is left out
            if (written or config.format != "toml") and key not in seen and not _holds(name, limit, steps, sides):
                seen.add(key)
                why = (
                    "{name} is {limit}"
                    + ("" if written else ", its default")
                    + ", and the resolution {resolution} is "
                    + ("smaller." if name.startswith("min") else "larger.")
                )
                yield refused(run, key, why, DATA, name=name, limit=limit, resolution="x".join(map(str, sides)))


def _holds(name: str, limit: int, steps: int, sides: tuple[int, ...]) -> bool:
    """Whether a picture of these sides is no smaller, or larger, than that bucket, which is rounded to steps."""
    if name.startswith("min"):
        return min(sides) >= limit - limit % steps
    return max(sides) <= limit + -limit % steps


def _sides(resolution: object) -> tuple[int, ...]:
    """Width and height as the trainer reads them; () for what it does not take."""
    listed = resolution.split(",") if isinstance(resolution, str) else resolution
    given = listed if isinstance(listed, list) else [listed]
    sides = tuple(int(str(one)) for one in given if str(one).strip().isdecimal())
    return sides if len(sides) == len(given) else ()
