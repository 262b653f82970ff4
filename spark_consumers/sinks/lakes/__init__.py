"""Lakes: Delta and Iceberg, which have versions of each table and no transaction over several."""
