"""Why something that a program runs on could not be had, and what a person can do about it."""


class Unavailable(Exception):
    """Java, an archive or a local service cannot be found, fetched or started."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.hint}" if self.hint else text
