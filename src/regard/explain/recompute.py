"""Values of a symbol, recomputed in float64 from the arrays of a run: `recompute(trace, node.symbol)`.

For symbols that have no name and so no array in the trace, and for the values that an edited node had without the edit.
"""

from typing import Any

import numpy as np

from regard.explain.trace import Trace
from regard.nn.operation import Symbol


def recompute(trace: Trace, x: Symbol) -> Any:
    """The result of its operation on its operands, without edits of the symbol itself."""
    assert x.op is not None
    return x.op.run(*(None if y is None else values_of(trace, y) for y in x.inputs), **x.facts)


def values_of(trace: Trace, x: Symbol) -> Any:
    """Its array in the run, or recomputed if it has none."""
    if x.data is not None:
        return x.data
    if x.name:
        X = trace[x.name].astype(np.float64)
        transposed = x.op is None and trace.declared[x.name].transposed  # operations take matrices as stored
        return X.T if transposed else X
    if x.row_of is not None:
        node, row = x.row_of
        return trace[node.name][row].astype(np.float64)
    return recompute(trace, x)
