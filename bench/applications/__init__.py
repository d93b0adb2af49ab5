"""The applications of the papers, run live on the emulated array; scripts/bench-applications runs them."""
