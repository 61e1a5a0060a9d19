"""Gates of all tokens against the states that they make, and the states against PyTorch's own GRU."""

from typing import Any

import pytest
import torch

import regard
from arrays import close
from regard.errors import TaskError
from regard.explain import lens

SOURCE, TARGET = [5, 9, 17, 23, 8, 2], [2, 11, 31, 7]


@pytest.mark.parametrize("node", ["encoder.reader.H", "decoder.states"])
def test_gates_make_the_states(saved, node):
    trace = regard.load(saved("gru")).trace(SOURCE, TARGET)
    found = lens.gates(trace, node)
    states = trace[node]
    close((1 - found.z) * found.n + found.z * found.before, states, atol=1e-6, rtol=1e-5)


def test_gates_are_those_of_pytorchs_gru(saved):
    """The states and, through them, every gate: PyTorch's own GRU, given the weights, reads and writes the same."""
    model = regard.load(saved("gru"))
    trace, net = model.trace(SOURCE, TARGET), model.net
    X, hidden = trace.tensor("encoder.embed.out"), trace.shape("encoder.reader.H")[1] // 2
    gru = torch.nn.GRU(X.shape[1], hidden, batch_first=True, bidirectional=True)
    reader = {name.removeprefix("encoder.reader.gru."): p for name, p in net.named_parameters() if ".gru." in name}
    gru.load_state_dict(reader)
    close(gru(X[None])[0][0].detach(), trace.tensor("encoder.reader.H"), atol=1e-6, rtol=1e-5)
    cell = torch.nn.GRUCell(X.shape[1] + 2 * hidden, hidden)
    module: Any = net
    cell.load_state_dict(module.decoder.cell.state_dict())
    given = torch.cat([trace.tensor("decoder.embed.out"), trace.tensor("decoder.cross.Z")[0]], -1)
    before = torch.from_numpy(lens.gates(trace, "decoder.states").before).float()
    close(cell(given, before).detach(), trace.tensor("decoder.states"), atol=1e-6, rtol=1e-5)


def test_a_transformer_has_no_gates(saved):
    trace = regard.load(saved("gpt2")).trace(SOURCE)
    with pytest.raises(TaskError, match="a recurrent network's"):
        lens.gates(trace, "decoder.states")
