"""Gaussians drawn from the definition, pixel by pixel in float64, with gradients by autograd.

Imported inside the tests only: this module needs torch.

What is computed is that of Kerbl et al. 2023 (https://arxiv.org/abs/2308.04079), with the numbers
that gsplat documents: 0.3 is added to the variances in the image, an alpha below 1/255 counts for
nothing, and a pixel is done when less than 1e-4 of the light is left. Alphas are also limited to
0.999, and to 0.99 since 1.6: no Gaussian here is that opaque.

**How exact must it be?** The kernels compute in float32 with quick functions: a few 1e-5. Near
1/255 an alpha may fall on the other side, which is seen in a few pixels, by 1/255 at most: so few
are allowed to be that far off, and none further. Gradients are sums over pixels; they are compared
as a whole, relative to their length. A lost tile or a wrong order costs a hundred times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

EPS2D, LEAST, DARK, NEAR = 0.3, 1 / 255, 1e-4, 0.01
#: Errors of a pixel, and the part of them that may be as far off as an alpha that counts or not.
PIXEL, STEP, FEW = 2e-4, 1.5 / 255, 0.002
GRADIENT = 2e-3


@dataclass(frozen=True)
class Scene:
    """Gaussians before cameras; all tensors are float32 on the GPU."""

    means: torch.Tensor
    quats: torch.Tensor
    scales: torch.Tensor
    opacities: torch.Tensor
    colors: torch.Tensor
    views: torch.Tensor
    ks: torch.Tensor
    width: int
    height: int

    def leaves(self) -> dict[str, torch.Tensor]:
        """What gradients are wanted of, by name; they are made to want them."""
        names = ("means", "quats", "scales", "opacities", "colors")
        return {name: getattr(self, name).requires_grad_() for name in names}


def scene(
    count: int, width: int, height: int, *, channels: int = 3, cameras: int = 1, seed: int = 0
) -> Scene:
    """Reproducible: a cloud of unequal ellipsoids, some of them behind the cameras."""
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source)

    views = torch.eye(4).repeat(cameras, 1, 1)
    for number in range(cameras):
        turn = 0.3 * number
        views[number, :3, :3] = torch.tensor(
            [
                [math.cos(turn), 0, math.sin(turn)],
                [0, 1, 0],
                [-math.sin(turn), 0, math.cos(turn)],
            ]
        )
        views[number, 2, 3] = 4.0 + number
    focal = 0.9 * width
    ks = torch.tensor([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    made = (
        normal(count, 3) * torch.tensor([1.2, 1.2, 2.5]),
        normal(count, 4),
        torch.exp(normal(count, 3) * 0.6 - 2.2),
        torch.sigmoid(normal(count)),
        torch.rand(count, channels, generator=source),
        views,
        ks.repeat(cameras, 1, 1),
    )
    return Scene(*(tensor.cuda() for tensor in made), width, height)


def covariances(quats: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``R S S R'`` of quaternions ``(w, x, y, z)`` of any length."""
    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).unbind(-1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    turned = torch.stack([torch.stack(row, -1) for row in rows], -2) * scales[..., None, :]
    return turned @ turned.transpose(-1, -2)


def projected(
    of: Scene, camera: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places in the image, inverse covariances there, depths, and which are before the camera."""
    view, k = of.views[camera].double(), of.ks[camera].double()
    turn = view[:3, :3]
    inside = of.means.double() @ turn.T + view[:3, 3]
    covariance = turn @ covariances(of.quats.double(), of.scales.double()) @ turn.T
    x, y, z = inside.unbind(-1)
    fx, fy, cx, cy = k[0, 0], k[1, 1], k[0, 2], k[1, 2]
    # The slope is held near the image: the projection is linear only where the Gaussian is small.
    over_x, over_y = 0.15 * of.width / fx, 0.15 * of.height / fy
    tx = z * (x / z).clamp(-(cx / fx + over_x), (of.width - cx) / fx + over_x)
    ty = z * (y / z).clamp(-(cy / fy + over_y), (of.height - cy) / fy + over_y)
    zero = torch.zeros_like(z)
    slopes = torch.stack(
        [
            torch.stack([fx / z, zero, -fx * tx / z**2], -1),
            torch.stack([zero, fy / z, -fy * ty / z**2], -1),
        ],
        -2,
    )
    flat = slopes @ covariance @ slopes.transpose(-1, -2)
    flat = flat + EPS2D * torch.eye(2, dtype=flat.dtype, device=flat.device)
    places = torch.stack([fx * x / z + cx, fy * y / z + cy], -1)
    return places, torch.linalg.inv(flat), z, z > NEAR


def drawn(of: Scene, background: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images ``(cameras, height, width, channels)`` and how much of each pixel is covered."""
    images, covers = [], []
    for camera in range(of.views.shape[0]):
        places, inverse, depth, there = projected(of, camera)
        order = torch.argsort(depth.detach())
        order = order[there[order]]
        row, column = torch.meshgrid(
            torch.arange(of.height, device=places.device, dtype=torch.float64) + 0.5,
            torch.arange(of.width, device=places.device, dtype=torch.float64) + 0.5,
            indexing="ij",
        )
        pixels = torch.stack([column, row], -1).reshape(-1, 1, 2)
        off = pixels - places[order]
        near = torch.einsum("pni,nij,pnj->pn", off, inverse[order], off) / 2
        alpha = of.opacities.double()[order] * torch.exp(-near)
        alpha = torch.where(alpha < LEAST, torch.zeros_like(alpha), alpha)
        left = torch.cumprod(1 - alpha, 1)
        before = torch.cat([torch.ones_like(left[:, :1]), left[:, :-1]], 1)
        # The one that would end a pixel is not drawn any more, nor what is behind it.
        weight = alpha * before * (left.detach() > DARK)
        color = weight @ of.colors.double()[order]
        cover = weight.sum(1, keepdim=True)
        if background is not None:
            color = color + (1 - cover) * background.double()
        images.append(color.reshape(of.height, of.width, -1))
        covers.append(cover.reshape(of.height, of.width, 1))
    return torch.stack(images), torch.stack(covers)


def compare_pixels(got: torch.Tensor, want: torch.Tensor) -> dict[str, float]:
    """Shares of what is tolerated: above 1 is wrong."""
    assert got.shape == want.shape
    off = (got.double() - want).abs()
    if not torch.isfinite(off).all():
        return {"finite": math.inf}
    few = (off > PIXEL).double().mean().item() / FEW
    return {"pixels": few, "worst": off.max().item() / STEP}


def compare_gradients(
    got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]
) -> dict[str, float]:
    """The same of gradients, each as a whole."""
    errors = {}
    for name, own in got.items():
        length = want[name].double().norm().item()
        off = (own.double() - want[name].double()).norm().item()
        errors[f"d{name}"] = off / (length * GRADIENT) if math.isfinite(off) else math.inf
    return errors


def verdict(errors: dict[str, float], record: object) -> None:
    """Record every share and fail if one is above 1."""
    for name, value in errors.items():
        record(f"error_of_tolerance.{name}", f"{value:.3f}")  # type: ignore[operator]
    wrong = {name: round(value, 2) for name, value in errors.items() if not value <= 1}
    assert not wrong, f"error as a part of what is tolerated: {wrong}"
