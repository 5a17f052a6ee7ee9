"""What a wheel of isoext draws, against geometry in float64: a user's own tests of it.

A field is sampled on points from -1 to 1; what comes back are the corners of triangles and three
corners for each.
"""

from collections import Counter

import numpy
import pytest

RADIUS = 0.7931  # no point of the grids below is on the sphere
SUM = 0.31  # of a plane's coordinates: none there either
SHAPES = [(64, 64, 64), (65, 48, 80)]
TABLES = ["vega", "lewiner", "nagae", "lorensen"]
EXACT = [("marching_cubes", {"method": table}) for table in TABLES] + [("marching_tetrahedra", {})]
WAYS = [
    *EXACT,
    *[("dual_marching_cubes", {"method": table}) for table in TABLES],
    ("dual_contouring", {"method": "ju"}),
    ("dual_contouring", {"method": "carrera"}),
    ("surface_nets", {}),
]


def sphere(points):
    return points.norm(dim=-1) - RADIUS


def plane(points):
    return points.sum(dim=-1) - SUM


def drawn(grid, way, options):
    import isoext

    corners, triangles = getattr(isoext, way)(grid, **options)
    return corners.double().cpu().numpy(), triangles.long().cpu().numpy()


def sampled(field, shape):
    import isoext

    grid = isoext.UniformGrid(list(shape))
    points = grid.get_points()
    at = [numpy.linspace(-1, 1, count) for count in shape]
    wanted = numpy.stack(numpy.meshgrid(*at, indexing="ij"), axis=-1)
    numpy.testing.assert_allclose(points.cpu().numpy(), wanted, atol=1e-6)
    grid.set_values(field(points))
    return grid


def measures(corners, triangles):
    """Area and volume; the second is of a closed surface."""
    one, two, three = (corners[triangles[:, at]] for at in range(3))
    area = numpy.linalg.norm(numpy.cross(two - one, three - one), axis=1).sum() / 2
    return area, abs((numpy.cross(one, two) * three).sum() / 6)


def is_a_sphere(corners, triangles, cell):
    """Closed, with Euler's characteristic of a sphere, and where the sphere is.

    Which side is outside is the package's own to say: it may be inside out.
    """
    used = numpy.unique(triangles)
    ways = Counter(map(tuple, triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2).tolist()))
    assert {*ways.values()} == {1}  # of two triangles at an edge each goes along it its own way
    assert ways.keys() == {(end, begin) for begin, end in ways}
    assert len(used) - len(ways) / 2 + len(triangles) == 2  # Euler's characteristic
    assert numpy.abs(numpy.linalg.norm(corners[used], axis=1) - RADIUS).max() < cell / 4
    area, volume = measures(corners, triangles)
    numpy.testing.assert_allclose(area, 4 * numpy.pi * RADIUS**2, rtol=0.02)
    numpy.testing.assert_allclose(volume, 4 / 3 * numpy.pi * RADIUS**3, rtol=0.02)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("way", "options"), WAYS)
def test_sphere(gpu, way, options, shape):
    is_a_sphere(*drawn(sampled(sphere, shape), way, options), cell=2 / (min(shape) - 1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("way", "options"), EXACT)
def test_plane_to_the_edge_of_the_grid(gpu, way, options, shape):
    """Between two samples of a plane nothing is guessed: a hexagon, exactly."""
    corners, triangles = drawn(sampled(plane, shape), way, options)
    numpy.testing.assert_allclose(corners[numpy.unique(triangles)].sum(axis=1), SUM, atol=1e-5)
    area, _ = measures(corners, triangles)
    numpy.testing.assert_allclose(area, numpy.sqrt(3) * (3 - SUM**2), rtol=1e-4)


@pytest.mark.parametrize(("way", "options"), [EXACT[0], ("surface_nets", {})])
def test_cells_that_the_surface_crosses_are_enough(gpu, way, options):
    import isoext

    shape = (64, 64, 64)
    grid = isoext.SparseGrid(list(shape))
    for cells in grid.get_potential_cell_indices(64**3):
        values = sphere(grid.get_points_by_cell_indices(cells))
        grid.add_cells(grid.filter_cell_indices(cells, values, level=0.0))
    assert 0 < grid.get_num_cells() < 63**3 / 10
    grid.set_values(sphere(grid.get_points()))
    is_a_sphere(*drawn(grid, way, options), cell=2 / 63)


@pytest.mark.parametrize("sign", ["winding", "parity"])
def test_distance_to_the_triangles_of_a_box(gpu, sign):
    import torch
    from isoext.sdf import TriangleMeshSDF

    half = numpy.array([0.5, 0.3, 0.7])
    corners = numpy.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    triangles = [three for a, b, c, d in sides for three in ((a, b, c), (a, c, d))]
    random = torch.Generator().manual_seed(5)
    points = torch.rand(4096, 3, generator=random) * 2 - 1
    box = TriangleMeshSDF(
        torch.tensor(corners, dtype=torch.float32, device="cuda"),
        torch.tensor(triangles, dtype=torch.int32, device="cuda"),
        sign=sign,
    )
    made = box(points.cuda()).double().cpu().numpy()
    beyond = numpy.abs(points.double().numpy()) - half
    outside = numpy.linalg.norm(numpy.maximum(beyond, 0), axis=1)
    wanted = outside + numpy.minimum(beyond.max(axis=1), 0)
    assert (wanted < 0).any()
    numpy.testing.assert_allclose(made, wanted, atol=1e-5)
