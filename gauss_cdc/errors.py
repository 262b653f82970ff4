"""What the program itself refuses."""


class ConfigError(Exception):
    """The configuration cannot be used; the message names file, line and reason."""
