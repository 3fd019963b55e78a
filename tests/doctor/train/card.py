"""A CUDA card where there is none: its tensors compute on the CPU, and may not meet the CPU's.

A `hollow` one keeps no numbers, so that it holds models of full size: its tensors have shapes alone, each number that
it is asked for is a one, and `Alive` counts its bytes.

    python -c "import ctypes; ctypes.CDLL('LIBRARY'); from zdoctor.tests.doctor.train import card; card.main()" < RUNS

A process of its own, because PyTorch takes the new device for the machine's accelerator from then on; LIBRARY is
card.cpp, compiled. Without it, with a PyTorch for CUDA, the real card is taken. RUNS is a pickled list of `Asked`;
the answer, the last line, is for each what `_Watch` has seen, or the error.
"""

from __future__ import annotations

import gc
import json
import pickle
import shutil
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from zdoctor.doctor.model.run import Run
from zdoctor.doctor.train import Job, TrainError, train
from zdoctor.doctor.train.kernels import attention, float16
from zdoctor.doctor.train.rehearsal.alive import Alive
from zdoctor.doctor.train.settings.names import CACHE

from .patient import Recorder

CARD = "cuda:0"
REAL = torch.version.cuda is not None  # a card is here
NAME = "A card that is none"
COPIES = ("aten::_to_copy", "aten::copy_")
# What gives numbers to the CPU, or tensors whose size the card has to tell.
TELLING = (
    *("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::_unique2"),
    "aten::is_nonzero",
)
emptied: list[None] = []  # one for each time that the card gave back what is free
waited: Counter[str] = Counter()  # what the CPU waited for, by the line that made it wait
failed: list[str] = []  # what the card says to whatever is asked of it
pinned: set[int] = set()  # addresses of host memory that the card reads by itself
capability = [(8, 0)]
hollow: list[Alive] = []


@dataclass(frozen=True)
class Asked:
    """A run, and the compute capability of the card. What the run of the folder `encoded` encoded is used again.

    After the step of `fails`, or as the transformer is loaded where that is 0, the card says the words beside it:
    from then on, or once, of memory that another process has taken.
    """

    run: Run
    model: Path
    images: Path
    output: Path
    adapter: Path | None = None
    encoded: Path | None = None
    capability: tuple[int, int] = (8, 0)
    held_out: int = 0
    fails: tuple[int, str] = (0, "")


class Stream:
    """An order of work. Its pieces have numbers; `seen` are the last ones of other streams that it waited for."""

    def __init__(self, *_: Any) -> None:
        self.number = 0
        self.seen: dict[Stream, int] = {}

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def wait_event(self, event: dict[Stream, int]) -> None:
        for stream, number in event.items():
            self.seen[stream] = max(number, self.seen.get(stream, 0))

    def record_event(self) -> dict[Stream, int]:
        return {**self.seen, self: self.number}


default = Stream()
current = [default]
# By the storage of what lies on the card: who wrote it last, and who has read it since.
wrote: dict[int, tuple[Stream, int]] = {}
read: dict[int, dict[Stream, int]] = {}


def _used(tensors: list[Tensor], written_to: list[Tensor]) -> None:
    """Each piece of work comes after those of other streams that it depends on."""
    stream = current[-1]
    stream.number += 1

    def comes_after(other: Stream, number: int) -> None:
        assert other is stream or stream.seen.get(other, 0) >= number, "two streams use one tensor in no order"

    for tensor in tensors:
        key = tensor.untyped_storage()._cdata
        if key in wrote:
            comes_after(*wrote[key])
        read.setdefault(key, {})[stream] = stream.number
    for tensor in written_to:
        key = tensor.untyped_storage()._cdata
        for reader in read.pop(key, {}).items():
            comes_after(*reader)
        if key not in wrote:
            weakref.finalize(tensor.untyped_storage(), _forgotten, key)
        wrote[key] = stream, stream.number


def _forgotten(key: int) -> None:
    wrote.pop(key, None)
    read.pop(key, None)


class OnCard(Tensor):
    """A tensor of the card; `numbers` lie on the CPU."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OnCard:
        made: Any = Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            numbers.stride(),
            numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(CARD),
        )
        made.numbers = numbers
        for alive in hollow:
            alive.add(numbers)
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What is saved are its numbers; where they lay is not asked when they are loaded."""
        return self.numbers.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


class _MadeThere(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """For what is asked for on the card and made of nothing that is there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """What tells no mode of the dispatcher what it does: numbers that become tensors, memory that is pinned."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.pin_memory:
            assert not isinstance(args[0], OnCard)
            return _pinned(args[0].clone())
        if getattr(func, "__self__", None) is Tensor.data and func.__name__ == "__set__":
            parameter, value = args
            if isinstance(value, OnCard):  # assigned, it would lose its class
                made = torch.nn.Parameter(value, requires_grad=parameter.requires_grad)
                swap: Any = torch.utils.swap_tensors
                return swap(parameter, made)
        if func is Tensor.tolist and isinstance(args[0], OnCard):
            _waits()
            return _told(args[0]).tolist()
        if func is Tensor.__format__ and isinstance(args[0], OnCard):
            _waits()
            return format(_told(args[0]), *args[1:])
        device = kwargs.pop("device", None) if func in (torch.tensor, torch.as_tensor) else None
        made = func(*args, **kwargs)
        return made if device is None else made.to(device)


def _pinned(value: Tensor) -> Tensor:
    address = value.untyped_storage().data_ptr()
    pinned.add(address)
    weakref.finalize(value.untyped_storage(), pinned.discard, address)
    return value


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves, form = tree_flatten((args, kwargs))
    tensors = [value for value in leaves if isinstance(value, Tensor)]
    there = [value for value in tensors if isinstance(value, OnCard)]
    name = func._schema.name
    if there and failed:
        taken = "out of memory" in failed[0]
        raise torch.OutOfMemoryError(failed.pop()) if taken else torch.AcceleratorError(failed[0])
    if there and name not in COPIES:
        strangers = [value for value in tensors if value.dim() and not isinstance(value, OnCard)]
        if strangers and name == "aten::index" and isinstance(args[0], OnCard):
            _waits()  # it takes indices of the CPU there
            strangers.clear()
        assert not strangers, f"{name} of tensors on the card and on the CPU"
    stays = bool(there) if name != "aten::copy_" else isinstance(args[0], OnCard)
    if (device := kwargs.get("device")) is not None:
        stays = device.type == "cuda"
        kwargs = {**kwargs, "device": torch.device(_inside()) if stays else device}
        leaves, form = tree_flatten((args, kwargs))
    if name in TELLING and there:
        _waits()
    if name in COPIES and (there or stays):
        source = args[0] if name == "aten::_to_copy" else args[1]
        comes = stays and not isinstance(source, OnCard)
        at_once = kwargs.get("non_blocking") or (name == "aten::copy_" and any(args[2:]))
        by_itself = at_once and source.untyped_storage().data_ptr() in pinned
        if (comes and not by_itself) or (not stays and there):
            _waits()
    if hollow and there and (name in TELLING or (name in COPIES and not stays)):
        return _one(name, args, kwargs)
    numbers = [value.numbers if isinstance(value, OnCard) else value for value in leaves]
    if hollow and stays:
        numbers = [value.to("meta") if isinstance(value, Tensor) else value for value in numbers]
    args, kwargs = tree_unflatten(numbers, form)
    if name == "aten::_conj":  # a mark on the tensor, which nothing below this heeds
        func = torch.ops.aten.conj_physical.default
    known = {id(value.numbers): value for value in there}
    found = func(*args, **kwargs)
    if (there or stays) and not func.is_view:
        made = [value for value in tree_flatten(found)[0] if isinstance(value, Tensor)] if stays else []
        old = {value.numbers.untyped_storage()._cdata for value in there}
        changes = any(one.alias_info is not None and one.alias_info.is_write for one in func._schema.arguments)
        _used(
            [value.numbers for value in there],
            [value for value in made if changes or value.untyped_storage()._cdata not in old],
        )

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor) or not stays:
            return value
        same = known.get(id(value))  # what was changed in place
        return OnCard(value) if same is None else same

    return tree_map(placed, found)


def _inside() -> str:
    """Where the numbers of the card lie."""
    return "meta" if hollow else "cpu"


def _told(value: OnCard) -> Tensor:
    return torch.ones(value.shape, dtype=value.dtype) if hollow else value.numbers


def _one(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """What a card without numbers says that it holds."""
    if name == "aten::copy_":
        return args[0].fill_(1)
    found = torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
    if name == "aten::_to_copy":
        return found
    assert name in ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"), f"{name} needs numbers"
    return found.item() if name == "aten::_local_scalar_dense" else True


def _waits() -> None:
    """Counts the line, of the product or of a library, that made the CPU wait for what the card is doing."""
    frame: Any = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename == __file__ or "/torch/" in frame.f_code.co_filename):
        frame = frame.f_back
    waited[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}" if frame else "?"] += 1


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """One of the kernels that a card has, since which is chosen asks for CUDA's own."""
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    if query.dim() == 3:
        return _attention(query[None], key[None], value[None], attn_mask, dropout_p, is_causal, scale)[0]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    found: Tensor = kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return found


class _Runtime:
    """What BlockSwap asks of CUDA's runtime: to pin what lies at an address."""

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        pinned.add(address)
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        pinned.discard(address)
        return 0


@contextmanager
def _on(stream: Stream) -> Iterator[None]:
    current.append(stream)
    try:
        yield
    finally:
        current.pop()


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


CUDA: dict[str, Any] = {
    "_lazy_init": _answer(None),
    "init": _answer(None),
    "is_available": _answer(True),
    "is_initialized": _answer(True),
    "device_count": _answer(1),
    "current_device": _answer(0),
    "set_device": _answer(None),
    "get_device_name": _answer(NAME),
    "get_device_capability": lambda *_: capability[-1],
    "manual_seed_all": _answer(None),
    "_is_in_bad_fork": _answer(False),
    "empty_cache": lambda: emptied.append(None),
    "synchronize": _answer(None),
    "max_memory_allocated": _answer(1),
    "max_memory_reserved": _answer(1),
    "reset_peak_memory_stats": _answer(None),
    "Stream": Stream,
    "current_stream": lambda *_: current[-1],
    "stream": _on,
    "cudart": _Runtime,
}


class _Watch(Recorder):
    """Also counts the tensors that lie on the card at the beginning of each phase."""

    def __init__(self, at: Callable[[int], None]) -> None:
        super().__init__(at)
        self.there: dict[str, int] = {}
        self.waits: list[dict[str, int]] = []
        self.drawing: dict[str, int] = {}  # what was waited for until the samples were decoded

    def step(self, step: int, total: int, loss: float, rate: float) -> None:
        super().step(step, total, loss, rate)
        self.waits.append(dict(waited))
        waited.clear()

    def phase(self, text: str) -> None:
        if text.startswith("Loading the transformer") and self.at is not None:
            self.at(0)
        if text.startswith("Painting "):
            waited.clear()
        self.there[text] = sum(type(value) is OnCard for value in gc.get_objects())

    def doing(self, text: str = "") -> None:
        if text.startswith("decoding "):
            self.drawing = dict(waited)


# Without a kernel for cards PyTorch computes it by six products, which a card never holds; this one is not called.
ONE_KERNEL = torch.library.Library("aten", "IMPL", "CUDA")  # type: ignore[no-untyped-call]


def pretend() -> None:
    """Lets PyTorch take what is here for a card."""
    ONE_KERNEL.impl("silu_backward", _answer(None))  # type: ignore[no-untyped-call]
    torch.autograd.set_multithreading_enabled(False)  # a thread for the card would ask more of it
    for name, value in CUDA.items():
        setattr(torch.cuda, name, value)
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # assigning to `data` would lose the class
    torch.nn.functional.scaled_dot_product_attention = _attention
    for module in (attention, float16):
        vars(module)["torch_attention"] = _attention


def compiled(folder: Path) -> Path:
    """card.cpp as a library."""
    file, there = folder / "card.so", Path(torch.__file__).parent
    words = [
        "g++",
        "-std=c++20",
        "-shared",
        "-fPIC",
        f"-I{there / 'include'}",
        str(Path(__file__).with_suffix(".cpp")),
    ]
    words += ["-o", str(file), f"-L{there / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{there / 'lib'}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file


def answers_of(module: str, library: Path | None, asked: list[Any]) -> list[Any]:
    """What `main` of this module or of the one beside it says of each, in a process of its own."""
    begin = "" if library is None else f"import ctypes; ctypes.CDLL({str(library)!r}); "
    program = f"{begin}from zdoctor.tests.doctor.train import {module}; {module}.main()"
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(asked), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def main() -> None:
    torch.set_num_threads(1)
    if not REAL:
        pretend()
    answers: list[Any] = []
    for asked in pickle.load(sys.stdin.buffer):
        failed.clear()
        emptied.clear()
        waited.clear()
        capability.append(asked.capability)
        if asked.encoded is not None:
            shutil.copytree(asked.encoded / CACHE, asked.output / CACHE)
        answers.append(_answered(asked))
        print("done", asked.output.parent.name, file=sys.stderr, flush=True)
    print(json.dumps(answers))


def _answered(asked: Asked) -> Any:
    def fail(step: int) -> None:
        failed.extend([asked.fails[1]] * (step == asked.fails[0] and asked.fails[1] != ""))

    watch = _Watch(fail)
    try:
        with ExitStack() as modes:
            for mode in () if REAL else (_MadeThere, _Functions):
                made: Any = mode
                modes.enter_context(made())
            job = Job(
                asked.run,
                asked.model,
                {dataset.key: str(asked.images) for dataset in asked.run.recipe.datasets},
                asked.output,
                adapter=asked.adapter,
                device=CARD,
                held_out=asked.held_out,
                progress=watch,
            )
            result = train(job)
    except TrainError as error:
        return str(error)
    return {
        "losses": result.losses,
        "evaluations": result.evaluations,
        "samples": result.samples,
        "there": watch.there,
        "emptied": len(emptied),
        "waits": watch.waits,
        "drawing": watch.drawing,
        "notes": watch.notes,
    }
