"""Shows a fleet while it works: drawn over again on a terminal, a line an event elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from pipelines import github
from pipelines.fleet import view
from pipelines.fleet.model import FleetState

_A_SECOND = 2  # drawings


class Show:
    """Within it :meth:`update` shows each state that it is given."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state: FleetState | None = None
        over = console.is_terminal and not console.is_dumb_terminal and not github.in_ci
        self._live = (
            Live(
                self,
                console=console,
                refresh_per_second=_A_SECOND,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            if over
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, state: FleetState) -> None:
        """Show ``state``; without a screen only what has changed since the last one."""
        before, self._state = self._state, state
        if self._live is None:
            for said in view.told(before, state):
                self._console.print(said, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As large as the terminal is at this moment: it may be made larger or smaller."""
        if self._state is not None:
            yield view.render(self._state, options.max_width, console.height - 1)
