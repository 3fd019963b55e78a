"""What the system beneath the run bounds: shared memory, open files, address space, promised memory."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Dataset, Finding, Gpu, Host, ModelFolder, Run, System, found
from ..doctor.model.amounts import amount
from ..doctor.rules import NotApplicable, prevents, rule
from ..doctor.trainers import trainer_of

MADE = 1_793_491_200  # 2026-11-01 in seconds since 1970, UTC
LONGEST = 259  # characters of a path of Windows, the zero at its end not counted
DOCKERS = 64 << 20  # bytes of shared memory, where a container is started without --shm-size
FEW_FILES = 256  # 60 to 70 are open with 8 workers, before CUDA opens its own (measured: torch 2.13, Linux)
LEAST_SPACE = 1 << 30  # importing torch 2.13 fails at 0.5 GB of address space (measured)
MANY = 4  # workers: the batches that they hold ready rarely fit into what Docker leaves
NO_ROOM = "The training ends when a worker finds no room there: a bus error, or 'unable to allocate shared memory'."
PIXEL = 3 * 4  # bytes: workers hand pictures over in float32
LATENT = 2  # pixels for each byte: 16 channels of 16 bits for 8 x 8 pixels
PROMPT = 512 * 4096 * 2  # bytes: T5's answer to the longest prompt of Flux


@rule("HST001", "warning", "shared-memory-too-small")
@prevents("RuntimeError", r"unable to allocate shared memory\(shm\)")
@prevents("RuntimeError", r"DataLoader worker .* is killed by signal: Bus error")
def shared_memory_too_small(run: Run, host: Host, system: System) -> Iterator[Finding]:
    """/dev/shm is smaller than what the processes that load pictures put into it.

    What: The size of /dev/shm against the batches that lie in it: as many as each worker holds ready (2), and the one
    that is trained. Workers: as the config says, else sd-scripts and musubi-tuner 8, ai-toolkit 2, SimpleTuner none.
    A picture counts 12 bytes for each pixel of the resolution; with cached latents half a byte, and 4 MiB for its
    prompt. Without a config it is a note where there are the 64 MiB that Docker leaves a container.
    Why: The batches that are ready stay there until they are trained. torch 2.13 ends with an error then, older ones
    with a bus error, and both long after the start where the cache was made before.
    Repair: Start the container with more (docker run --shm-size=8g, in compose shm_size), as root make it larger
    where it is, or let the training load its pictures itself, with 0 workers.
    Upstream: https://docs.docker.com/reference/cli/docker/container/run/,
    https://github.com/pytorch/pytorch#docker-image
    Signature: RuntimeError: unable to allocate shared memory(shm) for file </torch_…>: No space left on device (28);
    DataLoader worker (pid …) is killed by signal: Bus error
    """
    if host.shared_memory is None:
        raise NotApplicable
    key, workers = trainer_of(run.trainer).workers
    evidence = {"shared_memory": host.shared_memory, "key": key}
    if run.kind == "other":
        if host.shared_memory <= DOCKERS and (workers or not run.trainer):
            yield found(
                None,
                "/dev/shm has {room} (measured), as Docker leaves it; workers need more for large pictures.",
                otherwise=NO_ROOM,
                severity="warning" if workers >= MANY else "note",
                evidence=evidence,
                room=amount(host.shared_memory),
            )
        return
    workers, need = _handed_over(run, system)
    if need > host.shared_memory:
        yield found(
            run.where(key),
            "{workers} processes load pictures and hand them over in /dev/shm, up to {need} at once (computed); "
            "it has {room} (measured).",
            otherwise=NO_ROOM,
            evidence={**evidence, "need": need},
            workers=workers,
            need=amount(need),
            room=amount(host.shared_memory),
        )


def _handed_over(run: Run, system: System) -> tuple[int, int]:
    """How many processes load pictures, and the bytes that they hold ready for the training at most; 0: none."""
    trainer = trainer_of(run.trainer)
    workers, ready = (run.setting(*setting) for setting in (trainer.workers, trainer.prefetched))
    if run.by_runner or not isinstance(workers, int) or not isinstance(ready, int) or workers <= 0:
        return 0, 0
    workers = min(workers, system.cpus)

    def bytes_of(dataset: Dataset) -> int:
        sizes = [dataset.buckets_at(resolution) for resolution in dataset.resolutions or (512,)]
        pixels = max(size.width * size.height for size in sizes)
        is_cached = dataset.cache_latents or dataset.cache_latents_to_disk
        return pixels // LATENT + PROMPT if is_cached else pixels * PIXEL

    largest = max(map(bytes_of, run.recipe.datasets), default=0)
    return workers, (workers * ready + 1) * max(1, run.recipe.batch_size) * largest


@rule("HST002", "warning", "address-space-limited")
@prevents("MemoryError", r"Cannot allocate memory \(os error 12\)")
@prevents("RuntimeError", r"unable to mmap \d+ bytes from file")
def address_space_limited(host: Host, system: System, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Programs of this user get a bounded address space (ulimit -v).

    What: The limit against what CUDA sets aside when it starts, as much as the memory of the computer and the cards
    together. An error below 1 GB, where torch cannot even be imported.
    Why: Some clusters and control panels set it where memory is meant. Address space is not memory: a file that is
    mapped takes as much of it as it is long, twice while it is loaded.
    Repair: In the shell that starts the trainer, ulimit -v unlimited; where that is refused, its administrator can.
    Upstream: https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (unified virtual address space)
    Signature: MemoryError: Cannot allocate memory (os error 12); unable to mmap … bytes from file; CUDA error: out of
    memory, at the first call
    """
    if host.address_space is None:
        return
    wanted = system.memory_total + sum(card.memory_total for card in gpus) if gpus else LEAST_SPACE
    if host.address_space < wanted:
        yield found(
            None,
            "Programs here get {limit} of address space (measured: ulimit -v){of_cuda}.",
            otherwise="The import of torch fails."
            if host.address_space < LEAST_SPACE
            else "CUDA does not start, or says that it is out of memory when it does.",
            severity="error" if host.address_space < LEAST_SPACE else None,
            evidence={"address_space": host.address_space},
            limit=amount(host.address_space),
            of_cuda=f"; CUDA sets aside about {amount(wanted)} when it starts" if gpus else "",
        )


@rule("HST003", "error", "weights-above-address-space")
@prevents("MemoryError", r"Cannot allocate memory \(os error 12\)")
def weights_above_address_space(run: Run, model: ModelFolder, host: Host) -> Iterator[Finding]:
    """A weight file is larger than the address space that a program may have (ulimit -v).

    What: The largest file of the model against the limit.
    Why: Weights are mapped, so that a file takes as much address space as it is long.
    Repair: In the shell that starts the trainer, ulimit -v unlimited.
    Signature: MemoryError: Cannot allocate memory (os error 12)
    """
    if host.address_space is None:
        return
    files = [file for part in model.components.values() for file in part.weights]
    largest = max(files, key=lambda file: file.size, default=None)
    if largest is not None and largest.size >= host.address_space:
        yield found(
            run.where("base_model"),
            "{file} has {size}, and programs here get {limit} of address space (measured: ulimit -v).",
            otherwise="The trainer ends when it opens that file.",
            evidence={"file": largest.path, "size": largest.size, "address_space": host.address_space},
            size=amount(largest.size),
            limit=amount(host.address_space),
        )


@rule("HST004", "warning", "few-open-files")
@prevents("OSError", r"Too many open files")
def few_open_files(host: Host, system: System) -> Iterator[Finding]:
    """Programs of this user may open very few files at once (ulimit -n).

    What: The limit of Linux, below 256.
    Why: A training with 8 workers holds 60 to 70 files open before CUDA opens its own; each tensor that a worker
    hands over is one more. Linux gives 1024 unless somebody lowers it.
    Repair: In the shell that starts the trainer, ulimit -n 4096.
    Signature: OSError: [Errno 24] Too many open files; received 0 items of ancdata
    """
    if system.os == "linux" and host.open_files is not None and host.open_files < FEW_FILES:
        yield found(
            None,
            "Programs here may open {limit} files at once (measured: ulimit -n); a training with 8 workers holds 60 "
            "to 70 open, and CUDA its own.",
            otherwise="The run ends with: Too many open files, as soon as it has opened as many.",
            evidence={"limit": host.open_files},
        )


@rule("HST005", "error", "memory-not-promised")
@prevents("OSError", r"os error 1455|paging file is too small")
def memory_not_promised(run: Run, model: ModelFolder, host: Host) -> Iterator[Finding]:
    """The system promises programs less memory than the weights take while they are loaded.

    What: Linux with vm.overcommit_memory=2, or Windows with a page file of a fixed size (or none), refuse memory as
    soon as what all programs were promised reaches a limit, used or not. Weights are mapped so that they could be
    changed, and count as a whole: an error where the largest file exceeds what is left, a warning where the largest
    part of the model does, or where the trainer reads weights in a way of its own (musubi-tuner).
    Why: Without a page file Windows promises no more than its RAM; a card's memory counts there, too.
    Repair: On Linux vm.overcommit_memory=0, as root. On Windows a page file that the system manages: System, Advanced
    system settings, Performance, Advanced, Virtual memory.
    Upstream: https://www.kernel.org/doc/html/latest/mm/overcommit-accounting.html,
    https://learn.microsoft.com/troubleshoot/windows-client/performance/introduction-to-the-page-file
    Signature: OSError: The paging file is too small for this operation to complete. (os error 1455); MemoryError:
    Cannot allocate memory (os error 12)
    """
    if host.commit_free is None or host.commit_limit is None:
        return
    parts = [[file.size for file in part.weights] for part in model.components.values()]
    reads_itself = run.by_runner or trainer_of(run.trainer).own_classes
    file, part = (max((count(sizes) for sizes in parts if sizes), default=0) for count in (max, sum))
    if part > host.commit_free:
        yield found(
            run.where("base_model"),
            "{what} has {need}, which the system must promise as it is loaded; of {limit} that it promises, {free} "
            "are left (measured).",
            otherwise="The load ends with: the paging file is too small, or: cannot allocate memory.",
            severity="error" if file > host.commit_free and not reads_itself else "warning",
            evidence={"need": part, "commit_free": host.commit_free, "commit_limit": host.commit_limit},
            what="The largest weight file" if file > host.commit_free else "The largest part of the model",
            need=amount(file if file > host.commit_free else part),
            free=amount(host.commit_free),
            limit=amount(host.commit_limit),
        )


@rule("HST006", "warning", "pinned-memory-of-wsl")
def pinned_memory_of_wsl(run: Run, system: System) -> Iterator[Finding]:
    """The run pins its offloaded weights in RAM, below WSL, which allows little of that.

    What: A setting that keeps offloaded weights in pinned memory (musubi-tuner's use_pinned_memory_for_block_swap,
    SimpleTuner's ramtorch), and a kernel of WSL. ai-toolkit pins what it can and goes on without.
    Why: Windows bounds the memory that may be pinned. How much is told nowhere: from half a GB to half of the RAM was
    seen, whatever ulimit -l says. What is refused then is called "CUDA error: out of memory", with room on the card.
    Repair: Leave the setting out; steps take a little longer. Or train in Windows itself.
    Upstream: https://docs.nvidia.com/cuda/wsl-user-guide/ (support constraints),
    https://github.com/microsoft/WSL/issues/8447 https://github.com/microsoft/WSL/issues/14078
    Signature: RuntimeError: CUDA error: out of memory
    """
    key = trainer_of(run.trainer).pins
    if not system.is_wsl or not key or str(run.setting(key, False)).lower() != "true":
        return
    yield found(
        run.where(key),
        "{key} keeps offloaded weights in pinned memory, of which WSL allows little (how much is not known).",
        otherwise="The run ends with 'CUDA error: out of memory' while the card has room.",
        evidence={"key": key},
    )


@rule("HST007", "warning", "synced-folder")
def synced_folder(run: Run, host: Host, system: System) -> Iterator[Finding]:
    """The hub cache or the output lies in a folder that a program copies into a cloud.

    What: The folders that OneDrive names in its variables, on macOS ~/Library/CloudStorage and Mobile Documents
    (iCloud). For the output it is a note.
    Why: Every file is sent up while the run goes on, holds the disk and is held open meanwhile, so that Windows
    refuses to replace it; what is not used for a while is taken off this disk, and downloaded again when it is read.
    Repair: HF_HOME names another place for the cache; the output folder is a setting of the config.
    Upstream: https://support.microsoft.com/office/save-disk-space-with-onedrive-files-on-demand-for-windows
    Signature: PermissionError: [WinError 32] The process cannot access the file because it is being used by another
    process
    """
    if not host.synced:
        raise NotApplicable
    cache = system.environment.get("HF_HOME") or system.join(system.home, ".cache", "huggingface")
    places = {"The hub cache": cache, "The output": run.output_folder if run.kind != "other" else None}
    for what, folder in places.items():
        cloud = next((one for one in host.synced if folder and system.is_inside(system.absolute(folder), one)), None)
        if folder and cloud:
            yield found(
                run.where("output_folder") if what == "The output" else None,
                "{what}, {folder}, lies in {cloud}, which is copied into a cloud.",
                otherwise="Files are sent up as they are written, and may be locked, or taken off this disk later.",
                severity="note" if what == "The output" else None,
                evidence={"folder": folder, "cloud": cloud},
                what=what,
            )


@rule("HST008", "error", "path-too-long-for-windows")
@prevents("FileNotFoundError", r"\[WinError 206\]|The filename or extension is too long")
def path_too_long_for_windows(run: Run, host: Host, system: System) -> Iterator[Finding]:
    """The run will write a file whose path is longer than this Windows allows.

    What: LongPathsEnabled in the registry, and the path of the LoRA as it is saved: more than 259 characters.
    Why: Unless the switch is on, Windows refuses longer paths to programs that do not ask for them in a special form,
    which trainers do not.
    Repair: A shorter output folder or name; or the switch, as administrator, for which the command is shown.
    Upstream: https://learn.microsoft.com/windows/win32/fileio/maximum-file-path-limitation
    Signature: FileNotFoundError: [Errno 2] No such file or directory, of a path that is there
    """
    if host.long_paths is None:
        raise NotApplicable
    if host.long_paths or run.kind == "other" or not run.output_folder:
        return
    last = ("checkpoint-1", "pytorch_lora_weights.safetensors")
    name = last if trainer_of(run.trainer).checkpoint_folders else (f"{run.name}.safetensors",)
    path = system.join(system.absolute(run.output_folder), *name)
    if len(path) > LONGEST:
        yield found(
            run.where("output_folder"),
            "The LoRA will be saved as {path}: {length} characters, and Windows allows {longest} here.",
            otherwise="The first save ends with FileNotFoundError, after all steps until then.",
            evidence={"path": path, "length": len(path)},
            longest=LONGEST,
        )


@rule("HST009", "warning", "clock-behind")
def clock_behind(host: Host) -> Iterator[Finding]:
    """The clock of this computer shows a day before this zdoctor was made.

    What: The system's time. A clock that is ahead cannot be told without the network.
    Why: A battery that is empty, a virtual machine that slept, a container of such a host. Certificates count as not
    yet valid then, and files that are newer than others as older.
    Repair: Set the clock: timedatectl set-ntp true on Linux, w32tm /resync on Windows.
    Signature: SSL: CERTIFICATE_VERIFY_FAILED, certificate is not yet valid
    """
    if host.clock is None:
        raise NotApplicable
    if host.clock < MADE:
        from datetime import datetime, timezone

        now, made = (datetime.fromtimestamp(seconds, timezone.utc) for seconds in (host.clock, MADE))
        yield found(
            None,
            "The clock says {now} (measured); this zdoctor was made on {made} or later.",
            otherwise="Downloads end with CERTIFICATE_VERIFY_FAILED, as certificates count as not yet valid.",
            evidence={"clock": host.clock},
            now=f"{now:%Y-%m-%d %H:%M} UTC",
            made=f"{made:%Y-%m-%d}",
        )
