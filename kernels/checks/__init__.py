"""The correctness grid: what every contender is asked, and what it did."""
