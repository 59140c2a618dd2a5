"""`lossbench`: the commands. Exit 0 ok, 1 the answer is no, 2 wrong usage or bad input."""

import os
import sys

import typer
from pydantic import ValidationError

from ..contract.errors import LossbenchError
from ..settings import Settings
from . import (
    alerts,
    bisecting,
    checks,
    claims,
    comparing,
    databases,
    exports,
    importing,
    kernels,
    listing,
    measuring,
    new_releases,
    pruning,
    recommending,
    serving,
    tokens,
    training,
)
from .log_lines import configure_logging
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
recommending.register(app)
comparing.register(app)
bisecting.register(app)
training.register(app)
claims.register(app)
listing.register(app)
importing.register(app)
checks.register(kernels.app)
pruning.register(kernels.app)
new_releases.register(kernels.app)
app.add_typer(kernels.app, name="kernels")
app.add_typer(alerts.app, name="alerts")
app.add_typer(databases.app, name="db")
app.add_typer(exports.app, name="export")
app.add_typer(tokens.app, name="token")


def main() -> None:
    """Run a command; every error of ours ends as one line and exit code 2."""
    configure_logging(os.environ.get("LOSSBENCH_LOG_LEVEL", "warning"))
    try:
        app()
    except LossbenchError as error:
        fail(error.message)
        sys.exit(2)
    except ValidationError as error:
        if error.title != Settings.__name__:
            raise
        faults = (f"LOSSBENCH_{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors())
        fail("; ".join(faults))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of a pipe went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
