"""The native engine: kernels in C, a flat plan run by one call, built with the system's compiler when installed."""
