"""Gates of all tokens at once against the rule that explains one unit, and against the states that they make."""

import pytest
import torch

import regard
from regard.errors import TaskError
from regard.explain import lens, recurrent

SOURCE, TARGET = [5, 9, 17, 23, 8, 2], [2, 11, 31, 7]


@pytest.mark.parametrize("node", ["encoder.reader.H", "decoder.states"])
def test_gates_make_the_states_and_are_those_of_why(saved, node):
    trace = regard.load(saved("gru")).trace(SOURCE, TARGET)
    found = lens.gates(trace, node)
    states = trace[node].double()
    torch.testing.assert_close((1 - found.z) * found.n + found.z * found.before, states, atol=1e-6, rtol=1e-5)
    for i in range(len(states)):
        for unit in range(0, states.shape[1], 3):
            one = recurrent.gates(trace, node, i, unit)
            expected = torch.tensor([one.r, one.z, one.n, one.old], dtype=torch.float64)
            own = torch.stack([found.r[i, unit], found.z[i, unit], found.n[i, unit], found.before[i, unit]])
            torch.testing.assert_close(own, expected, atol=1e-12, rtol=1e-12)


def test_a_transformer_has_no_gates(saved):
    trace = regard.load(saved("gpt2")).trace(SOURCE)
    with pytest.raises(TaskError, match="a recurrent network's"):
        lens.gates(trace, "decoder.states")
