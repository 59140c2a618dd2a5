"""The service: contract, statistics, store, plots, API and command line. It never imports torch."""
