"""The module of flash-attn-stable that takes the place of upstream's extension, over a torch that
is none: what it makes of a torch, a library and a driver that it does not work with.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pipelines.core.paths import PACKAGE

MODULE = PACKAGE / "recipes/flash-attn-stable/flash_attn_2_cuda/__init__.py"
Load = Callable[..., dict[str, Any]]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Runs the module with a torch of that release, as it is imported; its names."""

    def run(
        release: str = "2.11.0+cu130",
        cuda: str | None = "13.0",
        fails: Exception | None = None,
        driver: int = 13000,
    ) -> dict[str, Any]:
        def loaded(path: str) -> None:
            if fails:
                raise fails

        def versions(driver_at: Any, runtime_at: Any, text: Any) -> int:
            driver_at._obj.value, runtime_at._obj.value = driver, 13000
            return 0

        torch = ModuleType("torch")
        same = lambda name: lambda function: function  # noqa: E731
        operator = SimpleNamespace(default=lambda *given: ("out", "lse", "mask", "rng", given))
        operators = ("fwd", "varlen_fwd", "bwd", "varlen_bwd", "fwd_kvcache")
        calls = SimpleNamespace(**dict.fromkeys(operators, operator))
        torch.__dict__.update(
            __version__=release,
            version=SimpleNamespace(cuda=cuda),
            Tensor=object,
            Generator=object,
            ops=SimpleNamespace(load_library=loaded, flash_attn_2_cuda=calls),
            library=SimpleNamespace(register_fake=same),
        )
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(
            ctypes, "CDLL", lambda path: SimpleNamespace(flash_cuda_versions=versions)
        )
        names: dict[str, Any] = {"__file__": str(MODULE), "__name__": "flash_attn_2_cuda"}
        exec(compile(MODULE.read_text("utf-8"), str(MODULE), "exec"), names)  # noqa: S102
        return names

    return run


@pytest.mark.parametrize(
    ("torch_here", "words"),
    [
        ({"release": "2.9.1+cu128"}, ("2.10", "2.9.1")),
        ({"release": "1.13.0"}, ("2.10", "1.13.0")),
        ({"release": "2.11.0+cpu", "cuda": None}, ("torch for CUDA", "2.11.0+cpu")),
        ({"fails": OSError("[WinError 127] no such procedure")}, ("WinError 127", "2.11.0")),
        ({"driver": 12080}, ("driver", "12.8")),
    ],
    ids=["torch-2.9", "torch-1", "cpu", "library", "driver"],
)
def test_what_it_does_not_work_with_is_an_import_error(
    load: Load, torch_here: dict[str, Any], words: tuple[str, ...]
) -> None:
    """ComfyUI and others catch that alone: an OSError would end them."""
    with pytest.raises(ImportError) as caught:
        load(**torch_here)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("driver", [0, 13000, 13020, 14000])
def test_other_drivers_are_taken(load: Load, driver: int) -> None:
    """None at all as well: an image is made on a machine without a GPU."""
    assert "fwd" in load(driver=driver)


@pytest.mark.parametrize("release", ["2.10.0", "2.13.0a0+git1234", "3.0.1"])
def test_every_later_torch_is_taken(load: Load, release: str) -> None:
    assert "fwd" in load(release=release)


def test_arguments_are_counted_and_generators_refused(load: Load) -> None:
    fwd = load()["fwd"]
    given = ("q", "k", "v", None, "slopes", 0.0, 1.0, True, -1, -1, 0.0, False)
    *_, passed = fwd(*given, None)
    assert passed == ("q", "k", "v", *given[4:])
    with pytest.raises(TypeError, match="argument"):
        fwd(*given)
    with pytest.raises(TypeError, match="gen"):
        fwd(*given, object())
