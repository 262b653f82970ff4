"""What Spark and the local services need of a machine: Java, and archives pinned by locks."""
