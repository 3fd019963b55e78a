"""Repairs for training sense: each silences its rule and none is applied unasked."""

import pytest

from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.model import SetValue
from zdoctor.tests.checks.config_cases import KAGGLE, examined


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (KAGGLE, "TRN001"),
        (KAGGLE.replace('dtype: "bf16"\n        diff', 'dtype: "fp16"\n        diff'), "TRN003"),
        (KAGGLE.replace("guidance_scale: 1\n", "guidance_scale: 4\n"), "TRN005"),
        (KAGGLE.replace("        guidance_scale: 1\n", ""), "TRN005"),
        (
            KAGGLE.replace("unload_text_encoder: false", "unload_text_encoder: true").replace(
                "cache_text_embeddings: true", "cache_text_embeddings: false"
            ),
            "TRN006",
        ),
    ],
)
def test_the_cure_cures(text: str, rule: str) -> None:
    (finding,) = examined(text, rule)
    (fix,) = finding.fixes
    assert fix.safety == "ask" or fix.training_effect == "changes-result"
    done = apply_edits(text, [step for step in fix.steps if isinstance(step, SetValue)])
    assert not examined(done, rule)
    assert not [f for f in examined(done, "CFG", "TRN") if f.severity == "error"]
