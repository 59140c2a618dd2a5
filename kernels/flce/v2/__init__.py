"""Version 2: plans by workspace, gradients that are final in the forward."""
