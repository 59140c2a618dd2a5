"""Adapters: each gives one lineage's kernels the normalised call."""
