"""What a failure of a bare shape is most likely about, by what its line of code names: each line of the table."""

from __future__ import annotations

import builtins
from functools import cache

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.likely import table
from zdoctor.doctor.model.crashes import Explanation

from .test_cases import SIGNATURES

LIB = "/v/lib/python3.11/site-packages/"
MINE = "/w/trainer/train.py"


def says(code: str, **names: object) -> str:
    """What Python itself says of a line of code."""
    with pytest.raises(Exception) as raised:
        exec(code, {"__builtins__": builtins, **names})
    return f"{raised.type.__name__}: {raised.value}"


def none(code: str) -> str:
    """What Python says where it is None that `it` stands for in the line of code."""
    return says(code, it=None)


def log(error: str, file: str, function: str, code: str) -> str:
    shown = f'  File "{file}", line 8, in {function}\n    {code}\n' if file else ""
    return f"Traceback (most recent call last):\n{shown}{error}\n" if shown else f"{error}\n"


# (the error, its file, function and line of code, words of the cause)
NO_CODE = ("", "", "")
TENSOR = "TypeError: {}(): argument 'input' (position 1) must be Tensor, not {}"
ROWS = (
    (
        none("it[0]"),
        MINE,
        "save_model_card",
        "x = args.validation_prompts[0]",
        "is over and its model saved",
    ),
    (
        none("it.peft_config"),
        MINE,
        "main",
        "get_peft_model_state_dict(unet).peft_config",
        "Saving asks for a part that this model does not have",
    ),
    (
        none("1 in it"),
        LIB + "diffusers/models/unets/unet_2d_condition.py",
        "get_aug_embed",
        'if "text_embeds" not in added_cond_kwargs:',
        "the model is SDXL",
    ),
    (none("it.sum()"), "/w/train_qwen.py", "go", "n = prompt_embeds_mask.sum(dim=1)", "Since diffusers 0.37"),
    (none("it * 1.0"), MINE, "go", "x = vae.config.shift_factor * 1.0", "The VAE has no vae.config.shift_factor"),
    (none("it.lower()"), MINE, "go", 'x = os.environ.get("HOME_OF_X").lower()', "environment variable"),
    (none("it.lower()"), MINE, "go", 'x = shutil.which("git").lower()', "not in PATH"),
    (none("it.write('')"), MINE, "go", 'sys.stdout.write("")', "sys.stdout is nothing"),
    (none("it.isatty()"), *NO_CODE, "without a console: sys.stdout"),
    (none("it[0]"), MINE, "go", "x = args.resolution[0]", "The setting args.resolution is not given"),
    (
        none("it.load()"),
        "C:\\OneTrainer\\modules\\trainer\\GenericTrainer.py",
        "start",
        "self.model = self.model_loader.load(",
        "OneTrainer has no self.model_loader",
    ),
    (
        none("it.detach()"),
        LIB + "optimum/quanto/nn/qmodule.py",
        "_save_to_state_dict",
        "x = self.weight.detach()",
        "optimum-quanto before 0.2.7",
    ),
    (none("it.is_lorm"), *NO_CODE, "by a weak reference only"),
    (none("it.to(0)"), MINE, "go", "text_encoder_2.to(device)", "no second (third) text encoder"),
    (none("it(1)"), MINE, "go", "x = self.text_encoder(ids)", "There is no text encoder any more"),
    (none("it.decode(1)"), MINE, "go", "x = self.vae.decode(z)", "There is no VAE any more"),
    (none("it(1)"), MINE, "go", "x = self.feature_extractor(images)", "loaded without its self.feature_extractor"),
    (none("it(1)"), MINE, "forward", "pred = transformer(x)", "does not load that part for this task"),
    (none("it[0]"), MINE, "go", "n = past_key_values[0][0].shape[2]", "does not know the cache"),
    (none("it['a']"), MINE, "go", 'x = metadata["a"]', "The file has no metadata"),
    (none("it.norm()"), MINE, "go", "n = p.grad.norm()", "has no gradient"),
    (none("it.group(1)"), MINE, "go", 'n = re.match(r"x", name).group(1)', "regular expression finds nothing"),
    (none("it.shape"), "/w/dataset.py", "load", "h, w = image.shape[:2]", "A picture could not be read: image"),
    (
        none("it.split()"),
        MINE,
        "go",
        "x = trigger.split()",
        "trigger is nothing (None) at go (train.py:8), where",
    ),
    (none("it.strip()"), *NO_CODE, "A text that the program needs is not given"),
    (none("it.items()"), MINE, "go", "x = config_section.items()", "where a section with keys belongs"),
    (none("it.items()"), *NO_CODE, "A section with keys belongs there"),
    (none("it.to('cpu')"), *NO_CODE, "changed prompt of the samples"),
    (none("it._modules"), *NO_CODE, "A model is nothing (None) as the program goes through its layers"),
    (says("{}['HF_X']"), MINE, "go", "x = os.environ['HF_X']", "The environment variable HF_X is not set"),
    (
        says("{}['target']"),
        "/w/OneTrainer/modules/util/config/TrainConfig.py",
        "__migration_3",
        'x = data["target"]',
        "brought up to date, and has no target",
    ),
    (says("{}['a.qweight']"), MINE, "go", "w = sd[name]", "The model is quantized here"),
    (
        says("{}['img_in.weight']"),
        LIB + "diffusers/loaders/single_file_utils.py",
        "infer_diffusers_model_type",
        'if checkpoint["img_in.weight"].shape[1] == 384:',
        "diffusers 0.32.0 and 0.32.1",
    ),
    (says("{}['lora_unet_final_layer.lora_down.weight']"), *NO_CODE, "a layer in it that this one does not train"),
    (says("{}['time_embed.0.weight']"), *NO_CODE, "no checkpoint of Stable Diffusion 1, 2 or SDXL"),
    (says("{}['double_blocks.0.img_attn.proj.weight']"), *NO_CODE, "not the names of FLUX's single file"),
    (says("{}['transformer_blocks.0.norm1.linear.weight']"), *NO_CODE, "not the names of Diffusers' layout"),
    (says("{}['text_model.embeddings.token_embedding.weight']"), *NO_CODE, "not the text encoder or VAE"),
    (says("{}['choices']"), MINE, "go", 'x = response["choices"]', "A server's answer has no choices"),
    (says("{}['text']"), "/w/dataset.py", "go", 'x = sample["text"]', "a picture has no caption"),
    (
        says("{}['prompt_embeds']"),
        "/w/dataset.py",
        "go",
        'x = item["prompt_embeds"]',
        "cached text embeddings",
    ),
    (says("{}['latents']"), "/w/dataset.py", "go", 'x = item["latents"]', "dataset hands over has no latents"),
    (says("{}['control']"), "/w/dataset.py", "go", 'x = item["control"]', "Pictures that this task needs beside"),
    (says("[][1]"), MINE, "go", "x = sys.argv[1]", "a word behind its name on the command line"),
    (says("[][1]"), MINE, "go", "x = self.sigmas[self.step_index + 1]", "asked for more steps than were set"),
    (says("[][1]"), MINE, "go", "x = text_encoders[1]", "more text encoders than this model has"),
    (says("[][1]"), MINE, "go", "x = unet.config.attention_head_dim[3]", "The UNet has fewer stages"),
    (says("[][1]"), MINE, "go", "x = gpu_ids[1]", "Fewer graphics cards are there"),
    (says("[][1]"), MINE, "go", "x = image_files[0]", "image_files is empty at go (train.py:8)"),
    (says("[][1]"), MINE, "go", 'x = name.split("_")[1]', "has not the form that the program takes apart"),
    (says("[].named_modules"), *NO_CODE, "SDXL has two text encoders"),
    ("Error logging validation images: " + says("[].ndim").partition(": ")[2], *NO_CODE, "are lists of frames"),
    (says("True.contiguous"), *NO_CODE, "between the layers of DeepSpeed's pipeline"),
    (says("().flatten"), *NO_CODE, "that is time_ids"),
    (
        says("().chunk"),
        MINE,
        "go",
        "x = checkpoint(block, x).chunk(2)",
        "checkpointing gives back a tuple",
    ),
    (says("().chunk"), MINE, "go", "x = self.encode_prompt(p).chunk(2)", "What an encoder gives back is a tuple"),
    (says("(1).strip"), *NO_CODE, "A setting holds a value of type int"),
    (says("[].get"), *NO_CODE, "A section with keys is expected"),
    (says("''.parameters"), *NO_CODE, "stands where the thing itself is expected"),
    (says("(lambda: 0).shape"), *NO_CODE, "The code asks a function for shape"),
    (
        TENSOR.format("linear", "BaseModelOutputWithPooling"),
        *NO_CODE,
        "An encoder gave an object with several results",
    ),
    (TENSOR.format("layer_norm", "tuple"), *NO_CODE, "two things to a layer"),
    (TENSOR.format("conv2d", "Image"), *NO_CODE, "before it was made a tensor"),
    (TENSOR.format("linear", "NoneType"), *NO_CODE, "gets nothing (None)"),
)


@cache
def seen(row: int) -> Explanation:
    error, file, function, code, _ = ROWS[row]
    return explain(log(error, file, function, code), SIGNATURES)


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_what_is_told(row: int) -> None:
    assert ROWS[row][-1] in seen(row).cause, seen(row).cause


def test_each_line_of_the_table_is_told_of_one() -> None:
    told = {known.source + known.do[:20] for row in range(len(ROWS)) if (known := seen(row).known) is not None}
    assert not [one.cause for one in table() if "{" not in one.do[:20] and one.source + one.do[:20] not in told]
    assert all(one.source.startswith("https://") and one.cause.endswith(".") for one in table())


def test_torch_s_own_words_for_what_is_no_tensor_are_read() -> None:
    torch = pytest.importorskip("torch")
    for value, words in (((torch.ones(2),), "two things to a layer"), (None, "gets nothing (None)")):
        with pytest.raises(TypeError) as raised:
            torch.nn.functional.layer_norm(value, (2,))
        assert words in explain(log(f"TypeError: {raised.value}", "", "", ""), SIGNATURES).cause


@pytest.mark.parametrize(
    ("error", "file", "code"),
    [
        (none("it.odd"), MINE, "x = args.odd.odd + config.odd.odd"),
        (none("it.odd"), MINE, "x = thing.odd"),
        (says("{}['odd']"), MINE, "x = thing['odd']"),
        (says("[][1]"), MINE, "x = thing[1]"),
        (says("().odd"), MINE, "x = thing.odd"),
    ],
)
def test_what_names_nothing_that_is_known_stays_open(error: str, file: str, code: str) -> None:
    told = explain(log(error, file, "go", code), SIGNATURES)
    assert not told.certain and told.known is not None and told.known.do not in {one.do for one in table()}
