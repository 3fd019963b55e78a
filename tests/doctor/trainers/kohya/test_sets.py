"""Datasets of sd-scripts and musubi-tuner in the runner's words."""

from __future__ import annotations

import pytest

from zdoctor.doctor.errors import UserError
from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model.buckets import Buckets, scaled_size
from zdoctor.doctor.trainers.read import Found, read_config

from .runs import FLUX, differences, run_of, schema_of, toml, trained


def test_datasets_in_the_runners_words() -> None:
    run = trained(
        run_of(
            options={"masked_loss": True, "flip_aug": True, "prior_loss_weight": 0.5},
            general={"enable_bucket": True, "bucket_reso_steps": 32, "caption_extension": ".txt"},
            of_set={"max_bucket_reso": 1536},
            of_subset={"conditioning_data_dir": "/masks", "caption_dropout_rate": 0.1, "random_crop": True},
        )
    )
    (dataset,) = run.recipe.datasets
    assert (dataset.folder, dataset.repeats, dataset.resolutions) == ("/data/cat", 2, (627,))
    assert (dataset.caption_extension, dataset.caption_dropout, dataset.flip_x) == (".txt", 0.1, True)
    assert not dataset.recursive and dataset.first_line and dataset.captionless
    assert dataset.buckets == Buckets(
        512, 768, kind="sd-scripts", step=32, least=256, most=1536, resampling="area", cut_first=True
    )
    assert dataset.mask_folder == "/masks" and dataset.random_crop
    assert (run.recipe.loss.regularisation_weight, run.recipe.loss.balanced_masks) == (0.5, False)
    assert run.where(f"{dataset.key}/folder_path").path == "d.toml"
    assert run.where(f"{dataset.key}/mask_folder").path == "d.toml"


def test_datasets_of_musubi() -> None:
    run = trained(run_of("flux_kontext_train_network", of_set={"enable_bucket": True, "num_repeats": 3}))
    (dataset,) = run.recipe.datasets
    assert (dataset.folder, dataset.repeats, dataset.control_folders) == ("/data/cat", 3, ("/data/before",))
    assert not dataset.first_line and not dataset.captionless and not dataset.controls
    assert dataset.buckets == Buckets(960, 544, kind="musubi-tuner", resampling="area")
    assert trained(run_of("zimage_train_network")).recipe.datasets[0].control_folders == ()


def test_which_pictures_share_batches() -> None:
    for script in ("flux_train_network", "zimage_train_network"):
        assert trained(run_of(script)).recipe.datasets[0].batches_of == "datasets/0"


def test_random_crops_without_buckets_are_of_the_picture_as_it_is() -> None:
    """sd-scripts scales pictures only where it has buckets or a cache, which random crops have not."""
    for words, size in (({}, (2000, 1000)), ({"enable_bucket": True}, (704, 352))):
        run = trained(run_of(of_set={"resolution": 512, **words}, of_subset={"random_crop": True}))
        how = run.recipe.datasets[0].buckets
        assert how is not None
        assert scaled_size(how, 2000, 1000) == size


def test_every_process_has_its_batch() -> None:
    command = "accelerate launch --num_processes 2 --gpu_ids 2,3 flux_train_network.py"
    words = {name: value for name, value in FLUX.items() if name != "dataset_config"}
    text = command + "".join(f" --{name}" + ("" if value is True else f" {value}") for name, value in words.items())
    text += " --train_data_dir /d --resolution 512 --gradient_accumulation_steps 3"
    run = read_config("t.sh", text.encode(), {}).runs[0]
    made = trained(run, {"/d": ("1_cat",)})
    assert (made.recipe.batch_size, made.recipe.gradient_accumulation) == (1, 6)
    assert any("2 processes" in line for line in differences(run))
    assert any("whatever the script says (2,3)" in line for line in differences(run))


def test_a_set_that_is_repeated_no_time_is_left_out() -> None:
    assert for_runner(run_of(of_subset={"num_repeats": 0}), schema_of(run_of())).recipe.datasets == ()
    with pytest.raises(UserError, match=r"num_repeats 2\.5 is not a whole number"):
        for_runner(run_of(of_subset={"num_repeats": 2.5}), schema_of(run_of()))
    assert for_runner(run_of(of_subset={"num_repeats": 2.0}), schema_of(run_of())).recipe.datasets[0].repeats == 2


def test_of_two_subsets_of_one_folder_the_first_counts() -> None:
    """As in sd-scripts, which passes over the other; a dataset of its own has the folder again."""
    subset = "[[datasets.subsets]]\nimage_dir = '/data/cat'\nnum_repeats = "
    of_set = "[[datasets]]\nresolution = 512\n"
    text = f"{of_set}{subset}2\n{subset}5\n{of_set}{subset}3\n"
    made = read_config(
        "c.toml", toml(FLUX).encode(), {}, trainer="sd-scripts", beside=lambda name: Found(name, text.encode())
    )
    assert [one.repeats for one in trained(made.runs[0]).recipe.datasets] == [2, 3]


def test_numbered_folders_are_datasets() -> None:
    options = {"dataset_config": ..., "train_data_dir": "/d/train", "reg_data_dir": "/d/reg", "resolution": "512,512"}
    run = run_of(options=options)
    names = {"/d/train": ("10_a cat", "3_dog", "log", "x_y"), "/d/reg": ("1_cat",)}
    made = trained(run, names).recipe.datasets
    assert [(one.key, one.folder, one.repeats, one.default_caption, one.is_regularisation) for one in made] == [
        ("train_data_dir/10_a cat", "/d/train/10_a cat", 10, "a cat", False),
        ("train_data_dir/3_dog", "/d/train/3_dog", 3, "dog", False),
        ("reg_data_dir/1_cat", "/d/reg/1_cat", 1, "cat", True),
    ]
    with pytest.raises(UserError, match="/d/train holds no folders such as 10_name"):
        for_runner(run, schema_of(run), {"/d/train": (), "/d/reg": ()}.get)
