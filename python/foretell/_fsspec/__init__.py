"""The parts of `foretell.fsspec`."""
