"""Make doctor/families/record/classes/*.json anew: the tensors of every model class, as functions of its config.

    python -m zdoctor.maintenance.mine_classes [CLASS ...] [--source CHECKOUT]

Each class is built on the meta device, with numbers in its config that remember how they were computed. What its
tensors' sizes were computed from is written down, and then held against the class itself, built from other configs. A
key that changes the tensors in a way that cannot be written so is `fixed`: of another value the record says nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zdoctor.doctor.families.record.mined import CLASSES as CLASSES_FOLDER
from zdoctor.doctor.families.record.mined import shapes_of
from zdoctor.doctor.families.record.shapes import BadConfig
from zdoctor.maintenance.builders import Transformers, Tree, maker_of, plain_tree, tree_of
from zdoctor.maintenance.classes import CLASSES, Source
from zdoctor.maintenance.other_values import flat, is_whole, is_word, others_than, put, ranks_of, with_values
from zdoctor.maintenance.patterns import lengths_of, patterns_of
from zdoctor.maintenance.remembering import Sized, number_of, remembering, text_of

_FEW = 6  # blocks of a list while it is mined


class _Miner:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.maker = maker_of(source)
        self.follow: dict[str, str] = {}

    def built(self, config: Mapping[str, Any], *, lift: bool = False) -> Tree | None:
        """The tree of this config; None where the class cannot be built from it."""
        try:
            with remembering():
                return tree_of(self.maker.build(config, lift=lift))
        except Exception as error:
            self.why = f"{type(error).__name__}: {error}"[:300]
            return None

    def mined(self, base: Mapping[str, Any]) -> dict[str, Any]:
        every = {**flat(self.maker.defaults), **flat(base)}
        self.follow |= (follow := self._follow(base, every))
        base = {**base, **{key: every[of] for key, of in follow.items()}}
        values = {**flat(self.maker.defaults), **flat(base)}
        whole = self.built(base)
        if whole is None:
            raise SystemExit(f"{self.source.name} cannot be built: {self.why}")
        lists = self._lists(base, values)
        counts = dict.fromkeys(re.findall(r"[A-Za-z_][\w.]*", " ".join(lists.values())), _FEW)
        few, tree = with_values(base, counts), self.built(with_values(base, counts), lift=True)
        if tree is None or not lists.keys() <= lengths_of(tree).keys():
            counts, few, tree = {}, base, self.built(base, lift=True) or {}
        tree = self._explained(tree, few, values)
        table: dict[str, Any] = {
            "fixed": {},
            "lengths": {},
            "ranks": {},
            "lists": lists,
            "tensors": patterns_of(tree, lists),
        }
        self._bound(table, few, {**values, **counts})
        real, ours = plain_tree(whole), self._ours(table, base)
        if ours != real:
            both = sorted(n for n in {*ours, *real} if ours.get(n) != real.get(n))
            names = "; ".join(f"{n}: {ours.get(n)}, not {real.get(n)}" for n in both[:8])
            raise SystemExit(f"{self.source.name}: what was mined is not the published model: {names}")
        return table

    def _explained(self, tree: Tree, base: Mapping[str, Any], values: Mapping[str, Any]) -> Tree:
        """Sizes that forgot what they were computed by get an expression of the same value, if one fits them all."""
        lost = {
            name for name, sizes in tree.items() if any(not isinstance(size, Sized) and size > 1 for size in sizes)
        }
        whole = {
            key: value for key, value in values.items() if isinstance(value, int) and not isinstance(value, bool)
        }
        others = [with_values(base, {key: other}) for key, value in whole.items() for other in others_than(value)[:2]]
        built = [(other, real) for other in others if lost and (real := self.built(other, lift=True)) is not None]
        choices = {text_of(size): size for sizes in tree.values() for size in sizes if isinstance(size, Sized)}
        choices |= {f"{key} * {key}": number_of(value * value, f"{key} * {key}") for key, value in whole.items()}
        for name in lost:
            tree[name] = tuple(
                self._expression(name, place, tree, choices, built) for place in range(len(tree[name]))
            )
        return tree

    def _expression(
        self, name: str, place: int, tree: Tree, choices: Mapping[str, Any], built: list[tuple[dict[str, Any], Tree]]
    ) -> Any:
        size = tree[name][place]
        if isinstance(size, Sized) or all(name in real and real[name][place] == size for _, real in built):
            return size
        for text, value in choices.items():
            if value == size and all(
                name in real and _number(text, self.maker.defaults, config) == real[name][place]
                for config, real in built
            ):
                return value
        return size

    def _ours(self, table: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        return shapes_of(
            {
                "defaults": {**self.maker.defaults, **self.follow},
                "tables": [{**table, "fixed": {}, "lengths": {}, "ranks": {}}],
            },
            config,
        )

    def _follow(self, base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
        """Keys that are another's value where they are null, as out_channels that of in_channels."""
        found: dict[str, str] = {}
        for key in [key for key, value in values.items() if value is None]:
            for other in [
                o for o in values if o.rpartition("_")[2] == key.rpartition("_")[2] and is_whole(values[o])
            ]:
                more = [{other: values[other] * 2}, {}]
                pairs = [
                    (with_values(base, one), with_values(base, {**one, key: one.get(other, values[other])}))
                    for one in more
                ]
                trees = [(self.built(left), self.built(right)) for left, right in pairs]
                if all(left is not None and left == right for left, right in trees) and trees[0] != trees[1]:
                    found[key] = other
                    break
        return found

    def _lists(self, base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
        """How many blocks each list has, as a sum of keys."""
        counts = {key: _FEW for key, value in values.items() if _counts(key) and is_whole(value)}
        base = with_values(base, counts)
        before = lengths_of(self.built(base) or {})
        sums: dict[str, dict[str, int]] = {}
        for key in counts:
            steps = ((step, self.built(with_values(base, {key: _FEW + step}))) for step in (3, -3))
            step, tree = next((one for one in steps if one[1] is not None), (0, None))
            after = lengths_of(tree or {})
            for name in {*before, *after} if tree else ():
                times, rest = divmod(after.get(name, 0) - before.get(name, 0), step)
                if rest == 0 and times in (1, -1):
                    sums.setdefault(name, {})[key] = times
        # a list within blocks of another grows with it in number, not in length
        return {
            name: _sum(of, before.get(name, 0) - sum(of.values()) * _FEW)
            for name, of in sums.items()
            if not re.search(r"\.\d+(\.|$)", name)
        }

    def _bound(self, table: dict[str, Any], base: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Note the values, and the lengths of lists, that tensors depend on in another way than the table says."""
        words = not isinstance(
            self.maker, Transformers
        )  # of a config of transformers most are of no part in what is built
        for key, value in values.items():
            if words and key not in self.follow and is_word(value):
                table["fixed"][key] = list(value) if isinstance(value, tuple) else value
            elif not self._holds_for(table, base, key, others_than(value)):
                ranks = ranks_of(value)
                alike = (
                    [type(value)(one * (2 + 3 * rank) for one, rank in zip(value, ranks, strict=True))]
                    if ranks
                    else []
                )
                if alike and self._holds_for(table, base, key, alike):
                    table["ranks"][key] = ranks
                else:
                    table["fixed"][key] = list(value) if isinstance(value, tuple) else value
            elif isinstance(value, list | tuple) and value:
                longer = (value[:-1], (*value, value[-1]))
                if not self._holds_for(table, base, key, longer):
                    table["lengths"][key] = len(value)

    def _holds_for(self, table: Mapping[str, Any], base: Mapping[str, Any], key: str, others: Sequence[Any]) -> bool:
        """Whether the table is that of the class with such values, too; of numbers two that it can be built with."""
        seen = 0
        for other in others:
            config = with_values(base, {key: other})
            real = self.built(config)
            if real is None:
                continue  # no such model
            try:
                if self._ours(table, config) != plain_tree(real):
                    return False
            except BadConfig:
                return False
            seen += 1
            if seen == 2 and is_whole(other):
                break
        return True


def _number(text: str, defaults: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    table = {"fixed": {}, "lengths": {}, "ranks": {}, "lists": {}, "tensors": {text: ["it"]}}
    try:
        return shapes_of({"defaults": defaults, "tables": [table]}, config)["it"][0]
    except BadConfig:
        return None


def _sum(keys: Mapping[str, int], rest: int) -> str:
    """ "num_layers + num_single_layers + 1", as an expression."""
    text = " ".join(
        f"{'+' if times > 0 else '-'} {key}" for key, times in sorted(keys.items(), key=lambda one: -one[1])
    )
    return text.removeprefix("+ ") + (f" {'+' if rest > 0 else '-'} {abs(rest)}" if rest else "")


def _counts(key: str) -> bool:
    return re.search(r"layers|blocks|depth", key.rpartition(".")[2]) is not None


def _asked(tables: list[dict[str, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Of the class's defaults those that a table asks for."""
    words = " ".join(word for one in tables for word in (*one["tensors"], *one["lists"].values()))
    keys = {key.rstrip(".") for key in re.findall(r"[A-Za-z_][\w.]*", words)} & values.keys()
    made: dict[str, Any] = {}
    for key in sorted(
        keys.union(
            *(table["fixed"] for table in tables),
            *(table["lengths"] for table in tables),
            *(table["ranks"] for table in tables),
        )
    ):
        put(made, key, values[key])
    return made


def mine(source: Source) -> dict[str, Any]:
    """What is written of one class."""
    miner = _Miner(source)
    tables = [miner.mined(base) for base in source.configs]
    library = importlib.import_module(source.module.partition(".")[0])
    defaults = _asked(tables, {**flat(miner.maker.defaults), **miner.follow})
    return {
        "from": source.trainer or f"{library.__name__} {library.__version__}",
        "defaults": defaults,
        "published": source.configs,
        "tables": tables,
    }


def real_shapes(source: Source, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of what the class builds from a config. Raises RuntimeError where it builds nothing."""
    miner = _Miner(source)
    tree = miner.built(config)
    if tree is None:
        raise RuntimeError(miner.why)
    return plain_tree(tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CLASS")
    parser.add_argument("--source", type=Path, help="a trainer's checkout, for the classes of its own")
    options = parser.parse_args()
    if options.source:
        sys.path.append(str(options.source))
    for source in CLASSES:
        if source.name in options.names or not (options.names or (source.trainer and not options.source)):
            print(source.name, flush=True)
            (CLASSES_FOLDER / f"{source.name}.json").write_text(written(mine(source)), "utf-8")


def written(found: Mapping[str, Any]) -> str:
    """The file's text: a line for each shape."""
    text = json.dumps(found, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s*\n\s*", " ", m.group(1)) + "]", text) + "\n"


if __name__ == "__main__":
    main()
