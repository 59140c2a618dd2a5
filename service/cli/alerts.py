"""`lossbench alerts`: what changed between versions, and what became of it."""

from typing import Annotated

import typer

from ..contract.alert import AlertCase, AlertDetail, AlertState, AlertView
from ..plots.panels import PASS_WORDS
from .output import console, print_json, print_table

app = typer.Typer(help="Changes between versions of kernels.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Url = Annotated[str | None, typer.Option(help="Address of the service.")]
AlertId = Annotated[str, typer.Argument(metavar="ALERT", help="Id of the alert.")]


@app.command("list")
def list_(
    state: Annotated[
        list[AlertState] | None, typer.Option(help="Only these states; may be repeated.")
    ] = None,
    kernel: Annotated[list[str] | None, typer.Option(help="Only these kernels.")] = None,
    limit: Annotated[int, typer.Option(help="Most alerts to print.", min=1, max=10_000)] = 50,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List alerts, newest first.

    Example: `lossbench alerts list --state confirmed`
    """
    from .following import client_for

    states = [each.value for each in state] if state else None
    with client_for(url) as client:
        found = client.alerts(state=states, kernel=kernel)
        shown = [alert for _, alert in zip(range(limit), found, strict=False)]
    if as_json:
        print_json([alert.model_dump(mode="json") for alert in shown])
        return
    if not shown:
        console.print("no alerts; they are found when jobs end: see `lossbench kernels new`")
        return
    print_table("Alerts", ("alert", "state", "since", "what", "owner"), map(_row, shown))


def _row(alert: AlertView) -> tuple[str, ...]:
    since = alert.created_at.date().isoformat()
    return alert.id, alert.state, since, alert.title, alert.owner or ""


@app.command()
def show(alert_id: AlertId, url: Url = None, as_json: AsJson = False) -> None:
    """Show an alert with its cases; with --json also what its decision rests on.

    Example: `lossbench alerts show alt-01jz4k2m8q3w5x7y`
    """
    from .following import client_for

    with client_for(url) as client:
        _print(client.alert(alert_id), as_json)


@app.command()
def confirm(alert_id: AlertId, url: Url = None, as_json: AsJson = False) -> None:
    """Have its cases measured again, the two versions head to head.

    Example: `lossbench alerts confirm alt-01jz4k2m8q3w5x7y`
    """
    from .following import client_for

    with client_for(url) as client:
        found = client.confirm_alert(alert_id)
        if as_json:
            print_json(found.model_dump(mode="json", by_alias=True))
            return
        for job_id in found.job_ids:
            console.print(f"{job_id}  {client.url}/jobs/{job_id}")


@app.command("set")
def set_(
    alert_id: AlertId,
    state: Annotated[AlertState | None, typer.Option(help="Its state.")] = None,
    owner: Annotated[str | None, typer.Option(help="Who looks after it; empty: nobody.")] = None,
    note: Annotated[str | None, typer.Option(help="A note; empty takes it away.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set state, owner or note of an alert.

    Example: `lossbench alerts set alt-01jz4k2m8q3w5x7y --state dismissed --note "known"`
    """
    from .following import client_for

    given = {"state": state.value if state else None, "owner": owner, "note": note}
    fields = {name: value for name, value in given.items() if value is not None}
    with client_for(url) as client:
        _print(client.change_alert(alert_id, **fields), as_json)


def _print(alert: AlertDetail, as_json: bool) -> None:
    if as_json:
        print_json(alert.model_dump(mode="json", by_alias=True))
        return
    console.print(f"{alert.id}  {alert.state}", style="bold")
    console.print(alert.title)
    for name, text in (("owner", alert.owner), ("note", alert.note)):
        if text:
            console.print(f"{name}: {text}", markup=False)
    if alert.job_ids:
        console.print(f"measured again by {', '.join(alert.job_ids)}")
    if alert.cases:
        columns = ("case", "metric", "before", "after", "ratio", "95 %", "seen again")
        print_table("", columns, map(_case, alert.cases))


def _case(case: AlertCase) -> tuple[str, ...]:
    params = f"[{case.params}] " if case.params else ""
    interval = ""
    if case.ratio_low is not None and case.ratio_high is not None:
        interval = f"{case.ratio_low:.4g} – {case.ratio_high:.4g}"
    again = {None: "not yet", True: "yes", False: "no"}[case.confirmed]
    return (
        f"{params}{case.case} {PASS_WORDS[case.pass_]} {case.device_name}",
        case.metric,
        case.before,
        case.after,
        "–" if case.ratio is None else f"{case.ratio:.4g}×",
        interval,
        again,
    )
