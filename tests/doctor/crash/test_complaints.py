"""What a program says in its own words, in any usual language, with no exception: a path that is not there."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain

from .shapes import OOM, script
from .test_cases import SIGNATURES
from .worked import WORKED

# The path that is told, and whether it counts from the folder in which the program was started.
MISSING = {
    "2025-07-05 18:44:24,171 - ERROR - ❌ 訓練數據目錄不存在: lora_train/10_test": (
        "lora_train/10_test",
        True,
    ),
    "ERROR: dataset folder not found: ./dataset/mychar": ("./dataset/mychar", True),
    "Path /workspace/dataset does not exist": ("/workspace/dataset", False),
    "Image folder D:\\lora\\img not found": ("D:\\lora\\img", False),
    "学習データのディレクトリが見つかりません: C:\\lora\\train": ("C:\\lora\\train", False),
    "错误: 找不到模型文件 D:/models/flux.safetensors": ("D:/models/flux.safetensors", False),
    "Fehler: Ordner 'C:\\meine bilder' wurde nicht gefunden": ("C:\\meine bilder", False),
    "Erreur : le dossier /data/img n'existe pas": ("/data/img", False),
    "Error: la carpeta /data/img no existe": ("/data/img", False),
    "Ошибка: папка D:\\lora\\img не найдена": ("D:\\lora\\img", False),
    "오류: 데이터셋 폴더를 찾을 수 없습니다: D:\\lora\\img": ("D:\\lora\\img", False),
    "Lỗi: thư mục /data/img không tồn tại": ("/data/img", False),
    "❌ Model file not found: models/checkpoints/flux1-dev.safetensors": (
        "models/checkpoints/flux1-dev.safetensors",
        True,
    ),
    "12:00:01 ERROR    Checkpoint '/m/a.safetensors' doesn't exist": ("/m/a.safetensors", False),
    "ValueError: training folder data/cats could not be found": ("data/cats", True),
}
NOT_TOLD = (
    "2025-07-05 18:44:24,171 - ERROR - ❌ 训练数据目录不存在",
    "Error: training folder does not exist",
)
REFUSED = {
    "[ERROR] 拒绝访问: 'D:\\out\\lora.safetensors'": "D:\\out\\lora.safetensors",
    "Fehler: Zugriff verweigert: /data/out": "/data/out",
    "Erreur : accès refusé : /data/out/a.json": "/data/out/a.json",
}
# Nothing of this tells why a run ended.
HARMLESS = (
    "WARNING: metadata file /data/meta.json not found, creating a new one",
    "config/default.yaml not found, using defaults",
    "Caption file /data/a.txt not found, the folder's name is used instead",
    "No such file or directory: skipping /data/x.txt",
    "latent cache /data/a.npz does not exist; it will be created",
    "Downloading https://example.org/a/b not found in cache",
    "缓存文件 /data/a.npz 不存在，将重新创建",
    "INFO: https://example.org/missing does not exist",
)


@pytest.mark.parametrize("line", MISSING)
def test_a_path_that_is_not_there_is_told(line: str) -> None:
    path, relative = MISSING[line]
    told = explain(f"Loading the settings\n{line}\n", SIGNATURES)
    assert told.failure is not None and path in told.cause and "not there" in told.cause
    assert told.rules == ("PTH004",)
    assert ("counts from the folder" in told.cause) is relative


@pytest.mark.parametrize("line", NOT_TOLD)
def test_without_its_path_it_is_told_too(line: str) -> None:
    told = explain(f"Loading the settings\n{line}\n", SIGNATURES)
    assert "not there" in told.cause and "what it names" not in told.cause


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_system_refuses(line: str) -> None:
    told = explain(f"Loading the settings\n{line}\n", SIGNATURES)
    assert "refuses this account" in told.cause and REFUSED[line] in told.cause


@pytest.mark.parametrize("line", HARMLESS)
def test_what_a_program_goes_on_without_is_no_failure(line: str) -> None:
    told = explain(f"Loading the settings\n{line}\nLoading more\n", SIGNATURES)
    assert told.failure is None and told.known is None


@pytest.mark.parametrize("line", [line for line in (*MISSING, *NOT_TOLD, *REFUSED) if "ValueError" not in line])
def test_a_run_that_went_on_and_another_failure_have_other_answers(line: str) -> None:
    for worked in list(WORKED.values())[::9]:
        assert explain(f"{line}\n{worked}", SIGNATURES).failure is None
    other = explain(f"{line}\n" + "loading\n" * 20 + script(OOM), SIGNATURES)
    assert other.rules and "PTH004" not in other.rules


def test_the_first_complaint_counts_for_those_after_it() -> None:
    told = explain(
        "❌ data folder not found: /data/a\n❌ caption folder not found: /data/a/b\nTraining failed.\n", SIGNATURES
    )
    assert "/data/a." in told.cause
    beside = explain(
        "WARNING: xformers not found at /x/y\nA matching Triton is not available\n❌ data folder not found: /a/b\n",
        SIGNATURES,
    )
    assert "/a/b." in beside.cause
