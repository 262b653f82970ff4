"""The error of local services."""

from gauss_cdc.runtime.errors import Unavailable


class ServiceError(Unavailable):
    """A local service cannot be started or reached."""
