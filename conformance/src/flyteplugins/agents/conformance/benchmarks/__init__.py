"""What things cost, as ratios that are measured in one run: `make bench`. Measured, never tested: it depends on the machine."""
