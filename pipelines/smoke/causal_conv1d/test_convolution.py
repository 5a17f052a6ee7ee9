"""Forward, backward and the steps of a decoder; how exact is in :mod:`convolving`."""

from __future__ import annotations

import pytest
from smoke_batches import Record

pytestmark = pytest.mark.usefixtures("gpu")

dtypes = pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
widths = pytest.mark.parametrize("width", [2, 3, 4])
layouts = pytest.mark.parametrize("channel_last", [False, True], ids=["rows_last", "channel_last"])
#: One vector load, none, several chunks, and seven columns or one behind them (behind the third of
#: float32 alone: 1537), for which the backward pass as released forgets what came before:
#: ``columns-before-a-chunk.patch``.
ROWS = (8, 151, 1024, 1031, 1537, 2049)


@layouts
@pytest.mark.parametrize("rows", ROWS)
@widths
@dtypes
def test_forward_and_backward(
    dtype: str, width: int, rows: int, channel_last: bool, record_property: Record
) -> None:
    """The answer, and the gradients of x, weight and bias."""
    import convolving
    from causal_conv1d import causal_conv1d_fn

    given = convolving.Problem(dtype, width, rows, channel_last=channel_last).inputs()
    out = causal_conv1d_fn(*given, activation="silu")
    convolving.verdict(convolving.shares(out, given, silu=True), record_property)


@pytest.mark.parametrize("silu", [False, True], ids=["linear", "silu"])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("rows", [300, 2049])
@widths
def test_without_bias_and_activation(
    width: int, rows: int, bias: bool, silu: bool, record_property: Record
) -> None:
    """What a function leaves out must not be there, nor in a gradient: no bias, no SiLU."""
    import convolving
    from causal_conv1d import causal_conv1d_fn

    given = convolving.Problem("fp16", width, rows, bias=bias).inputs(1)
    out = causal_conv1d_fn(*given, activation="silu" if silu else None)
    convolving.verdict(convolving.shares(out, given, silu=silu), record_property)


@pytest.mark.parametrize("rows", [300, 2049])
@dtypes
def test_weights_of_the_same_type(dtype: str, rows: int, record_property: Record) -> None:
    """Each pair of types is a kernel of its own."""
    import convolving
    from causal_conv1d import causal_conv1d_fn

    x, *others = convolving.Problem(dtype, 4, rows).inputs(2)
    given = [x, *(one.detach().to(x.dtype).requires_grad_() for one in others)]
    out = causal_conv1d_fn(*given, activation="silu")
    convolving.verdict(convolving.shares(out, given, silu=True), record_property)


@pytest.mark.parametrize("rows", [8, 130, 515])
@widths
@dtypes
def test_sequences_do_not_mix(dtype: str, width: int, rows: int, record_property: Record) -> None:
    """Several sequences in one row: none sees what is before its own beginning, nor does a
    gradient."""
    import convolving
    import torch
    from causal_conv1d import causal_conv1d_fn

    problem = convolving.Problem(dtype, width, rows, channel_last=True)
    given = problem.inputs(3)
    source = torch.Generator().manual_seed(rows)
    begins = torch.rand(problem.batch, rows, generator=source) < 0.15
    sequences = begins.cumsum(1).to("cuda", torch.int32)
    out = causal_conv1d_fn(*given, seq_idx=sequences, activation="silu")
    errors = convolving.shares(out, given, silu=True, sequences=sequences)
    convolving.verdict(errors, record_property)


@pytest.mark.parametrize("cut", [1, 64, 200])
@widths
@dtypes
def test_a_sequence_in_two_parts(dtype: str, width: int, cut: int, record_property: Record) -> None:
    """The state that the first part leaves is what the second one goes on from."""
    import convolving
    import torch
    from causal_conv1d import causal_conv1d_fn

    problem = convolving.Problem(dtype, width, 256, channel_last=True)
    x, weight, bias = (one.detach() for one in problem.inputs(4))
    before = torch.randn(2, width - 1, 64, device="cuda").to(x.dtype).transpose(1, 2)
    head, state = causal_conv1d_fn(
        x[:, :, :cut], weight, bias, initial_states=before, return_final_states=True
    )
    tail = causal_conv1d_fn(x[:, :, cut:], weight, bias, initial_states=state)
    exact = convolving.convolved(x, weight, bias, before=before)
    assert torch.equal(state, torch.cat([before, x[:, :, :cut]], 2)[:, :, -(width - 1) :])
    errors = {"head": convolving.share(head, exact[:, :, :cut])}
    errors["tail"] = convolving.share(tail, exact[:, :, cut:])
    convolving.verdict(errors, record_property)


@pytest.mark.parametrize("ring", [False, True], ids=["shifted", "ring"])
@pytest.mark.parametrize("longer", [0, 3], ids=["exact_state", "longer_state"])
@widths
@dtypes
def test_a_decoder_steps_through(
    dtype: str, width: int, longer: int, ring: bool, record_property: Record
) -> None:
    """Column by column the state gives what the whole sequence gives; a ring keeps its place."""
    import convolving
    import torch
    from causal_conv1d import causal_conv1d_update

    x, weight, bias = (one.detach() for one in convolving.Problem(dtype, width, 20).inputs(5))
    length = width - 1 + longer
    state = torch.zeros(2, 64, length, device="cuda", dtype=x.dtype)
    seen = torch.zeros(2, dtype=torch.int32, device="cuda")
    steps = []
    for at in range(20):
        place = seen + at if ring else None
        steps.append(
            causal_conv1d_update(x[:, :, at], state, weight, bias, "silu", cache_seqlens=place)
        )
    exact = convolving.convolved(x, weight, bias, silu=True)
    errors = {"out": convolving.share(torch.stack(steps, 2), exact)}
    convolving.verdict(errors, record_property)
    last = x[:, :, 20 - length :]
    if ring:
        last = torch.roll(last, 20 % length, 2)
    assert torch.equal(state, last)


def test_states_are_chosen_by_their_numbers(record_property: Record) -> None:
    """Of a larger set of states those that are named change, and no other."""
    import convolving
    import torch
    from causal_conv1d import causal_conv1d_update

    x, weight, bias = (one.detach() for one in convolving.Problem("fp16", 4, 1).inputs(6))
    states = torch.randn(7, 64, 3, device="cuda").half()
    kept, chosen = states.clone(), torch.tensor([5, 2], dtype=torch.int32, device="cuda")
    out = causal_conv1d_update(x[:, :, 0], states, weight, bias, conv_state_indices=chosen)
    exact = convolving.convolved(x, weight, bias, before=kept[chosen.long()])
    convolving.verdict({"out": convolving.share(out[:, :, None], exact)}, record_property)
    same = [number for number in range(7) if torch.equal(states[number], kept[number])]
    assert same == [0, 1, 3, 4, 6]


def test_a_width_that_there_is_not() -> None:
    """It is refused in words, and the next call works."""
    import torch
    from causal_conv1d import causal_conv1d_fn

    x = torch.ones(1, 8, 16, device="cuda")
    with pytest.raises(RuntimeError, match="width between 2 and 4"):
        causal_conv1d_fn(x, torch.ones(8, 5, device="cuda"))
    out = causal_conv1d_fn(x, torch.ones(8, 2, device="cuda"))
    assert torch.equal(out[0, 0, :3].cpu(), torch.tensor([1.0, 2.0, 2.0]))
