"""What a wheel of torch-scatter computes, against numpy in float64: a user's own tests of it."""

import numpy
import pytest

SHAPES = [((7,), 0), ((5, 1000), 1), ((300, 17), 0), ((3, 129, 2), 1)]
START = {"sum": 0.0, "mul": 1.0, "min": numpy.inf, "max": -numpy.inf}
TOGETHER = {
    "sum": numpy.add,
    "mul": numpy.multiply,
    "min": numpy.minimum,
    "max": numpy.maximum,
}


def numbers(shape, dim, groups, device):
    """Values, the group of each place along ``dim`` in order, and that for all dimensions."""
    import torch

    random = torch.Generator().manual_seed(sum(shape))
    values = 0.5 + torch.rand(shape, generator=random)
    index = torch.randint(groups, (shape[dim],), generator=random).sort().values
    whole = index.view([-1 if at == dim else 1 for at in range(len(shape))]).expand(shape)
    return values.to(device), index.to(device), whole.to(device)


def grouped(values, index, dim, groups, how):
    """The same by numpy; groups that nothing is in keep what they began with."""
    data = numpy.moveaxis(values.double().cpu().numpy(), dim, 0)
    out = numpy.full((groups, *data.shape[1:]), START[how])
    TOGETHER[how].at(out, index.cpu().numpy(), data)
    return numpy.moveaxis(out, 0, dim)


def same(made, wanted):
    numpy.testing.assert_allclose(made.detach().cpu().double().numpy(), wanted, rtol=2e-5)


def scattered(device, shape, dim, how):
    import torch
    import torch_scatter

    values, index, whole = numbers(shape, dim, 4, device)
    if how == "mul":  # so that a product of many is still a number
        values = values.clamp(0.97, 1.03)
    made = getattr(torch_scatter, f"scatter_{how}")(values, whole, dim, dim_size=4)
    wanted = grouped(values, index, dim, 4, how)
    if isinstance(made, tuple):
        made, places = made
        there = places < values.shape[dim]
        taken = values.gather(dim, places.clamp(max=values.shape[dim] - 1))
        assert torch.equal(taken[there], made[there])
        wanted = numpy.where(numpy.isinf(wanted), 0, wanted)
    same(made, wanted)


def segmented(device, shape, dim, how):
    import torch
    import torch_scatter

    values, index, _ = numbers(shape, dim, 3, device)
    values = values.transpose(0, dim).contiguous()
    counts = torch.bincount(index, minlength=3)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    wanted = grouped(values, index, 0, 3, how)
    wanted = numpy.where(numpy.isinf(wanted), 0, wanted)
    for made in (
        getattr(torch_scatter, f"segment_{how}_csr")(values, starts),
        getattr(torch_scatter, f"segment_{how}_coo")(values, index, dim_size=3),
    ):
        same(made[0] if isinstance(made, tuple) else made, wanted)


def derived(device, shape, dim):
    import torch
    import torch_scatter

    values, index, whole = numbers(shape, dim, 4, device)
    values.requires_grad_()
    weights = torch.arange(1.0, 5.0, device=device)
    along = [-1 if at == dim else 1 for at in range(len(shape))]
    means = torch_scatter.scatter_mean(values, whole, dim, dim_size=4)
    (means * weights.view(along)).sum().backward()
    share = (weights / torch.bincount(index, minlength=4))[index]
    same(values.grad, share.view(along).expand(shape).cpu().double().numpy())


of_shapes = pytest.mark.parametrize(("shape", "dim"), SHAPES)
ways = pytest.mark.parametrize("how", ["sum", "min", "max"])
all_ways = pytest.mark.parametrize("how", ["sum", "mul", "min", "max"])


@of_shapes
@all_ways
def test_scatter(shape, dim, how):
    scattered("cpu", shape, dim, how)


@of_shapes
@all_ways
def test_scatter_on_the_gpu(gpu, shape, dim, how):
    scattered("cuda", shape, dim, how)


@of_shapes
@ways
def test_segments(shape, dim, how):
    segmented("cpu", shape, dim, how)


@of_shapes
@ways
def test_segments_on_the_gpu(gpu, shape, dim, how):
    segmented("cuda", shape, dim, how)


@of_shapes
def test_gradients(shape, dim):
    derived("cpu", shape, dim)


@of_shapes
def test_gradients_on_the_gpu(gpu, shape, dim):
    derived("cuda", shape, dim)


def test_its_libraries_are_those_with_cuda():
    import torch
    import torch_scatter

    assert torch_scatter.cuda_version // 1000 == int(torch.version.cuda.partition(".")[0])
