"""Fused GPU kernels, private to `switchpoint.neural`; the plain path defines their results."""
