"""PostgreSQL, openGauss and GaussDB as targets."""
