"""openGauss and GaussDB: connection, decoders, DDL, options, checks."""
