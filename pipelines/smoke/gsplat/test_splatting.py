"""Whole pictures and their gradients, and the steps on the way; how exact is in
:mod:`splatting`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from smoke_batches import Record

if TYPE_CHECKING:
    import torch
    from splatting import Scene

pytestmark = pytest.mark.usefixtures("gpu")


def rasterized(of: Scene, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The package's own."""
    from gsplat import rasterization

    leaves = (of.means, of.quats, of.scales, of.opacities, of.colors)
    color, alpha, _ = rasterization(*leaves, of.views, of.ks, of.width, of.height, **more)
    return color, alpha


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("size", [(64, 64), (90, 45), (17, 130)], ids=["even", "odd", "tall"])
def test_picture_and_gradients(
    size: tuple[int, int], packed: bool, record_property: Record
) -> None:
    """Sizes that fill their tiles and that do not; gradients of all that a Gaussian is."""
    import splatting
    import torch

    of = splatting.scene(300, *size)
    leaves = of.leaves()
    color, alpha = rasterized(of, packed=packed)
    exact, cover = splatting.drawn(of)
    errors = splatting.compare_pixels(color, exact)
    errors |= {f"alpha_{name}": v for name, v in splatting.compare_pixels(alpha, cover).items()}
    source = torch.Generator(device="cuda").manual_seed(9)
    direction = torch.randn(color.shape, generator=source, device="cuda")
    loss, wanted = (color * direction).sum(), (exact * direction).sum()
    got = dict(zip(leaves, torch.autograd.grad(loss, leaves.values()), strict=True))
    want = dict(zip(leaves, torch.autograd.grad(wanted, leaves.values()), strict=True))
    splatting.verdict(errors | splatting.compare_gradients(got, want), record_property)


@pytest.mark.parametrize("channels", [1, 4, 8, 16, 32])
def test_numbers_of_channels(channels: int, record_property: Record) -> None:
    """Each is a kernel of its own."""
    import splatting
    import torch

    of = splatting.scene(150, 48, 33, channels=channels, seed=channels)
    leaves = of.leaves()
    color, _ = rasterized(of)
    exact, _ = splatting.drawn(of)
    errors = splatting.compare_pixels(color, exact)
    got = dict(zip(leaves, torch.autograd.grad(color.sum(), leaves.values()), strict=True))
    want = dict(zip(leaves, torch.autograd.grad(exact.sum(), leaves.values()), strict=True))
    splatting.verdict(errors | splatting.compare_gradients(got, want), record_property)


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_cameras(packed: bool, record_property: Record) -> None:
    """Each camera has its own picture."""
    import splatting

    of = splatting.scene(200, 64, 48, cameras=3, seed=5)
    color, _ = rasterized(of, packed=packed)
    exact, _ = splatting.drawn(of)
    splatting.verdict(splatting.compare_pixels(color, exact), record_property)
    assert (color[0] - color[1]).abs().max() > 0.1, "the cameras see the same"


def test_a_background(record_property: Record) -> None:
    """What is not covered shows it. Not packed: there 1.5.3 refuses what its documentation asks
    for, a color for each camera (https://github.com/nerfstudio-project/gsplat/issues/764)."""
    import splatting
    import torch

    of = splatting.scene(200, 64, 48, cameras=3, seed=5)
    background = torch.tensor([0.2, 0.7, 0.4], device="cuda")
    color, _ = rasterized(of, backgrounds=background.repeat(3, 1), packed=False)
    exact, _ = splatting.drawn(of, background)
    splatting.verdict(splatting.compare_pixels(color, exact), record_property)


@pytest.mark.parametrize("spread", [1.0, 0.3], ids=["everywhere", "middle"])
def test_many_of_them_in_one_place(spread: float, record_property: Record) -> None:
    """A thousand and more before each tile: they are fetched in batches of 256, and light runs
    out: in most pixels, or in those of the middle alone."""
    import splatting

    of = splatting.scene(3000, 32, 32, seed=6)
    of.means.data.mul_(spread)
    color, alpha = rasterized(of)
    exact, cover = splatting.drawn(of)
    errors = splatting.compare_pixels(color, exact)
    errors |= {f"alpha_{name}": v for name, v in splatting.compare_pixels(alpha, cover).items()}
    splatting.verdict(errors, record_property)
    out = (cover > 0.999).double().mean()
    assert out > (0.9 if spread == 1 else 0.2), "light was to run out"


def test_depth_is_that_of_the_means(record_property: Record) -> None:
    """The expected depth of a pixel, by the same weights."""
    import splatting

    of = splatting.scene(200, 40, 40, seed=7)
    depth, _ = rasterized(of, render_mode="D")
    _, _, z, _ = splatting.projected(of, 0)
    far = splatting.Scene(**{**vars(of), "colors": z.float()[:, None]})
    exact, _ = splatting.drawn(far)
    scale = z.abs().max()
    splatting.verdict(splatting.compare_pixels(depth / scale, exact / scale), record_property)


def test_nothing_in_sight() -> None:
    """All behind the camera: black, and no crash."""
    import splatting

    of = splatting.scene(50, 32, 32)
    of.means.data[:, 2] = -20.0
    color, alpha = rasterized(of)
    assert not color.any()
    assert not alpha.any()


def test_covariances(record_property: Record) -> None:
    """Of quaternions of any length, with their gradients."""
    import splatting
    import torch
    from gsplat import quat_scale_to_covar_preci

    of = splatting.scene(500, 8, 8, seed=8)
    quats, scales = of.quats.requires_grad_(), of.scales.requires_grad_()
    own, inverse = quat_scale_to_covar_preci(quats, scales)
    want = splatting.covariances(quats.double(), scales.double())
    assert torch.allclose(own.double(), want, rtol=1e-4, atol=1e-6)
    unit = torch.eye(3, device="cuda", dtype=torch.float64)
    assert (want @ inverse.double() - unit).abs().max() < 5e-2
    direction = torch.randn_like(own)
    leaves = {"quats": quats, "scales": scales}
    got = torch.autograd.grad((own * direction).sum(), (quats, scales))
    exact = torch.autograd.grad((want * direction).sum(), (quats, scales))
    errors = splatting.compare_gradients(
        dict(zip(leaves, got, strict=True)), dict(zip(leaves, exact, strict=True))
    )
    splatting.verdict(errors, record_property)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_spherical_harmonics(degree: int) -> None:
    """The real ones up to the second degree, as they are written in Cartesian coordinates."""
    import inspect
    import math

    import torch
    from gsplat import spherical_harmonics

    source = torch.Generator().manual_seed(degree)
    directions = torch.randn(200, 3, generator=source).cuda()
    coefficients = torch.randn(200, 9, 3, generator=source).cuda()
    x, y, z = torch.nn.functional.normalize(directions.double(), dim=-1).unbind(-1)
    half = math.sqrt(15 / math.pi) / 2
    one = math.sqrt(3 / (4 * math.pi))
    basis = [
        torch.full_like(x, 0.5 / math.sqrt(math.pi)),
        *(-one * y, one * z, -one * x),
        half * x * y,
        -half * y * z,
        math.sqrt(5 / math.pi) / 4 * (3 * z * z - 1),
        -half * x * z,
        half / 2 * (x * x - y * y),
    ][: (degree + 1) ** 2]
    want = sum(
        value[:, None] * coefficients.double()[:, number] for number, value in enumerate(basis)
    )
    # Since 1.6 it takes positions and cameras: from one at the origin the directions are the same.
    since_1_6 = "viewmats" in inspect.signature(spherical_harmonics).parameters
    cameras = [torch.eye(4, device="cuda")[None]] if since_1_6 else []
    got = spherical_harmonics(degree, directions, *cameras, coefficients)
    assert torch.allclose(got.double(), want, rtol=1e-4, atol=1e-5)
