"""Crash logs in the shapes in which trainers and launchers really print them."""

from __future__ import annotations

META = (
    "NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
    "torch.nn.Module.to() when moving module from meta to a different device."
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB. GPU 0 has a total capacity of "
    "14.74 GiB "
    "of which 12.12 MiB is free."
)
TORCH = "/usr/local/lib/python3.11/dist-packages/torch/nn/modules/module.py"
SIMPLE_TRAINER = "/home/ana/SimpleTuner/simpletuner/helpers/training/trainer.py"


def traceback(error: str, *frames: tuple[str, str, str]) -> str:
    """Python's own; frames are (file, function, code), a frame of torch comes last."""
    told = "".join(
        f'  File "{file}", line {at + 20}, in {function}\n    {code}\n    ^^^^^^^^\n'
        for at, (file, function, code) in enumerate(frames)
    )
    library = f'  File "{TORCH}", line 1340, in convert\n    return t.to(device)\n'
    return f"Traceback (most recent call last):\n{told}{library}{error}\n"


def ai_toolkit(
    error: str, code: str = "self.load()", function: str = "step", file: str = "toolkit/data_loader.py"
) -> str:
    """run.py: the message, its summary, then the same again with the traceback, after a bar that was not ended."""
    message = error.partition(": ")[2]
    root = "/kaggle/working/ai-toolkit/"
    trace = traceback(
        error,
        (root + "run.py", "<module>", "main()"),
        (root + "run.py", "main", "raise e"),
        (root + file, function, code),
    )
    return (
        "Running 1 job\n#############################################\n# Running job: cat\n"
        "Loading Z-Image model\nLoading transformer:  50%|#####     | 1/2 [00:01<00:01,  1.1s/it]"
        f"Error running job: {message}\n\n"
        "========================================\nResult:\n - 0 completed jobs\n - 1 failure\n"
        f"========================================\n{trace}"
    )


def sd_scripts(
    error: str, code: str = "trainer.train(args)", function: str = "train", file: str = "train_network.py"
) -> str:
    """Under accelerate launch: the trainer's traceback behind the bar, then the launcher's."""
    root = r"C:\kohya_ss\sd-scripts" + "\\"
    trace = traceback(
        error, (root + "flux_train_network.py", "<module>", "trainer.train(args)"), (root + file, function, code)
    )
    return (
        "2026-11-21 10:00:00 INFO     Loading settings from config.toml           train_util.py:4745\n"
        "                    INFO     prepare tokenizer                           train_util.py:5017\n"
        f"steps:   0%|          | 0/1600 [00:00<?, ?it/s]{trace}" + launcher(1)
    )


def musubi(error: str, code: str = "trainer.train(args)") -> str:
    root = "/opt/musubi-tuner/src/musubi_tuner/"
    frames = (
        (root + "zimage_train_network.py", "main", "trainer.train(args)"),
        (root + "training/trainer_base.py", "t", code),
    )
    return f"INFO:musubi_tuner.dataset.config_utils:Load dataset config\n{traceback(error, *frames)}" + launcher(1)


def simpletuner(error: str, code: str = "self.init_data_backend()", file: str = SIMPLE_TRAINER) -> str:
    """The trainer's own logger puts the time and the rank before the first line of a traceback."""
    trace = traceback(error, (SIMPLE_TRAINER, "run", "self.run()"), (file, "init", code))
    return (
        "\x1b[32m[RANK 0] 2026-11-21 10:00:00,123 [INFO] Loading Qwen3 4B text encoder\x1b[0m\n"
        f"[RANK 0] 2026-11-21 10:00:09,456 [ERROR] {trace}"
    )


def script(error: str, code: str = "loss.backward()") -> str:
    return f"***** Running training *****\n{traceback(error, ('/home/li/train.py', 'main', code))}"


def powershell(text: str) -> str:
    """`python train.py 2>&1 > train.log` in Windows PowerShell 5: the first line is taken for an error of its own."""
    first, _, rest = text.partition("\n")
    words = "In Zeile:1 Zeichen:1\n+ python train.py 2>&1 > train.log\n+ ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
    words += "    + CategoryInfo          : NotSpecified: (Traceback (most recent call last)::String) []\n"
    return f"python : {first}\n{words}    + FullyQualifiedErrorId : NativeCommandError\n \n{rest}"


def faulthandler(words: str, *frames: tuple[str, str]) -> str:
    told = "".join(f'  File "{file}", line 7 in {function}\n' for file, function in frames)
    head = f"Fatal Python error: {words}\n\nCurrent thread 0x00007f01 (most recent call first):\n"
    return f"{head}{told}\nExtension modules: x\n"


def launcher(code: int) -> str:
    """What accelerate launch adds."""
    root = "/usr/local/lib/python3.11/dist-packages/accelerate/commands/launch.py"
    return (
        f'Traceback (most recent call last):\n  File "{root}", line 1185, in launch_command\n'
        "    simple_launcher(args)\n"
        f'  File "{root}", line 778, in simple_launcher\n'
        "    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)\n"
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'flux_train_network.py']' "
        f"returned non-zero exit status {code}.\n"
    )


def torchrun(*ranks: str, code: int = 1) -> str:
    """The tracebacks of several ranks, mixed line by line, and what the elastic agent says of it."""
    told = [[f"[rank{at}]: {line}" for line in text.splitlines()] for at, text in enumerate(ranks)]
    mixed = [lines[at] for at in range(max(map(len, told))) for lines in told if at < len(lines)]
    return "\n".join(
        (
            *mixed,
            "W1121 10:00:00.000000 140 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 12 "
            "closing "
            "signal SIGTERM",
            f"E1121 10:00:01.000000 140 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: "
            f"{code}) "
            "local_rank: 0 (pid: 11) of binary: /usr/bin/python3",
            "Traceback (most recent call last):",
            '  File "/usr/local/bin/torchrun", line 8, in <module>',
            "    sys.exit(main())",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "============================================================",
            "train.py FAILED",
            "------------------------------------------------------------",
            f"  exitcode  : {code} (pid: 11)",
            "============================================================",
        )
    )


def panel(error: str, file: str, function: str, code: str) -> str:
    """rich's traceback, as sd-scripts' users post it; the message is broken at the window's width."""
    width = 100
    path = f"{file}:236 in {function}"
    rows = [path[at : at + width - 4] for at in range(0, len(path), width - 4)]
    rows += ["", "  233 │   │   │   logger.info('move')", f"❱ 236 │   │   │   {code}", "  237 │   │   │   clean()"]
    rows += ["", f"{TORCH}:1340 in convert", "", "❱ 1340 │   │   │   return t.to(device)"]
    body = "".join(f"│ {row:<{width - 4}} │\n" for row in rows)
    words, broken = error.split(), ""
    for word in words:
        broken += ("\n" if len(broken.rpartition("\n")[2]) + len(word) >= width else " ") + word
    head = "╭" + " Traceback (most recent call last) ".center(width - 2, "─") + "╮\n"
    return head + body + "╰" + "─" * (width - 2) + "╯\n" + broken.strip() + "\n"


def notebook(error: str, code: str, *, old: bool = False) -> str:
    """What IPython shows under a cell; `old` is Colab's way, copied from the page with its links."""
    name = error.partition(":")[0].rpartition(".")[2]
    if old:
        cell = "[<ipython-input-3-0a1b2c3d>](https://localhost:8080/#) in <cell line: 4>()"
        library = f"[{TORCH}](https://localhost:8080/#) in to(self, *args, **kwargs)"
    else:
        cell, library = "Cell In[3], line 4", f"File {TORCH}:1340, in Module.to(self, *args, **kwargs)"
    return (
        f"{'-' * 75}\n{name:<42}Traceback (most recent call last)\n{cell}\n      2 import torch\n      3 \n"
        f"----> 4 {code}\n\n{library}\n   1338             )\n   1339 \n-> 1340         return "
        f"self._apply(convert)\n\n"
        f"{error}\n"
    )
