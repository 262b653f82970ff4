"""The consumer's loop: `run` makes passes until stopped, `job` is one, `ahead` reads for it."""
