"""Records of cuts become segments, and where a target stands after each."""
