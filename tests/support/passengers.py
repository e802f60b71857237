"""Table of passengers with words, categories and gaps, like that of the Titanic."""

from __future__ import annotations

import random

COLUMNS = "pclass,name,sex,age,sibsp,parch,ticket,fare,cabin,embarked,survived"
ROWS = 900


def passengers(rows: int = ROWS, seed: int = 1) -> str:
    """Return the table as text.

    A fifth of the ages, most cabins and two ports are missing.
    """
    draw = random.Random(seed)
    lines = [COLUMNS]
    for number in range(rows):
        pclass = draw.choices((1, 2, 3), (24, 20, 56))[0]
        sex = draw.choice(("male", "male", "female"))
        age = "" if draw.random() < 0.2 else f"{draw.uniform(1, 75):.4g}"
        fare = round(draw.lognormvariate(5 - pclass, 0.6), 4)
        chance = (0.85 if sex == "female" else 0.1) + (0.1 if pclass == 1 else -0.05)
        cabin = f"{draw.choice('ABC')}{draw.randrange(100)}" if draw.random() < 0.2 else ""
        port = "" if number in (61, 829) else draw.choices("SCQ", (72, 19, 9))[0]
        ticket = draw.choice(("A/5 ", "PC ", "")) + str(draw.randrange(10000, 400000))
        family = f"{draw.randrange(3)},{draw.randrange(3)}"
        survived = int(draw.random() < chance)
        lines.append(
            f'{pclass},"Last{number}, Mr. First",{sex},{age},{family},{ticket},{fare},'
            f"{cabin},{port},{survived}"
        )
    return "\n".join(lines) + "\n"
