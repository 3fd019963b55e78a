"""Logs of runs that worked, in the words of trainers and libraries, with all that sounds like a failure in them."""

from __future__ import annotations

from .shapes import OOM, traceback

_SITE = "/usr/local/lib/python3.11/dist-packages"


def _bars(name: str, form: str) -> str:
    return "".join(
        f"\r{name}:  {n}%|##        | {n}/100 [00:{n:02}<01:00,  1.20s/it, {form.format(n)}]" for n in range(1, 60)
    )


def ai_toolkit(before: str, during: str = "", after: str = "") -> str:
    """run.py of ai-toolkit; `before` the training, amid it, and before its end."""
    bars = _bars("cat", "lr: 1.0e-04 loss: 3.{0:03}e-01")
    return (
        "Running 1 job\n#############################################\n# Running job: cat\n"
        f"#############################################\n{before}Loading Z-Image "
        f"model\n{bars}\n{during}{bars}\n{after}"
        "Saved checkpoint to output/cat/cat.safetensors\n\n========================================\nResult:\n"
        " - 1 completed job\n========================================\n"
    )


def sd_scripts(before: str, during: str = "", after: str = "") -> str:
    bars = _bars("steps", "avr_loss=0.1{0:03}")
    return (
        "2026-11-21 10:00:00 INFO     Loading settings from config.toml           train_util.py:4745\n"
        f"{before}                    INFO     prepare tokenizer                           train_util.py:5017\n"
        f"{bars}\n{during}{bars}\n{after}saving checkpoint: out/cat.safetensors\n"
        "2026-11-21 11:00:00 INFO     model saved.                           train_network.py:1423\n"
    )


def musubi(before: str, during: str = "", after: str = "") -> str:
    bars = _bars("steps", "avr_loss=0.1{0:03}")
    return (
        f"INFO:musubi_tuner.dataset.config_utils:Load dataset config\n{before}{bars}\n{during}{bars}\n{after}"
        "INFO:musubi_tuner.hv_train_network:model saved.\n"
    )


def simpletuner(before: str, during: str = "", after: str = "") -> str:
    bars = _bars("Epoch 1/16, Steps", "lr=0.0001, step_loss=0.0{0:03}")
    return (
        f"2026-11-21 10:00:00,123 [INFO] Loading Qwen3 4B text encoder\n{before}{bars}\n{during}{bars}\n{after}"
        "2026-11-21 11:00:00,123 [INFO] Wrote pipeline to disk: output/models/pipeline\n"
    )


def diffusers(before: str, during: str = "", after: str = "") -> str:
    bars = _bars("Steps", "loss=0.{0:03}, lr=0.0001")
    return (
        "11/21/2026 10:00:00 - INFO - __main__ - ***** Running training *****\n"
        f"{before}{bars}\n{during}{bars}\n{after}Model weights saved in out/pytorch_lora_weights.safetensors\n"
    )


def _warned(file: str, line: int, kind: str, text: str, code: str = "warnings.warn(") -> str:
    return f"{_SITE}/{file}:{line}: {kind}: {text}\n  {code}\n"


_TRITON = "A matching Triton is not available, some optimizations will not be enabled\n" + traceback(
    "ModuleNotFoundError: No module named 'triton'", (f"{_SITE}/xformers/__init__.py", "_is", "import triton")
)
_PICTURE = traceback("OSError: image file is truncated (3 bytes not processed)", ("/t/loader.py", "init", "open(f)"))
_SAMPLE = traceback(OOM, ("/opt/trainer/sample.py", "sample", "image = pipeline(prompt)"))
_LATE = traceback("TypeError: 'NoneType' object is not callable", (f"{_SITE}/wandb/x.py", "__del__", "self.stop()"))
_LOGGING = traceback(
    "UnicodeEncodeError: 'charmap' codec can't encode character",
    ("/usr/lib/python3.11/logging/__init__.py", "emit", "w(m)"),
)

WORKED = {
    # what torch and its companions warn of
    "a scheduler before its optimizer": diffusers(
        _warned(
            "torch/optim/lr_scheduler.py",
            192,
            "UserWarning",
            "Detected call of `lr_scheduler.step()` before "
            "`optimizer.step()`. Failure to do this will result in PyTorch skipping the first value",
        )
    ),
    "checkpoint without use_reentrant": ai_toolkit(
        _warned(
            "torch/_dynamo/eval_frame.py",
            1446,
            "UserWarning",
            "torch.utils.checkpoint: the use_reentrant "
            "parameter should be passed explicitly. Starting in PyTorch 2.9, calling checkpoint without "
            "use_reentrant will raise an exception.",
            "return fn(*args, **kwargs)",
        )
    ),
    "no gradients": sd_scripts(
        _warned(
            "torch/utils/checkpoint.py",
            238,
            "UserWarning",
            "None of the inputs have requires_grad=True. Gradients will be None",
            "check_backward_validity(args)",
        )
    ),
    "autocast is disabled": diffusers(
        _warned(
            "torch/amp/autocast_mode.py",
            270,
            "UserWarning",
            "CUDA is not available or torch_xla is imported. Disabling autocast.",
        )
    ),
    "shapes that broadcast": diffusers(
        _warned(
            "torch/nn/functional.py",
            3560,
            "UserWarning",
            "Using a target size (torch.Size([2])) that is different "
            "to the input size. This will likely lead to incorrect results due to broadcasting.",
        )
    ),
    "deprecated": musubi(
        _warned(
            "torch/cuda/amp/grad_scaler.py",
            31,
            "FutureWarning",
            "`torch.cuda.amp.GradScaler(args...)` is deprecated.",
        )
    ),
    "no redirects on Windows": ai_toolkit(
        "W1121 10:00:00.908000 92316 torch\\distributed\\elastic\\multiprocessing\\redirects.py:29] "
        "NOTE: Redirects are "
        "currently not supported in Windows or MacOs.\n"
    ),
    "no symlinks": ai_toolkit(
        _warned(
            "huggingface_hub/file_download.py",
            143,
            "UserWarning",
            "`huggingface_hub` cache-system uses symlinks by "
            "default to efficiently store duplicated files but your machine does not support them",
        )
    ),
    "flash attention was not built in": sd_scripts(
        _warned(
            "diffusers/models/attention_processor.py",
            1584,
            "UserWarning",
            "1Torch was not compiled with flash attention. (Triggered internally at sdp_utils.cpp:555.)",
            "hidden_states = F.scaled_dot_product_attention(",
        )
    ),
    "compiling falls back": ai_toolkit(
        "",
        "W1121 10:00:00.000000 140 torch/_dynamo/convert_frame.py:1017] torch._dynamo hit "
        "config.recompile_limit (8)\n"
        "torch._dynamo.exc.Unsupported: call_method UserDefinedObjectVariable\nWARNING: falling back to eager\n",
    ),
    "compiling failed": ai_toolkit("Failed to compile model: backend='inductor' raised: RuntimeError: no triton\n"),
    "a gradient that is not finite once": diffusers(
        "", "grad_norm: nan, skipping the step (GradScaler: 1 overflow)\n"
    ),
    # transformers, diffusers, peft, accelerate
    "a prompt that is too long": sd_scripts(
        "[transformers] Token indices sequence length is longer than the specified maximum sequence length for this "
        "model (120 > 77). Running this sequence through the model will result in indexing errors\n"
    ),
    "a report of what was loaded": ai_toolkit(
        "[transformers] CLIPTextModel LOAD REPORT from: /m/te\nKey                              | Status     |\n"
        "---------------------------------+------------+-\nencoder.layers.1.mlp.fc1.bias    | MISSING    |\n"
        "text_projection.weight           | UNEXPECTED |\n\nNotes:\n- MISSING:  those params were newly initialized\n"
    ),
    "ids outside of the vocabulary": ai_toolkit(
        "[transformers] Model config: bos_token_id must be `None` or an integer within the vocabulary (between 0 and "
        "98), got 49406. This may result in unexpected behavior.\n"
    ),
    "attributes that are ignored": diffusers(
        "The config attributes {'invert_sigmas': True} were passed to FlowMatchEulerDiscreteScheduler, but are not "
        "expected and will be ignored. Please verify your scheduler_config.json configuration file.\n"
    ),
    "no safety checker": diffusers(
        "You have disabled the safety checker for <class 'StableDiffusionPipeline'> by passing "
        "`safety_checker=None`. "
        "Ensure that you abide to the conditions of the license and do not expose unfiltered results\n"
    ),
    "fp16 on a CPU": diffusers(
        "Pipelines loaded with `dtype=torch.float16` cannot run with `cpu` device. It is not "
        "recommended to move them to "
        "`cpu` as running them will fail. Please make sure to use an accelerator\n"
    ),
    "adapter keys": diffusers(
        "", "", "Loading adapter weights from state_dict led to missing keys in the model: single_blocks.0.lora_A\n"
    ),
    "accelerate's defaults": sd_scripts(
        "The following values were not passed to `accelerate launch` and had defaults used instead:\n"
        "\t`--num_processes` was set to a value of `1`\nTo avoid this warning pass in values for each parameter\n"
    ),
    "accelerate's logger": diffusers(
        "11/21/2026 10:00:01 - WARNING - train - [RANK 0] 3 errors in captions, nan: 0\n"
    ),
    "bitsandbytes without a card": sd_scripts(
        "Could not find the bitsandbytes CUDA binary at PosixPath('/x/libbitsandbytes_cuda130.so')\nThe "
        "installed version "
        "of bitsandbytes was compiled without GPU support. 8-bit optimizers are unavailable.\n"
    ),
    "xformers without triton": sd_scripts(_TRITON),
    "xformers without its extensions": sd_scripts(
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    "
        "PyTorch 2.5.1+cu124\n"
        "  Please reinstall xformers\n  Memory-efficient attention, SwiGLU, sparse and more won't be available.\n"
    ),
    "TensorFlow is there too": sd_scripts(
        "E0000 00:00:1732180000.000000 140 cuda_dnn.cc:8310] Unable to register cuDNN factory: "
        "Attempting to register "
        "factory for plugin cuDNN when one has already been registered\n"
    ),
    "tokenizers fork": ai_toolkit(
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. "
        "Disabling parallelism to avoid deadlocks...\n"
    ),
    "no hf_xet": ai_toolkit(
        "Xet Storage is enabled for this repo, but the 'hf_xet' package is not installed. Falling back "
        "to regular HTTP\n"
    ),
    "no token": ai_toolkit(
        "Error while fetching `HF_TOKEN` secret value from your vault: 'Requesting secret HF_TOKEN "
        "timed out. Secrets can "
        "only be fetched when running from the Colab UI.'.\nYou are not authenticated with the Hugging Face Hub\n"
    ),
    # what was tried again
    "the hub after a while": ai_toolkit(
        "'[Errno 111] Connection refused' thrown while requesting GET https://huggingface.co/a/b\nRetrying in 1s "
        "[Retry 1/5].\n'(ReadTimeoutError(\"HTTPSConnectionPool(host='hf.co', port=443): Read timed "
        "out.\"), 'x')' thrown "
        "while requesting GET https://hf.co/x\nRetrying in 2s [Retry 2/5].\n"
    ),
    "an exception that was tried again": ai_toolkit(
        "httpx.ReadTimeout: The read operation timed out\nretrying (1 of 3)\nhttpx.ConnectError: no route to host\n"
        "retrying (2 of 3)\n"
    ),
    "pip's resolver": sd_scripts(
        "ERROR: pip's dependency resolver does not currently take into account all the packages that "
        "are installed. This "
        "behaviour is the source of the following dependency conflicts.\ngradio 5.1 requires pillow<11, but you have "
        "pillow 13.0.0 which is incompatible.\nSuccessfully installed pillow-13.0.0\n"
    ),
    "a wheel that was built anew": sd_scripts(
        "  error: subprocess-exited-with-error\n  × Building wheel for x (pyproject.toml) did not run successfully.\n"
        "  ERROR: Failed building wheel for x\nSuccessfully installed x-1.0\n"
    ),
    "npm in passing": ai_toolkit(
        "npm warn deprecated x@1: use y\n3 vulnerabilities (1 moderate, 2 high)\nnpm error? no\n"
    ),
    "git describes nothing": sd_scripts("fatal: No names found, cannot describe anything.\n"),
    "port in use": ai_toolkit(
        "wandb: ERROR Failed to serialize metric: division by zero\nwandb: Network error, retry\n"
    ),
    # pictures and captions
    "a picture that was left out": ai_toolkit(_PICTURE + "Error processing image: /d/a.png\n"),
    "a picture in its place": ai_toolkit(
        "", "Error loading image, skipping and loading a different one: /d/a.png (cannot identify image file)\n"
    ),
    "pictures that cannot be read": sd_scripts(
        "2026-11-21 10:00:01 ERROR    Could not load image path / 画像を読み込めません: /d/a.png, error:\n"
        "                             cannot identify image file '/d/a.png'\n"
        "                    WARNING  failed to get image size: /d/b.png, error: broken            train_util.py:9\n"
    ),
    "names of files": ai_toolkit(
        "caching failed.png\ncaching error_404.jpg\ncaching nan.webp\ncaching Traceback.png\ncaching "
        "killed_by_9.png\n"
    ),
    "captions": ai_toolkit(
        "caption: an error message on a blue screen, fatal exception, killed process\n"
        "caption: RuntimeError written in neon: CUDA out of memory\ncaption: Traceback (most recent call last)\n"
    ),
    "a prompt in a bar": diffusers("", "Generating: 'ValueError: Unknown optimizer type, oil painting'\n"),
    "counts of errors": ai_toolkit("0 errors, 0 warnings, 0 failed, 24 images\nerrors: 0\nfailed: 0\nnan: 0\n"),
    "buckets": sd_scripts(
        "                    INFO     mean ar error (without repeats): 0.0123                  train_util.py:1050\n"
        "                    WARNING  No data found for subset 2, ignored                       train_util.py:12\n"
    ),
    "a palette": ai_toolkit(
        _warned(
            "PIL/Image.py",
            1134,
            "UserWarning",
            "Palette images with Transparency expressed in bytes should be converted to RGBA images",
        )
        + _warned(
            "PIL/Image.py",
            3593,
            "DecompressionBombWarning",
            "Image size (99999999 pixels) exceeds limit of 89478485 pixels, could be decompression bomb DOS attack.",
        )
    ),
    "missing captions": sd_scripts(
        "                    WARNING  No caption file found for 3 images. Training will continue without captions\n"
    ),
    "a line of tqdm.write": diffusers(
        "",
        "Steps:   0%|          | 0/3 [00:00<?, ?it/s]\r                      \rERROR file 0.png is "
        "truncated, skipped\n",
    ),
    # SimpleTuner's and musubi-tuner's own
    "a batch that failed": simpletuner(
        "",
        "2026-11-21 10:30:00,123 [ERROR] Error reading individual image /d/a.png: broken\n"
        "2026-11-21 10:30:00,124 [WARNING] Read failure: 1/8 images missing\n",
    ),
    "a webhook that failed": simpletuner(
        "", "2026-11-21 10:30:00,123 [ERROR] Could not send webhook request: ConnectionError: refused\n"
    ),
    "a validation that failed": simpletuner(
        "",
        "2026-11-21 10:30:00,123 [ERROR] Error generating validation image: CUDA out of memory, continuing\n"
        + _SAMPLE,
    ),
    "an optional package": simpletuner(
        "2026-11-21 10:00:01,000 [WARNING] Failed to load mHuBERT SSL encoder: No module named 'fairseq'\n"
    ),
    "NaN in a cache": musubi(
        "WARNING:musubi_tuner.cache:latents tensor has NaN: cat, replace NaN with 0\n"
        "WARNING:musubi_tuner.cache:Failed to read existing cache c.safetensors (header too large); "
        "removing to regenerate.\n"
    ),
    "fp8 that does not go": musubi(
        "WARNING:musubi_tuner.utils:fp8 optimization failed (odd); proceeding without fp8 for this run.\n"
    ),
    "decoding on the CPU": musubi(
        "", "WARNING:musubi_tuner.x:VAE decode on cuda failed (CUDA out of memory); retrying on CPU for sampling.\n"
    ),
    "LoRA keys that are not used": musubi(
        "WARNING:musubi_tuner.lora:Warning: not all LoRA keys are used: a.b, c.d\n"
    ),
    "sageattention is absent": musubi("Failed to import sageattention\nFailed to import flash_attn\n"),
    # what was caught, and what comes after the end
    "a sample without memory": ai_toolkit("", _SAMPLE + "Sampling failed, the training goes on\n"),
    "at the interpreter's end": ai_toolkit("") + f"Exception ignored in: <function X.__del__ at 0x7f00>\n{_LATE}",
    "at the end of a thread": ai_toolkit("")
    + f"Exception ignored on threading shutdown <module 'threading'>:\n{_LATE}",
    "asyncio on Windows": ai_toolkit("")
    + (
        "Exception in callback _ProactorBasePipeTransport._call_connection_lost(None)\nhandle: <Handle x>\n"
        + traceback(
            "ConnectionResetError: [WinError 10054] closed by the remote host", ("C:\\p\\events.py", "_run", "x()")
        )
    ),
    "a task that nobody awaited": ai_toolkit("")
    + (
        "Task exception was never retrieved\nfuture: <Task finished name='Task-1' exception=OSError('no')>\n"
        + traceback("OSError: no", ("/x/a.py", "f", "g()"))
    ),
    "logging fails": sd_scripts(
        "",
        "",
        f"--- Logging error ---\n{_LOGGING}Call stack:\n"
        "  File \"train.py\", line 3, in <module>\n    main()\nMessage: 'é'\nArguments: ()\n",
    ),
    "a stack for information": diffusers(
        "",
        'Stack (most recent call last):\n  File "train.py", line 3, in <module>\n    logger.info("x", '
        "stack_info=True)\n",
    ),
    "errors of an earlier run": ai_toolkit(_SAMPLE + "Killed\n") + ai_toolkit(""),
    "a leaked semaphore": sd_scripts("")
    + (
        "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: "
        "There appear to be 1 "
        "leaked semaphore objects to clean up at shutdown\n  warnings.warn('resource_tracker: There "
        "appear to be %d '\n"
    ),
    "a group that is not destroyed": sd_scripts("")
    + (
        "[rank0]:[W1121 10:00:00.000000000 ProcessGroupNCCL.cpp:1476] Warning: WARNING: "
        "destroy_process_group() was not "
        "called before program exit, which can leak resources.\n"
    ),
    "uploading failed": musubi(
        "", "", "ERROR:musubi_tuner.huggingface_utils:failed to upload to HuggingFace : 403 Forbidden\n"
    ),
    "told at its end of an error": simpletuner(
        "", "", "2026-11-21 10:59:00,123 [ERROR] Vacuum failed: ValueError: odd\n"
    )
    + "2026-11-21 11:00:01,123 [INFO] Training is complete.\n",
}
