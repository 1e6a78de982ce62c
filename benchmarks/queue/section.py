"""What a benchmark has to say: a table, the targets it was held to, and the runs behind it."""

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Check:
    """A target, what was measured, and whether it was met."""

    what: str
    target: str
    measured: str
    passed: bool


@dataclass(slots=True)
class Section:
    """One question with its answer."""

    key: str
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: list[dict[str, object]] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Everything, for `--json`."""
        return {
            "key": self.key,
            "title": self.title,
            "columns": self.columns,
            "rows": self.rows,
            "checks": [
                {"what": c.what, "target": c.target, "measured": c.measured, "passed": c.passed} for c in self.checks
            ],
            "notes": self.notes,
            "runs": self.runs,
        }


def whole(value: float) -> str:
    """123,456."""
    return f"{value:,.0f}"


def spread(values: list[float]) -> str:
    """The least and the greatest: 98,000 - 123,456."""
    return f"{min(values):,.0f} – {max(values):,.0f}" if len(values) > 1 else "one round"


def milliseconds(microseconds: float) -> str:
    """Microseconds as milliseconds with two places."""
    return f"{microseconds / 1000:.2f}"


def at_least(what: str, measured: float, target: float, unit: str) -> Check:
    """A check that passes from the target upwards."""
    return Check(what, f"≥ {_plain(target)}{unit}", f"{_plain(measured)}{unit}", measured >= target)


def below(what: str, measured: float, target: float, unit: str) -> Check:
    """A check that passes below the target."""
    return Check(what, f"< {_plain(target)}{unit}", f"{_plain(measured)}{unit}", measured < target)


def at_most(what: str, measured: float, target: float, unit: str) -> Check:
    """A check that passes up to the target."""
    return Check(what, f"≤ {_plain(target)}{unit}", f"{_plain(measured)}{unit}", measured <= target)


def ratio_check(what: str, ours: list[float], theirs: list[float], target: float) -> Check:
    """Ours over theirs, by medians; the ratios of the single rounds are shown, they are not what counts."""
    ratio = median(ours) / median(theirs) if median(theirs) > 0 else 0.0
    rounds = [mine / other for mine, other in zip(ours, theirs, strict=True) if other > 0]
    measured = f"{ratio:.2f} x"
    if len(rounds) > 1:
        measured += f" (rounds {min(rounds):.2f} – {max(rounds):.2f})"
    return Check(what, f"≥ {target:.1f} x", measured, ratio >= target)


def faults_check(what: str, faults: int, first_error: str) -> Check:
    """Errors make the numbers worthless, so they are a target like any other."""
    measured = str(faults) + (f" ({first_error})" if faults and first_error else "")
    return Check(what, "0", measured, faults == 0)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
