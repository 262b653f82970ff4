"""Server bytes <-> frames.  Pure: given bytes, it gives values and bytes back."""
