"""Kernels for CPUs, where XLA's own are far from what the processor can do."""
