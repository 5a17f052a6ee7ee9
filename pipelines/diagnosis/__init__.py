"""Why a build failed, how to fix it, and what is changed automatically before a retry."""

from pipelines.diagnosis.heal import LIMIT, Change, Settings, first_error, heal
from pipelines.diagnosis.judge import Diagnosis, Finding
from pipelines.diagnosis.matcher import diagnose, diagnose_file
from pipelines.diagnosis.model import Catalogue, Signature, load_catalogue

__all__ = [
    "LIMIT",
    "Catalogue",
    "Change",
    "Diagnosis",
    "Finding",
    "Settings",
    "Signature",
    "diagnose",
    "diagnose_file",
    "first_error",
    "heal",
    "load_catalogue",
]
