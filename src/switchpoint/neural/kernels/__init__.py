"""Fused kernels for GPUs; what they compute is defined by the plain path beside them."""
