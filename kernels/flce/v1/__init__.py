"""Version 1, correct first: token chunks, one row pass, gradients scaled again in the backward."""
