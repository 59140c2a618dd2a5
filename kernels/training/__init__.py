"""Training runs of a small language model, one contender's loss in each."""
