"""How alerts are told on pages: words and signs of states, kinds and metrics."""

from collections.abc import Mapping
from typing import NamedTuple

from lossbench.service.contract.alert import AlertKind, AlertMetric, AlertState, AlertView

STATE_WORDS: Mapping[str, str] = {
    AlertState.CANDIDATE: "not yet measured again",
    AlertState.CONFIRMED: "confirmed",
    AlertState.DISMISSED: "set aside",
    AlertState.FIXED: "undone by a later version",
}
STATE_GLYPHS: Mapping[str, str] = {
    AlertState.CANDIDATE: "?",
    AlertState.CONFIRMED: "▲",
    AlertState.DISMISSED: "○",
    AlertState.FIXED: "✓",
}
KIND_WORDS: Mapping[str, str] = {
    AlertKind.CHANGE: "change of a kernel",
    AlertKind.ENVIRONMENT: "note: everything moved",
    AlertKind.BASELINE: "note: the baseline moved",
    AlertKind.SAME_CODE: "note: moved without new code",
    AlertKind.SILENT: "no new results",
    AlertKind.STUCK_QUEUE: "queue without a worker",
}
METRIC_WORDS: Mapping[str, str] = {
    AlertMetric.TIME: "time over the baseline",
    AlertMetric.MEMORY: "workspace",
    AlertMetric.ERROR: "error grade",
}


def state_words(alert: AlertView) -> str:
    """What its state means; a note is only read, never measured again."""
    noted = alert.kind is not AlertKind.CHANGE and alert.state is AlertState.CANDIDATE
    return "to be read" if noted else STATE_WORDS[alert.state]


class AlertWords(NamedTuple):
    """What the templates ask for."""

    glyphs: Mapping[str, str] = STATE_GLYPHS
    states: Mapping[str, str] = STATE_WORDS
    kinds: Mapping[str, str] = KIND_WORDS
    metrics: Mapping[str, str] = METRIC_WORDS

    def of(self, alert: AlertView) -> str:
        """What its state means."""
        return state_words(alert)


ALERT_WORDS = AlertWords()
