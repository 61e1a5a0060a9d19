"""`python tests/on_processor.py avx2|plain …`: pytest with these arguments, as on another processor than this machine's.

numpy, PyTorch, MKL and oneDNN choose instructions when they are loaded, and their results differ in the last bits: numpy's
own powers and cosines do. `avx2` hides AVX-512; `plain` hides AVX2 too and takes the engine's portable kernels.
"""

import os
import sys

from numpy._core import _multiarray_umath as numpy_core  # type: ignore[attr-defined]

PLAIN = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "REGARD_KERNELS": "portable"}
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
PROCESSORS = {"avx2": AVX2, "plain": PLAIN}


def hidden(processor: str) -> str:
    """The instruction sets that numpy would otherwise choose from here."""
    kept = {"AVX2", "FMA3", "X86_V3"} if processor == "avx2" else set()
    here = numpy_core.__cpu_features__
    return " ".join(name for name in numpy_core.__cpu_dispatch__ if here.get(name) and name not in kept)


if __name__ == "__main__":
    processor = sys.argv[1]
    chosen = PROCESSORS[processor] | {"NPY_DISABLE_CPU_FEATURES": hidden(processor)}
    print("as on another processor:", *(f"{name}={value!r}" for name, value in chosen.items()), flush=True)
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[2:]], os.environ | chosen)
