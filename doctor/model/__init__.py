"""The nouns: frozen records, standard library only. Everything else in zdoctor maps some of these to others."""

from .checkout import Checkout
from .datasets import DatasetFolder, Image
from .facts import Entry, Facts, Files, Gpu, System, WritePlace, Writes
from .findings import SEVERITIES, Finding, Outcome, Report, Severity, found
from .hub import Hub, HubFile, HubRepo
from .memory import Alternative, Elsewhere, Memory, Phase
from .microstep import MicroStep
from .plans import (
    CopyItem,
    ExtractFiles,
    FetchFile,
    Fix,
    MakeLink,
    MirrorFolder,
    PlaceCopy,
    Plan,
    Quarantine,
    ReplaceText,
    Safety,
    SetValue,
    Step,
    TrainingEffect,
    WriteText,
)
from .recipe import Dataset, SamplePrompt
from .run import Config, Problem, Run, Value, Where
from .schema import Key, Schema
from .script import Script
from .storage import Place, Room, Speed, Storage
from .unknown import Unknown
from .weights import Component, ModelFolder, Tensor, WeightFile

__all__ = [
    "SEVERITIES",
    "Alternative",
    "Checkout",
    "Component",
    "Config",
    "CopyItem",
    "Dataset",
    "DatasetFolder",
    "Elsewhere",
    "Entry",
    "ExtractFiles",
    "Facts",
    "FetchFile",
    "Files",
    "Finding",
    "Fix",
    "Gpu",
    "Hub",
    "HubFile",
    "HubRepo",
    "Image",
    "Key",
    "MakeLink",
    "Memory",
    "MicroStep",
    "MirrorFolder",
    "ModelFolder",
    "Outcome",
    "Phase",
    "Place",
    "PlaceCopy",
    "Plan",
    "Problem",
    "Quarantine",
    "ReplaceText",
    "Report",
    "Room",
    "Run",
    "Safety",
    "SamplePrompt",
    "Schema",
    "Script",
    "SetValue",
    "Severity",
    "Speed",
    "Step",
    "Storage",
    "System",
    "Tensor",
    "TrainingEffect",
    "Unknown",
    "Value",
    "WeightFile",
    "Where",
    "WritePlace",
    "WriteText",
    "Writes",
    "found",
]
