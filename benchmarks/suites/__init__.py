"""The groups of workloads, one module each."""

from contests import Contest
from suites import boxes, categories, files, fit, fleet, memory, one_row, online, score, start_up, streams, threads

SUITES: dict[str, list[Contest]] = {
    module.__name__.removeprefix("suites."): module.CONTESTS
    for module in (start_up, fit, score, one_row, boxes, streams, fleet, categories, online, files, memory, threads)
}
