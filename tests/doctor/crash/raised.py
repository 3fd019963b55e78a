"""What the installed libraries raise on the way that loading takes, by their source: class and words of each."""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# The modules that loading goes through.
MODULES = {
    "huggingface_hub": """file_download.py _snapshot_download.py _local_folder.py serialization/*.py utils/_http.py
        utils/_validators.py utils/_headers.py utils/_auth.py""",
    "safetensors": "torch.py",
    "torch": "serialization.py _weights_only_unpickler.py nn/modules/module.py",
    "transformers": """modeling_utils.py core_model_loading.py configuration_utils.py tokenization_utils_base.py
        tokenization_utils_tokenizers.py convert_slow_tokenizer.py processing_utils.py dynamic_module_utils.py
        modeling_gguf_pytorch_utils.py quantizers/*.py integrations/accelerate.py integrations/peft.py
        integrations/bitsandbytes.py models/auto/auto_factory.py models/auto/configuration_auto.py
        models/auto/tokenization_auto.py utils/hub.py utils/import_utils.py utils/loading_report.py
        utils/quantization_config.py""",
    "diffusers": """configuration_utils.py loaders/*.py models/auto_model.py models/model_loading_utils.py
        models/modeling_utils.py pipelines/pipeline_utils.py pipelines/pipeline_loading_utils.py quantizers/*.py
        quantizers/*/*_quantizer.py quantizers/*/utils.py utils/dynamic_modules_utils.py utils/hub_utils.py
        utils/import_utils.py utils/peft_utils.py utils/state_dict_utils.py""",
    "accelerate": "big_modeling.py hooks.py utils/bnb.py utils/modeling.py utils/offload.py",
    "peft": """auto.py config.py import_utils.py mapping*.py peft_model.py tuners/tuners_utils.py tuners/lora/*.py
        tuners/lokr/*.py tuners/lycoris_utils.py utils/other.py utils/save_and_load.py""",
    "bitsandbytes": "cextension.py cuda_specs.py backends/utils.py functional.py nn/modules.py optim/optimizer.py",
}
# What trainers call; what these call in turn is found by its name.
CALLED = """from_pretrained from_single_file from_config load load_adapter load_checkpoint_and_dispatch load_file
    load_lora_adapter load_lora_weights load_model load_state_dict get_peft_model hf_hub_download
    inject_adapter_in_model set_peft_model_state_dict snapshot_download"""
ALIASES = {"EnvironmentError": "OSError", "IOError": "OSError"}


class Site(NamedTuple):
    """A raise statement: `words` has {} for each value, None where all of it is computed."""

    file: str
    line: int
    error: str
    words: str | None


def sites(library: str) -> list[Site]:
    """Every exception that is made in a function that loading can come to."""
    spec = importlib.util.find_spec(library)
    assert spec is not None and spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    raised: dict[str, list[Site]] = defaultdict(list)
    calls: dict[str, set[str]] = defaultdict(set)
    for file in sorted({file for pattern in MODULES[library].split() for file in root.glob(pattern)}):
        for function, node in _in_functions(ast.parse(file.read_text(encoding="utf-8")), ""):
            if isinstance(node, ast.Call):
                calls[function].add(_last(node.func))
            elif isinstance(node, ast.Raise) and isinstance(made := node.exc, ast.Call):
                error = _last(made.func)
                words = _words(made.args[0]) if made.args else ""
                raised[function].append(
                    Site(file.relative_to(root).as_posix(), node.lineno, ALIASES.get(error, error), words)
                )
    reached, ahead = set(), ["", "__init__", *CALLED.split()]
    while ahead:
        function = ahead.pop()
        if function not in reached:
            reached.add(function)
            ahead += calls[function]
    return sorted({site for function in reached for site in raised[function] if site.error[:1].isupper()}, key=str)


def _in_functions(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node below, with the name of the function in which it stands; a class is called by its own name."""
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield inner, child
        yield from _in_functions(child, inner)


def _last(name: ast.expr) -> str:
    return ast.unparse(name).rpartition(".")[2]


def _words(node: ast.expr) -> str | None:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        case ast.BinOp(op=ast.Add()):
            sides = (_words(node.left), _words(node.right))
            return None if sides == (None, None) else "".join(side or "{}" for side in sides)
        case ast.BinOp(op=ast.Mod()):
            return _words(node.left)
        case ast.Call(func=ast.Attribute(attr="format", value=template)):
            return _words(template)
        case _:
            return None
