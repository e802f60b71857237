"""Contract of every registered operator on the table of cases: one check per promise."""

from __future__ import annotations

import pytest
from contract_cases import OPERATORS, runners

from mxrun.contract.check import CHECKS
from mxrun.operator.register import OPERATORS as REGISTERED

CHECK_OF = {check.name: check for check in CHECKS}
every_operator = pytest.mark.parametrize("operator", OPERATORS)


def keeps(operator: str, *names: str) -> None:
    """Assert that the named checks find no violation in any case of an operator."""
    for name in names:
        problems = [str(problem) for problem in CHECK_OF[name].problems(runners(operator))]
        assert not problems, "\n".join([f"{operator} breaks {name!r}", *problems[:5]])


def test_F8_every_operator_has_cases() -> None:
    unchecked = {name for name in REGISTERED if REGISTERED.get(name).unchecked}
    assert set(REGISTERED) - set(OPERATORS) == unchecked


@pytest.mark.sparse
@every_operator
def test_O11_calls_end_within_their_tensors(operator: str) -> None:
    keeps(operator, "names", "calls")


@every_operator
def test_O1_gradients_are_the_derivative(operator: str) -> None:
    keeps(operator, "gradients")


@pytest.mark.sparse
@every_operator
def test_O3_O4_O6_every_mix_of_forward_requests(operator: str) -> None:
    keeps(operator, "forward requests")


@pytest.mark.sparse
@every_operator
def test_O3_O4_O6_O7_every_mix_of_backward_requests(operator: str) -> None:
    keeps(operator, "backward requests")


@pytest.mark.sparse
@every_operator
def test_O5_P8_P9_in_place_gives_the_bits_of_write(operator: str) -> None:
    keeps(operator, "hints", "forward in place", "backward in place")


@pytest.mark.sparse
@every_operator
def test_O8_nothing_is_allocated_that_is_not_planned(operator: str) -> None:
    assert not CHECK_OF["allocations"].missing()
    keeps(operator, "allocations")


@every_operator
def test_P1_P2_P3_inference_is_complete_and_never_false(operator: str) -> None:
    keeps(operator, "shapes", "knowing nothing", "types")


@pytest.mark.sparse
@every_operator
def test_P7_backward_reads_what_it_declares(operator: str) -> None:
    keeps(operator, "undeclared inputs")


@every_operator
def test_S5_tensors_lie_within_larger_ones(operator: str) -> None:
    keeps(operator, "larger tensors")


@every_operator
def test_P10_P15_parameters_round_trip_and_are_documented(operator: str) -> None:
    keeps(operator, "parameters", "documentation", "costs")


@pytest.mark.sparse
@every_operator
def test_P12_implementations_and_types_agree(operator: str) -> None:
    keeps(operator, "implementations", "element types")


@pytest.mark.sparse
@every_operator
def test_L1_bodies_are_stateless_and_repeat_themselves(operator: str) -> None:
    keeps(operator, "repetition", "shared body")


@pytest.mark.sparse
@every_operator
def test_R1_random_numbers_are_of_the_operators_stream(operator: str) -> None:
    keeps(operator, "random numbers", "steps")


@every_operator
def test_losses_are_one_number_and_weight_zero_is_silence(operator: str) -> None:
    keeps(operator, "losses")
