"""The collective reads of 1999, live: what `scripts/bench-collective` needs."""
