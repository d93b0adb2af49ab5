"""The parts of `foretell.torch`. None of them needs torch, except `_checkpoint` and `_loader`."""
