"""What a wheel of fused-lncc computes, against the same in float64: a user's own tests of it."""

import pytest


@pytest.fixture
def volumes(gpu):
    """Two of a shape that have something in common; on the GPU, from one seed."""
    import torch

    def make(shape, dtype="float32"):
        random = torch.Generator().manual_seed(sum(shape))
        first = torch.randn(shape, generator=random)
        other = 0.7 * first + 0.3 * torch.randn(shape, generator=random) + 0.5
        return tuple(one.to(getattr(torch, dtype)).cuda() for one in (first, other))

    return make


def correlated(first, other, size, floor=1e-5):
    """Squared correlation in a cube about each voxel, zeros outside, in float64 on the CPU."""
    import torch

    channels = first.shape[1]
    ones = torch.ones(channels, 1, *3 * (size,), dtype=torch.float64)

    def summed(values):
        return torch.nn.functional.conv3d(values, ones, padding=size // 2, groups=channels)

    n = size**3
    sums = summed(first), summed(other)
    cross = summed(first * other) - sums[0] * sums[1] / n
    spread = [
        (summed(one * one) - total * total / n).clamp(min=0) + floor
        for one, total in zip((first, other), sums, strict=True)
    ]
    return (cross * cross / (spread[0] * spread[1])).clamp(max=1)


@pytest.mark.parametrize("size", [3, 5, 7, 9])
@pytest.mark.parametrize("shape", [(1, 1, 8, 8, 8), (2, 3, 9, 17, 11), (1, 2, 3, 40, 5)])
def test_each_voxel(volumes, shape, size):
    import fused_lncc
    import torch

    first, other = volumes(shape)
    flat = [one.reshape(-1, *shape[2:]).contiguous() for one in (first, other)]
    made = fused_lncc._ext.lncc_forward(*flat, size, 1e-5)[0].cpu().double().reshape(shape)
    wanted = correlated(first.cpu().double(), other.cpu().double(), size)
    torch.testing.assert_close(made, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [3, 7])
@pytest.mark.parametrize("shape", [(1, 1, 8, 8, 8), (2, 3, 9, 17, 11)])
def test_loss_and_gradient(volumes, shape, size, dtype):
    import fused_lncc

    first, other = volumes(shape, dtype)
    first.requires_grad_()
    loss = fused_lncc.fused_lncc_loss(first, other, size)
    loss.backward()
    exact = first.detach().cpu().double().requires_grad_()
    wanted = 1 - correlated(exact, other.cpu().double(), size).mean()
    wanted.backward()
    assert abs(loss.item() - wanted.item()) < 2e-5
    most = exact.grad.abs().max().item()
    coarse = 2**-8 if dtype == "bfloat16" else 0  # what rounding the answer costs
    off = (first.grad.cpu().double() - exact.grad).abs()
    assert (off <= 5e-4 * most + coarse * exact.grad.abs()).all(), off.max().item() / most


def test_what_it_does_not_know_is_refused(volumes):
    import fused_lncc

    first, other = volumes((1, 1, 8, 8, 8))
    with pytest.raises(AssertionError, match="odd"):
        fused_lncc.fused_lncc_loss(first, other, 4)
    with pytest.raises(RuntimeError, match="float32 or bfloat16"):
        fused_lncc.fused_lncc_loss(first.half(), other.half(), 3)
    with pytest.raises(RuntimeError, match="CUDA tensor"):
        fused_lncc.fused_lncc_loss(first.cpu(), other.cpu(), 3)
