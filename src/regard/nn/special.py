"""The error function on numpy arrays, which numpy lacks.

erfc(z) = t exp(-z² + P(t)) with t = 2/(2 + z) for z ≥ 0, where P is so smooth that 28 Chebyshev polynomials give it to the
last bit of float64 (the form is that of Numerical Recipes; the coefficients were computed with 60 digits).
"""

import numpy as np
from numpy.typing import NDArray

CHEBYSHEV = (
    *(-1.3026537197817094, 0.6419697923564903, 1.9476473204185836e-2, -9.561514786808632e-3, -9.465953444820369e-4),
    *(3.6683949785276145e-4, 4.252332480690777e-5, -2.0278578112534243e-5, -1.6242900046470255e-6),
    *(1.3036558355805232e-6, 1.5626441722066143e-8, -8.523809591492654e-8, 6.529054439098851e-9),
    *(5.059343495551469e-9, -9.91364156493033e-10, -2.273651222931836e-10, 9.646791102015527e-11),
    *(2.3940380830391147e-12, -6.886027526497553e-12, 8.944879273090726e-13, 3.130921399342958e-13),
    *(-1.1270822361367252e-13, 3.810905255189232e-16, 7.106097613609237e-15, -1.5230282014571043e-15),
    *(-9.457494571291234e-17, 1.210237189224279e-16, -2.816663087747177e-17),
)


def erf(x: float | NDArray[np.floating]) -> NDArray[np.float64]:
    """erf(x), in float64."""
    z = np.abs(np.asarray(x, np.float64))
    t = 2 / (2 + z)
    u, d, before = 4 * t - 2, np.zeros_like(z), np.zeros_like(z)
    for coefficient in CHEBYSHEV[:0:-1]:  # Clenshaw's recurrence
        d, before = u * d - before + coefficient, d
    erfc = t * np.exp(-z * z + 0.5 * (CHEBYSHEV[0] + u * d) - before)
    return np.copysign(1 - erfc, x)
