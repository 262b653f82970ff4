"""The page: what `status`, `doctor` and the programs tell, in a browser, without internet."""
