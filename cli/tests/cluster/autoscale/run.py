"""All that was seen of a run."""

import dataclasses

from .loops import Poll, Sample
from .player import Answer
from .stretches import Stretch


@dataclasses.dataclass
class Run:
    stretches: tuple[Stretch, ...]
    answers: list[Answer]
    polls: dict[str, list[Poll]]
    samples: list[Sample]
    # Exit codes of all workers that were taken away.
    codes: list[int]
    # The machine's load average of the last 15 minutes.
    load: float

    def spans(self) -> list[tuple[Stretch, float, float]]:
        begin, made = 0.0, []
        for stretch in self.stretches:
            made.append((stretch, begin, begin + stretch.seconds))
            begin += stretch.seconds
        return made

    def data(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, data: dict) -> "Run":
        return cls(
            tuple(Stretch(**each) for each in data["stretches"]),
            [Answer(**each) for each in data["answers"]],
            {role: [Poll(**each) for each in polls] for role, polls in data["polls"].items()},
            [Sample(**each) for each in data["samples"]],
            data["codes"],
            data["load"],
        )
