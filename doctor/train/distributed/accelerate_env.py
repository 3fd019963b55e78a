"""The environment of `accelerate launch` is followed, refused or said to have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

ENGINES = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism_config",
}


def refusal(environment: Mapping[str, str]) -> str:
    """Returns why a run cannot be started so, "" when it can."""
    for variable, engine in ENGINES.items():
        if _on(environment, variable):
            return (
                f"accelerate launch asks for {engine}, which zdoctor train does not use. Start it with several "
                "processes and without it; use_fsdp shares the base out."
            )
    return ""


def sharded(environment: Mapping[str, str]) -> bool:
    return _on(environment, "ACCELERATE_USE_FSDP")


def notes(environment: Mapping[str, str]) -> Iterator[str]:
    """Yields what of it has no effect. What accelerate sets without being asked is not mentioned."""
    precision = environment.get("ACCELERATE_MIXED_PRECISION", "no")
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND", "NO").lower()
    in_memory = sharded(environment) and _on(environment, "FSDP_OFFLOAD_PARAMS")
    for is_asked, what in (
        (precision != "no", f"for mixed precision {precision}; the dtype of the config counts."),
        (backend != "no", f"for the dynamo backend {backend}; only the config counts."),
        (_on(environment, "ACCELERATE_USE_CPU"), "for the CPU; the device of the config counts."),
        (in_memory, "FSDP to keep weights in RAM; they stay on the cards."),
    ):
        if is_asked:
            yield f"accelerate launch asks {what}"


def _on(environment: Mapping[str, str], variable: str) -> bool:
    return environment.get(variable, "").lower() in ("1", "true", "yes")
