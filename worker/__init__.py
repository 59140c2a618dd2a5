"""The worker: takes lots from the queue, measures their cases in child processes, saves results."""
