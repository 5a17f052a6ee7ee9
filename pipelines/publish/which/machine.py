"""What of a machine decides which wheel fits it, and the line in which people pass that on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from pipelines.publish.which.texts import RefusalError, shown

PREFIX = "wcw1:"
_LONGEST_LINE = 2000
_FORMS = {
    "platform": (r"[a-z][a-z0-9_]{0,60}", "a platform tag, such as win_amd64"),
    "python": (r"\d{1,2}\.\d{1,2}t?", "a release such as 3.12"),
    "torch": (r"(\d{1,4}\.\d{1,4}[\w.+-]{0,60})?", "a version such as 2.8.0+cu128, or nothing"),
    "cuda": (r"(\d{1,3}\.\d{1,2})?", "a release such as 12.8, or nothing"),
    "driver": (r"(\d{1,3}\.\d{1,2})?", "a release of CUDA such as 12.9, or nothing"),
    "gpu": (r"(\d{1,2}\.\d(,\d{1,2}\.\d){0,63})?", "compute capabilities such as 8.9,12.0"),
}
_NEEDED = ("platform", "python")


@dataclass(frozen=True)
class Machine:
    """A Python and what it runs on; no names and no paths."""

    platform: str
    """As the tags of wheels have it: ``win_amd64``."""
    python: str
    """``3.12``; ``3.13t`` without the global lock."""
    torch: str = ""
    """Its version as pip knows it, also where its files say ``+cu130`` besides; empty: none."""
    cuda: str = ""
    """``torch.version.cuda``; empty: a torch for the processor alone, or none."""
    driver: str = ""
    """The release of CUDA that the driver reports; empty: no driver."""
    gpus: tuple[str, ...] = ()
    """The compute capability of each."""

    @property
    def line(self) -> str:
        """As one line, which :func:`read_line` and the index's page take."""
        told = {
            "platform": self.platform,
            "python": self.python,
            "torch": self.torch,
            "cuda": self.cuda,
            "driver": self.driver,
            "gpu": ",".join(self.gpus),
        }
        return PREFIX + "&".join(f"{key}={quote(value, safe=',')}" for key, value in told.items())


def read_line(text: str) -> Machine:
    """The machine that a line tells of.

    Raises :class:`RefusalError` that names the key that is not of its form.
    """
    text = text.strip()
    hint = "Copy the whole line that which.py --share prints."
    if not text.startswith(PREFIX) or len(text) > _LONGEST_LINE:
        raise RefusalError(f"{shown(text, 80)}: no line that begins with {PREFIX}", hint)
    told: dict[str, str] = {}
    try:
        pairs = parse_qsl(text[len(PREFIX) :], keep_blank_values=True, max_num_fields=50)
    except ValueError as error:
        raise RefusalError(f"the line cannot be read: {shown(error, 100)}", hint) from None
    for key, value in pairs:
        if key in told:
            raise RefusalError(f"{shown(key, 40)} stands twice in the line", hint)
        if key in _FORMS and not re.fullmatch(_FORMS[key][0], value, re.ASCII):
            raise RefusalError(f"{key}={shown(value, 80)}: expected {_FORMS[key][1]}", hint)
        told[key] = value
    for key in _NEEDED:
        if key not in told:
            raise RefusalError(f"{key} is missing: expected {_FORMS[key][1]}", hint)
    return Machine(
        platform=told["platform"],
        python=told["python"],
        torch=told.get("torch", ""),
        cuda=told.get("cuda", ""),
        driver=told.get("driver", ""),
        gpus=tuple(one for one in told.get("gpu", "").split(",") if one),
    )
