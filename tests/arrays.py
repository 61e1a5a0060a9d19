"""Numbers compared, whichever library holds them."""

from typing import Any

import numpy as np


def equal(a: Any, b: Any) -> bool:
    """To the bit."""
    return np.array_equal(np.asarray(a), np.asarray(b))


def close(a: Any, b: Any, *, rtol: float = 1.3e-6, atol: float = 1e-5, equal_nan: bool = False) -> None:
    """Within the tolerances of float32 unless told."""
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol, equal_nan=equal_nan)
