"""torch.compile: one graph per block, without a graph break, and still traceable while training."""

import pytest
import torch

from regard.model.build import Network, build
from regard.model.init import initialise
from regard.model.registry import spec_of
from regard.train.loop import blocks_of
from regard.train.probe import attention_of
from regard.train.settings import TrainSettings
from regard.train.task import task_named
from regard.train.tokenizer import SPECIALS, train_tokenizer


def network(task: str) -> Network:
    tokenizer = train_tokenizer("bpe", ["a b c d"] * 3, 300, SPECIALS[task])
    settings = TrainSettings(task, layers=2, width=16, heads=2, d_ff=24, block_size=16, dropout=0.0)
    config = {key: value for key, value in task_named(task)(settings, tokenizer).config().items() if value is not None}
    net = build(spec_of(config))
    initialise(net, 0)
    return net.eval()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of PyTorch, about itself
@pytest.mark.parametrize("task", ["lm", "translate"])
def test_compiled_blocks_have_no_graph_breaks_and_give_the_same_numbers(task: str) -> None:
    net = network(task)
    ids = torch.arange(16).view(2, 8) + 5
    given = (ids, ids.flip(1)) if task == "translate" else (ids,)
    probe = [each[0].tolist() for each in given]
    plain, attention = net(*given), attention_of(net, probe)
    torch._dynamo.reset()
    for block in blocks_of(net):
        block.compile(backend="eager", fullgraph=True)  # a break would be an error
    torch.testing.assert_close(net(*given), plain, rtol=0, atol=1e-6)
    seen = attention_of(net, probe)
    assert list(seen) == list(attention)
    for name, A in attention.items():
        torch.testing.assert_close(seen[name], A, rtol=0, atol=1e-6)
    torch._dynamo.reset()
