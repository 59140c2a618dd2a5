"""Statistics of samples, ratios and errors: pure functions, no I/O, no torch, no scipy."""
