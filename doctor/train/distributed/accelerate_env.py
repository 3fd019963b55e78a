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
    """Tells whether the base model is to be sharded over the processes."""
    return _on(environment, "ACCELERATE_USE_FSDP")


def notes(environment: Mapping[str, str]) -> Iterator[str]:
    """Yields what of it has no effect. What accelerate sets without being asked is not mentioned."""
    precision = environment.get("ACCELERATE_MIXED_PRECISION", "no")
    if precision != "no":
        yield f"accelerate launch asks for mixed precision {precision}; the dtype of the config counts."
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND", "NO")
    if backend.upper() != "NO":
        yield f"accelerate launch asks for the dynamo backend {backend.lower()}; only the config counts."
    if _on(environment, "ACCELERATE_USE_CPU"):
        yield "accelerate launch asks for the CPU; the device of the config counts."
    if sharded(environment) and _on(environment, "FSDP_OFFLOAD_PARAMS"):
        yield "accelerate launch asks FSDP to keep weights in RAM; they stay on the cards."


def _on(environment: Mapping[str, str], variable: str) -> bool:
    return environment.get(variable, "").lower() in ("1", "true", "yes")
