"""The trainer's own source, where a checkout is at hand: changes that hide corruption, what it cannot load yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...doctor.model import Checkout, Finding, ModelFolder, Run, Writes, found
from ...doctor.model.checkout import Edit
from ...doctor.model.said import listed
from ...doctor.rules import Unestablished, prevents, rule

_HIDES = (
    "A checkpoint that lacks tensors then trains on random or missing weights, and no error says so; what it trains "
    "is worth nothing."
)
_SAYS = {
    "random-weights": "{function} of {file} loads the model with {code}: tensors that its files lack then keep "
    "random values instead of being named.",
    "mismatch-ignored": "{function} of {file} loads the model with {code}: tensors of another shape are replaced by "
    "random ones.",
    "to-empty": "{function} of {file} calls {code}: tensors without data are given memory with whatever lies there.",
}
_SKIPS = {
    "quantize_model": "{function} of {file} passes over blocks whose tensors have no data ({code}).",
    "merge_in": "{function} of {file} leaves the training adapter out where a weight has no data ({code}), but "
    "sampling still takes it out again.",
}
_UNMENDED = {
    "ema": "This checkout never sets the moving average up: use_ema does nothing before commit {commit} of {date}.",
    "caption-dropout": "This checkout drops no caption whose text embedding is cached: caption_dropout_rate does "
    "nothing there before commit {commit} of {date}.",
}
_SKIP = "{function} of {file} goes on without moving a model whose tensors have no data ({code})."


@rule("SRC001", "warning", "meta-tensor-patch", trainers=("ai-toolkit",))
def meta_tensor_patch(checkout: Checkout | None) -> Iterator[Finding]:
    """The checkout carries a patch that circulates against "Cannot copy out of meta tensor".

    What: low_cpu_mem_usage=False or ignore_mismatched_sizes=True where the model is loaded, blocks or merges that are
    skipped when their tensors lie on the device "meta", or to_empty().
    Why: The error means that tensors are missing from the files: the loader had nothing to fill them with. Each of
    these changes takes the message away and leaves the gap: the weights are then random, or the block is left out.
    A complete checkpoint loads without any of them.
    Repair: Each place is made to fail fast again, or the trainer's own file is restored with git. What is missing
    from the files is said by MDL001, and fetched.
    Upstream: https://github.com/ostris/ai-toolkit/issues/571
    Signature: NotImplementedError: Cannot copy out of meta tensor; no data! (the error that is hidden)
    """
    if checkout is None:
        return
    for patch in checkout.patches:
        yield found(
            patch.where,
            _SKIPS.get(patch.function, _SKIP) if patch.kind == "meta-skipped" else _SAYS[patch.kind],
            otherwise=_HIDES,
            evidence={"kind": patch.kind, **_edit(checkout, patch.where.path, patch.edit)},
            function=patch.function or "The module",
            code=patch.code,
        )
    if checkout.unparsed:
        file, why = next(iter(checkout.unparsed.items()))
        raise Unestablished(f"{file} of {checkout.root}: {why}")


def _edit(checkout: Checkout, path: str, edit: Edit | None) -> Mapping[str, Any]:
    """What the repair needs."""
    file = path.removeprefix(checkout.root).lstrip("/\\")
    seen = {"checkout": checkout.root, "git": checkout.is_git, "file": file}
    return seen if edit is None else {**seen, **vars(edit)}


@rule("SRC002", "note", "unguarded-size-file", trainers=("ai-toolkit",))
def unguarded_size_file(run: Run, writes: Writes, checkout: Checkout | None) -> Iterator[Finding]:
    """The checkout writes `.aitk_size.json` into the dataset, and nothing catches that it cannot.

    What: The dataset folder refuses to be written, and toolkit/data_loader.py opens `.aitk_size.json` in it outside
    of any try. So does every commit of ai-toolkit from 2024-07-15 to 27a03a91.
    Why: The file only keeps the sizes of the pictures for the next start; the run could do without it. Caches that
    the run writes into the same folder it cannot do without: then a guard is not enough.
    Repair: A try around the statement, where `.aitk_size.json` is all that is written there. The writable mirror of
    PTH001 needs no change of the trainer, and serves the caches, too.
    Upstream: https://github.com/ostris/ai-toolkit, toolkit/data_loader.py
    Signature: OSError: [Errno 30] Read-only file system: '…/.aitk_size.json'
    """
    size_file = checkout.size_file if checkout is not None else None
    if checkout is None or size_file is None or size_file.guard is None:
        return
    refused = [place for place in writes.places if isinstance(place.refusal, str)]
    folders = {place.folder for place in refused if place.what == ".aitk_size.json"}
    caches = sorted({place.what for place in refused if place.folder in folders and place.what != ".aitk_size.json"})
    if folders:
        message = "This checkout writes .aitk_size.json without a guard"
        message += (
            ". A guard would not be enough: the run also writes {caches} there."
            if caches
            else ", and it is all that the run writes into {folder}."
        )
        yield found(
            size_file.where,
            message,
            otherwise="The run ends there with an OSError.",
            evidence={} if caches else _edit(checkout, size_file.where.path, size_file.guard),
            caches=listed(caches),
            folder=min(folders),
        )


@rule("SRC004", "warning", "mended-by-a-later-commit", trainers=("ai-toolkit",))
def mended_by_a_later_commit(run: Run, checkout: Checkout | None) -> Iterator[Finding]:
    """The checkout is older than the commit that made a setting of this config work.

    What: The moving average (ema_config.use_ema), which nothing set up before 82190b41 (2026-06-07), and caption
    dropout where text embeddings are cached, which was left out before ab5fef89 (2026-08-10). The checkout's own
    source says which of them it has, so a branch that took the change over is silent.
    Why: The setting is read and does nothing: no error says so, and the LoRA is another one than was asked for.
    Repair: None by zdoctor; update the checkout, or leave the setting out and know that it was never in effect.
    Upstream: https://github.com/ostris/ai-toolkit/commit/82190b41e6fb6e90de6823e091f3accabfea552b,
    https://github.com/ostris/ai-toolkit/commit/ab5fef8970ea0a19c790457625909d6e1a266d8e
    Signature: None; the run ends well.
    """
    if checkout is None:
        return
    dropped = next((one for one in run.recipe.datasets if one.caption_dropout > 0), None)
    cases = (
        ("ema", run.recipe.ema.use, "use_ema", "82190b41", "2026-06-07"),
        (
            "caption-dropout",
            dropped is not None and run.recipe.cache_text_embeddings,
            f"{dropped.key if dropped else ''}/caption_dropout",
            "ab5fef89",
            "2026-08-10",
        ),
    )
    for name, applies, key, commit, date in cases:
        if applies and name in checkout.unmended:
            yield found(
                run.where(key),
                _UNMENDED[name],
                otherwise="The run ends well, and the setting had no effect.",
                evidence={"checkout": checkout.root},
                commit=commit,
                date=date,
            )


@rule("SRC003", "error", "checkout-older-than-layout", trainers=("ai-toolkit",))
@prevents("OSError", r"is not a local folder and is not a valid model identifier")
def checkout_older_than_layout(run: Run, model: ModelFolder, checkout: Checkout | None) -> Iterator[Finding]:
    """This checkout of the trainer cannot load a model that lies like this yet.

    What: The config names the transformer's own folder, or a single file, for Z-Image. ai-toolkit opens the former
    since 28f2c0ac (2026-07-13) and the latter since 7ee1f98f (2026-06-28); the checkout at hand is older.
    Why: An older one appends "transformer" to the folder, or takes the file's path for the name of a repository.
    Repair: None by zdoctor; update the checkout (git pull), or name a folder that holds transformer/.
    Upstream: https://github.com/ostris/ai-toolkit/commit/28f2c0ac
    Signature: OSError: … is not a local folder and is not a valid model identifier
    """
    if checkout is None or checkout.generation != "A" or run.recipe.architecture != "zimage":
        return
    if model.layout == "transformer-only":
        message = "{source} is the transformer's own folder; this checkout of ai-toolkit looks for one inside of it."
    elif model.layout == "single-file" and not checkout.single_files:
        message = "{source} is a single file, which this checkout of ai-toolkit cannot load for Z-Image."
    else:
        return
    yield found(
        run.where("base_model"),
        message,
        otherwise="The run ends when it loads the transformer.",
        evidence={"generation": checkout.generation, "commit": checkout.commit},
        source=model.source,
    )
