"""The errors a user may see. Each message is one sentence: the value, the choices, the remedy."""


class SpecVizError(Exception):
    """Base of every error whose text is written for the user; shown without a traceback."""

    exit_code = 1


class BadRequest(SpecVizError):
    """The request was wrong (a setting, a file, a model, a pair): nothing was run."""

    exit_code = 2


class RunFailed(SpecVizError):
    """The request was right, and running it failed."""

    exit_code = 1
