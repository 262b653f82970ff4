"""The consumer's loop: what is read ahead, one pass, and the next one."""
