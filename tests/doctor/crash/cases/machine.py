"""The hub, memory, cards and processes."""

from __future__ import annotations

from ..shapes import META, OOM, faulthandler, notebook, powershell, script, sd_scripts, torchrun, traceback

CASES: dict[str, tuple[str, str, str]] = {
    # the hub
    "cut snapshot": (
        script("huggingface_hub.errors.IncompleteSnapshotError: The cached snapshot for a/b is incomplete"),
        "HUB002",
        "",
    ),
    "gated": (
        script(
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. Access to model "
            "black-forest-labs/FLUX.1-dev is "
            "restricted."
        ),
        "",
        "licence",
    ),
    "above 50 GB": (
        script("ValueError: The file is too large to be downloaded using the regular download method."),
        "HUB005",
        "hf_xet",
    ),
    "cut download": (
        script("OSError: Consistency check failed: file should be of size 10 but has size 9 (x.safetensors)."),
        "",
        "before the file was whole",
    ),
    "no links on Windows": (
        script("OSError: [WinError 1314] A required privilege is not held by the client: 'a' -> 'b'"),
        "",
        "developer mode",
    ),
    # memory, cards, processes
    "aborted, by a launcher's exception": (
        "RuntimeError: AI-Toolkit training failed with code 3221226505\n",
        "",
        "compiled library",
    ),
    "notebook cell": (notebook(OOM, "transformer.to('cuda')"), "MEM001", "not enough memory"),
    "copied from Colab": (
        notebook(META, "pipe.transformer.to('cuda')", old=True),
        "MDL001",
        "missing from its files",
    ),
    "two ranks": (
        torchrun(
            traceback(OOM, ("/w/train.py", "main", "model.to(d)")),
            traceback(
                "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
                ("/w/train.py", "main", "dist.all_reduce(x)"),
            ),
        ),
        "MEM001",
        "not enough memory",
    ),
    "rank killed": (torchrun("loading\n", code=-9), "MEM002", "ended the process"),
    "worker of the loader": (
        sd_scripts(
            "RuntimeError: Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
            "last):\n"
            '  File "/x/loader.py", line 3, in get\n    read()\nOSError: image file is truncated (2 bytes not '
            "processed)"
        ),
        "KOH014",
        "",
    ),
    "shared memory": (
        script(
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that "
            "dataloader's "
            "workers are out of shared memory."
        ),
        "HST001",
        "/dev/shm",
    ),
    "worker killed": (
        script("RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed. "),
        "MEM002",
        "RAM",
    ),
    "no RAM on Windows": (
        script(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:115] data. DefaultCPUAllocator: not enough memory: you "
            "tried"
        ),
        "MEM002",
        "RAM",
    ),
    "dmesg": ("[ 1234.5] Out of memory: Killed process 4321 (python3) total-vm:48123456kB\n", "MEM002", "RAM"),
    "systemd": (
        "train.service: Main process exited, code=killed, status=9/KILL\ntrain.service: Failed with result "
        "'oom-kill'.\n",
        "MEM002",
        "RAM",
    ),
    "docker": ('    "OOMKilled": true,\n    "ExitCode": 137,\n', "MEM002", "RAM"),
    "Kaggle": ("Your notebook tried to allocate more memory than is available. It has restarted.\n", "MEM002", "RAM"),
    "Colab": ("Loading checkpoint shards:  33%|###  | 1/3\n^C\n", "MEM002", "RAM"),
    "GUI on Windows": ("Process exited with code -1073741819\n", "MEM002", "0xC0000005"),
    "no library": ("python.exe ended with exit code 3221225781\n", "", "DLL"),
    "old card": (
        script("RuntimeError: CUDA error: no kernel image is available for execution on the device"),
        "PKG002",
        "no code for the card",
    ),
    "old driver": (
        script("RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
        "PKG003",
        "older than",
    ),
    "NCCL waits in vain": (
        "step 10/100 loss 0.2\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: "
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, "
        "NumelOut=112, Timeout(ms)=1800000) ran for 1800011 milliseconds before timing out.\nAborted (core dumped)\n",
        "",
        "waited in vain",
    ),
    "a card in use": (
        script("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        "",
        "Exclusive Process",
    ),
    "a kernel out of bounds": (
        script("RuntimeError: CUDA error: an illegal memory access was encountered"),
        "",
        "overclocked",
    ),
    "memory of the card": (
        script("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        "",
        "is faulty",
    ),
    "a card that fell off": (script("torch.AcceleratorError: CUDA error: unspecified launch failure"), "", "Xid 79"),
    "an image for another driver": (script("RuntimeError: CUDA error: device kernel image is invalid"), "PKG003", ""),
    "no driver": (
        script("RuntimeError: Found no NVIDIA driver on your system. Please check"),
        "MEM003",
        "finds no card",
    ),
    "built without CUDA": (script("AssertionError: Torch not compiled with CUDA enabled"), "PKG001", "without CUDA"),
    "illegal instruction": ("Illegal instruction (core dumped)\n", "", "processor"),
    "segmentation fault": ("Segmentation fault (core dumped)\n", "", "not its own"),
    "the line of a segmentation fault": (
        faulthandler("Segmentation fault", ("/usr/lib/python3.11/mmap.py", "read"), ("/home/li/mine.py", "main"))
        + "Segmentation fault (core dumped)\n",
        "",
        "not its own",
    ),
    "PowerShell": (
        powershell(traceback("OSError: [Errno 28] No space left on device", ("C:\\z\\run.py", "main", "save(x)"))),
        "DSK002",
        "",
    ),
    "full disk": (script("OSError: [Errno 28] No space left on device"), "DSK002", ""),
    "journal": (
        "".join(
            f"Nov 21 10:00:00 box train[77]: {line}\n"
            for line in traceback(OOM, ("/srv/train.py", "main", "model.to(d)")).splitlines()
        ),
        "MEM001",
        "not enough memory",
    ),
    "stopped by hand": (script("KeyboardInterrupt"), "", "stopped the run"),
    "log that is cut off": (script("x").rpartition("x\n")[0], "", "amid a traceback"),
    "no program": (
        traceback(
            "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
            ("/usr/lib/python3.11/subprocess.py", "_execute_child", "raise child_exception_type(errno_num)"),
        ),
        "",
        "PATH",
    ),
    "no package": (script("ModuleNotFoundError: No module named 'torchaudio'"), "PKG006", "not installed"),
}
