"""Every message that a library's source raises on the way of loading is explained, or named here as out of reach."""

from __future__ import annotations

import importlib.util
import re

import pytest

from zdoctor.doctor.crash import explain

from .raised import MODULES, Site, sites
from .test_cases import SIGNATURES

# Why no log of a training shows it, and of which sites ("file Error: words") that is so.
OUT_OF_REACH = {
    "an argument of the call, which the code of a trainer gives and no file or setting of its user": r"""
        \b(?:[Cc]annot|can not|only one of|[Bb]oth|exactly one)\b.*(?:specified|provided|passed|argument|pass)
        [Yy]ou (?:have passed|have to provide|can't|need to|should (?:either|not|supply)|must provide|explicitly)
        is designed to be instantiated|positional arg|keyword arg|multiple values for arg|two arguments
        argument \{\}, but
        must be (?:a|an|one of|provided|both|convertible)\b(?!.*token to)
        should (?:be|only be) (?:a|an|of type|one)\b|needs to be of type
        Expected `|Expected \{\}|Expected '[rw]|Expected target|Found `quant_method|needs? the file named
        must be torch
        `dtype`|dtype=|target_dtype|Invalid (?:dtype|repo type|argument|padding|package version|key|load)
        Unknown endianness
        ^serialization\.py .*(?:map_location|mmap|pickle_module|TORCH_(?:FORCE|SERIALIZATION))|[Dd]ry run
        hotswap|Hotswapp
        base_weight_param_name|load_into_transformer_ref|`offload_dir`|Need either a|fuse_qkv|timm
        `adapters` must
        sim_thresh|invalid truth value|batch length|pad_to_multiple_of|overflowing|create tensor|unknown: \{\}
        sides? should
        \{\} does not exist\. Please make sure to choose|already used by a Transformers|not a valid auto class
        `.*` must (?:be|take)|`network_alphas`|`quantization_config` must|quantization backend|`tokenizer_class`
        """,
    "a slip in the code of a library, or of a class that was written for it": r"""
        AbnormalFloats|blocksize|get_instance\(\)|should not happen|should never be called|Undefined Operation
        not auto.handled|please override
        raise an issue|file an issue
        defined a class name|is not defined\. Note|class attribute is set|could not be instantiated
        is not implemented\.$
        ^nn/modules/module\.py|^core_model_loading\.py|Multiple classes that inherit|definition of `tie_weights
        _tied_weights_keys
        You cannot use ``|Input weight should be|only loads `Linear4bit|Current Key|kernel must have
        Only same (?:dim|embed)
        out_proj must|dimensional Parameter|only supports int8 weights|cannot be applied to modules
        BACKENDS_MAPPING
        has no attribute|conflicts with the method|not (?:correctly|properly) initialized|no implementation of
        quantize your model
        saved_id must|expected key '0'|typename for persistent_load|Expected tuple|Expected second item
        negative argument
        restored ModelOpt|Int8Params|Wrong `|not available yet|Could not load module|sub_?config
        configuration_utils\.py \w+: (?:This function|`problem_type)|previous destination|find names to remove
        """,
    "several cards or programs that share one model, or a request of a single range: none of the trainers": r"""
        [Pp]arallel|torch\.distributed|meta device context|gpu_id|^utils/_http\.py|OIDC|sharding plan
        """,
    "language models, their adapters and quantizers, which no trainer here loads": r"""
        prompt learning|XLora|PeftConfig|AutoPeftModel|auto class from|import allowlist|different peft types
        inject_adapter
        experts implementation|KernelConfig|[Mm]odality|audio|decode text|This processor requires
        control_tokens|tokens_map
        pure text model|HIGGS|SpQR|sinq|HQQ|activations with transformers|FqnToConfig|aqlm|special_tokens
        [Ss]pecial token
        text_pair|list or tuple|does require the model to be pre-quantized
        """,
}
INSTALLED = [library for library in MODULES if importlib.util.find_spec(library)]
COMPUTED = (None, "", "{}", "{}.", "Not supported")  # what a file can bring out of these is raised in test_loading


@pytest.mark.parametrize("library", INSTALLED)
def test_what_loading_raises_by_a_library_s_source_is_explained(library: str) -> None:
    found = sites(library)
    told = {site for site in found if _explained(library, site)}
    out = {site: _reason(site) for site in found if site not in told}
    assert [site for site, reason in out.items() if not reason] == []
    print(f"{library}: {len(found)} places, {len(told)} explained, {len(out)} out of reach")


def test_each_reason_is_needed() -> None:
    """A reason's line that no place of any library has would hide what comes later."""
    found = [site for library in INSTALLED for site in sites(library)]
    for reason in OUT_OF_REACH:
        for line in _lines(reason):
            assert any(re.search(line, _text(site)) for site in found), line


def _explained(library: str, site: Site) -> bool:
    seen = explain(
        f"""Traceback (most recent call last):
  File "/x/train.py", line 3, in main
    load()
  File "/venv/lib/python3.11/site-packages/{library}/{site.file}", line {site.line}, in load
    raise {site.error}(
{site.error}: {(site.words or "").replace("{}", "CUDA")}
""",
        SIGNATURES,
    )
    return seen.known is not None or bool(seen.rules)


def _reason(site: Site) -> str:
    if site.words in COMPUTED:
        return "its words are computed"
    return next(
        (reason for reason in OUT_OF_REACH if any(re.search(line, _text(site)) for line in _lines(reason))), ""
    )


def _lines(reason: str) -> list[str]:
    return [line.strip() for line in OUT_OF_REACH[reason].splitlines() if line.strip()]


def _text(site: Site) -> str:
    return f"{site.file} {site.error}: {' '.join((site.words or '').split())}"
