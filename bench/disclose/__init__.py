"""The measurement of the adapters of foretell.disclose; scripts/bench-disclose runs it."""
