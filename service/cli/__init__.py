"""The command line: composition root of lossbench, the only place that joins all rooms."""
