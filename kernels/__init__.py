"""What is measured: the loss contenders, the float64 reference, inputs and model presets.

This room needs torch and Triton and knows nothing of jobs, HTTP or databases.
"""
