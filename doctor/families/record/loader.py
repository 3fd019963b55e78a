"""What a trainer opens of a model: its components, the classes of each, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...model.record import dataclass, field, replace
from ...model.weights import Tensor, WeightFile

ModelConfig = Mapping[str, Any]  # a model's config.json


@dataclass(frozen=True)
class Fit:
    """Two numbers that must agree: `key` of a component's config.json, times `factor`, and the first set one of `own`
    in the transformer's, `default` where none is.
    """

    component: str
    key: str
    own: tuple[str, ...]
    default: int
    factor: int = 1


@dataclass(frozen=True)
class Origin:
    """Where a component comes from that is no folder of its name with a config.json, in the model's own folder.

    `repo` is the repository it is taken from, "" the model's own or, for what that lacks, `extras_model`'s; `folder`
    what lies there ("": all of it), None a folder of the component's name. Where a model's folder on this machine
    holds `beside`, it comes from there. `file` names the one file that is opened, by its repository's name ("" where
    it is in none), None for a folder; `lone` says that of a folder on this machine the only weight file is opened.
    `built` gives the class and the config that the trainer itself writes for files with these tensors, in place of a
    config.json. Names that end in `scale` are multiplied in while it loads.
    """

    repo: str = ""
    folder: str | None = None
    beside: str = ""
    file: Callable[[str], str] | None = None
    lone: bool = False
    built: Callable[[Mapping[str, Tensor]], tuple[str, ModelConfig]] | None = None
    scale: str | None = None

    def loaded(self, weight: WeightFile) -> WeightFile:
        """A file as the loader goes on with it."""
        if self.scale is None:
            return weight
        left = {name: tensor for name, tensor in weight.tensors.items() if not name.endswith(self.scale)}
        return replace(weight, tensors=left)


_OWN = Origin()


@dataclass(frozen=True)
class Loader:
    """What a trainer opens of a model folder or file.

    `components` maps each component, the one that is trained first, to the classes its config.json may name, the
    one that is built first, and `origins` those of them that are no folders of their own. `single_file` is the
    repository that serves a single file with its other components and its config, "" where the names in such a file
    are not known here, None where no single file is opened. `bare` says whether a folder may be the transformer
    itself, `extras` whether `extras_model` names the source of the other components, `extras_first` that it does so
    even where the folder has them. `adapter_key` is the tensor from which the rank of a training adapter is read,
    None where no adapter is taken. `vae_path` says whether that key names the source of the VAE. `whole` is what
    stands before the names of a component's tensors in one file that holds all of them, the main one's first; {}
    where no such file is opened.
    """

    components: Mapping[str, tuple[str, ...]]
    single_file: str | None = None
    bare: bool = False
    extras: bool = False
    extras_first: bool = False
    adapter_key: str | None = None
    vae_path: bool = False
    origins: Mapping[str, Origin] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)

    def origin(self, component: str) -> Origin:
        """Where a component comes from."""
        return self.origins.get(component, _OWN)

    @property
    def main(self) -> str:
        """The component that is trained."""
        return next(iter(self.components))

    @property
    def others(self) -> tuple[str, ...]:
        """The components beside it."""
        return tuple(self.components)[1:]
