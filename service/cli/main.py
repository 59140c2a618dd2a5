"""`lossbench`: the commands. Exit 0 ok, 1 the answer is no, 2 wrong usage or bad input."""

import logging
import os
import sys

import structlog
import typer

from ..contract.errors import LossbenchError, SetupError
from . import checks, comparing, databases, exports, importing, kernels, measuring, serving, tokens
from .output import fail

app = typer.Typer(
    name="lossbench",
    help="Benchmark fused linear cross entropy kernels: speed, memory and error as one result.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
serving.register(app)
measuring.register(app)
comparing.register(app)
importing.register(app)
checks.register(kernels.app)
app.add_typer(kernels.app, name="kernels")
app.add_typer(databases.app, name="db")
app.add_typer(exports.app, name="export")
app.add_typer(tokens.app, name="token")


def configure_logging(level: str) -> None:
    """Structured lines on standard error, so that standard output stays data."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
    )


def main() -> None:
    """Run a command; every error of ours ends as one line and exit code 2."""
    configure_logging(os.environ.get("LOSSBENCH_LOG_LEVEL", "warning"))
    try:
        app()
    except SetupError as error:
        fail(error.message)
        sys.exit(2)
    except LossbenchError as error:
        fail(error.message)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of a pipe went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
