"""The screens of the Lab page by title, in their order; they need torch."""

from __future__ import annotations

import kvplan.ui.lab_screens.checks as checks
import kvplan.ui.lab_screens.fill as fill
import kvplan.ui.lab_screens.name_fault as name_fault
import kvplan.ui.lab_screens.planner as planner
import kvplan.ui.lab_screens.same as same
import kvplan.ui.lab_screens.saves as saves
import kvplan.ui.lab_screens.shrink as shrink
import kvplan.ui.lab_screens.wire as wire

SCREENS = {
    "1 Fill the cache": fill.show,
    "2 Wire the heads": wire.show,
    "3 Same answer?": same.show,
    "4 Name the fault": name_fault.show,
    "5 The check that cannot fail": checks.show,
    "6 What it saves": saves.show,
    "7 Shrink the heads": shrink.show,
    "8 From toy to planner": planner.show,
}
