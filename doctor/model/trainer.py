"""The record of a trainer: how it is recognised, where its code lies, and what it does that others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .record import dataclass, field

EVERY = "every trainer"  # of a rule: all but zdoctor's own runner
RUNNER = "zdoctor"  # the trainer of a run that zdoctor's own runner is to train

# The names of the folders in a folder; None where there is no such folder.
Folders = Callable[[str], Sequence[str] | None]


@dataclass(frozen=True)
class Trainer:
    """One trainer. Each room of `doctor/trainers` holds the records of its own, which that folder's `__init__` lists.

    Recognising (modules are named whole): `reader` is the one with `read(config, environment, beside) -> Reading`,
    `called` are other words for `--trainer`. Of `marks`, any one set of keys is enough, in lower case and without
    leading dashes. `in_logs` is a pattern of the files in its tracebacks, `failures` what they say: the
    "package:file" of a table, or a module that holds it as KNOWN.

    Its code: `marker` is a file that only its checkout has, `miner` is "module:function" from a checkout to a Schema,
    `table` the one that ships. `editor` is "module:function" from a Schema to what an editor is told of its files; ""
    where they hold its options and no more. `packages` are what it imports or installs as itself, and hardly anything
    else: where they are, it can run. `requirements` are the files of its checkout that say what it needs, for
    one kind of machine each, `entries` the modules that every training imports. `list_of` is "module:function" from a
    name to the option that is a list of NAME=VALUE and takes it, "" where none does.

    `recipe` is the module that makes its runs those that zdoctor's runner takes: `for_runner(run, schema, folders)`,
    which raises UserError with what it would not obey; "" where it takes none of them.
    `writes` is the one that says what it writes beside pictures.
    `start` is the command that starts it on a `{config}`, "" where that has several forms.

    The others say what it does that most do not, whichever model it trains.
    """

    name: str
    reader: str
    marks: tuple[frozenset[str], ...]
    in_logs: str = ""
    marker: str = ""
    miner: str = ""
    table: str = ""
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    failures: str = ""
    recipe: str = ""
    editor: str = ""
    list_of: str = ""
    writes: str = ""
    start: str = ""
    called: tuple[str, ...] = ()
    # its config: processes, each with sections; a file whose options become words of a command line; a GUI's JSON,
    # and what that GUI writes into a config file for no script, the first of it always
    has_processes: bool = False
    becomes_command_line: bool = False
    has_gui: bool = False
    of_gui: tuple[str, ...] = ()
    # the sections that a key may have strayed from; those of datasets, where these are in a file apart
    sections: tuple[str, ...] = ("",)
    dataset_sections: tuple[str, ...] = ()
    # keys that zdoctor's runner reads beside the trainer's own
    runner_keys: tuple[str, ...] = ()
    # what every training is told by a command or job, each by one of some settings; one that lacks two is an excerpt
    told: tuple[frozenset[str], ...] = ()
    # where an unknown key ends the run: "top", "section" or "shell"; elsewhere it is ignored
    refuses_unknown: frozenset[str] = frozenset()
    # its model: each component is a file that an option names; shards are found of all components, not of the
    # transformer alone; the transformer may be a folder's; a tensor too many ends the load; those that are missing
    # stay on the meta device until the model is moved; its classes are its own, not diffusers'
    component_files: bool = False
    all_sharded: bool = False
    transformer_in_folder: bool = False
    strict_names: bool = False
    missing_on_meta: bool = False
    own_classes: bool = False
    # how many processes load pictures beside the training, and how many batches each holds ready: settings, defaults
    workers: tuple[str, int] = ("", 0)
    prefetched: tuple[str, int] = ("", 2)
    # the setting that pins offloaded weights in RAM, and ends the run where that is refused
    pins: str = ""
    # its datasets: folders and nothing else; pictures of these suffixes, of the top of a folder alone
    datasets_are_folders: bool = False
    top_suffixes: tuple[str, ...] = ()
    # its caches lie beside the pictures, in sizes that are known; its checkpoints are folders, with more in them
    caches_known: bool = False
    checkpoint_folders: bool = False
    # its memory: prompts are encoded before the transformer is loaded, or while it is on the card; a LoRA computes in
    # float32 on a copy of what it is given, or has as many bits as the model; gradients stay between steps, as zeros;
    # samples are decoded under autocast, too
    encodes_first: bool = False
    encodes_beside: bool = False
    lora_copies: bool = False
    lora_as_model: bool = False
    draws_under_autocast: bool = False
    keeps_gradients: bool = False
    # its optimizers: by the beginning of a name, or by a module's path
    optimizers_by_prefix: bool = False
    optimizers_by_path: bool = False
    # a caption that is not UTF-8 is left out, or met as late as it is encoded; only its first line counts
    skips_garbled: bool = False
    garbled_late: bool = False
    first_line: bool = False
    # what comes of activations that float16 cannot hold, and whether that is certain; by the setting that needs a
    # package, when it stops because that is missing
    overflow: str = "The loss becomes nan, and nothing is learnt."
    overflow_is_certain: bool = True
    missing_package: Mapping[str, str] = field(default_factory=dict)


def takes_in(trainers: Sequence[str], trainer: str) -> bool:
    """Whether the trainers that a rule names, none for all, take in this one."""
    return not trainers or trainer in trainers or (EVERY in trainers and trainer != RUNNER)


def any_of(*marks: str) -> tuple[frozenset[str], ...]:
    """Sets of keys, each written as "one+other"."""
    return tuple(frozenset(mark.split("+")) for mark in marks)


def one_of_each(*groups: str) -> tuple[frozenset[str], ...]:
    """Groups of settings, each group written in one text."""
    return tuple(frozenset(group.split()) for group in groups)


# zdoctor's own runner reads no config: it takes the runs of the others.
OF_RUNNER = Trainer(RUNNER, "", (), in_logs=r"[/\\]zdoctor[/\\](?:doctor|checks)[/\\]", datasets_are_folders=True)
