"""All that knows Spark: its session and query, jobs and tasks, frames."""
