"""The result of a benchmark sweep as data: ``results`` has the types."""

from .results import CENTER as CENTER
from .results import CONTROL as CONTROL
from .results import DEFAULT as DEFAULT
from .results import LEAST as LEAST
from .results import TUNED as TUNED
from .results import VERSION as VERSION
from .results import Against as Against
from .results import BenchReport as BenchReport
from .results import CellBench as CellBench
from .results import CellKey as CellKey
from .results import Change as Change
from .results import EdgeBench as EdgeBench
from .results import GroupBench as GroupBench
from .results import Latency as Latency
from .results import LogBench as LogBench
from .results import ScheduleBench as ScheduleBench
from .results import TargetPeak as TargetPeak
from .results import Throughput as Throughput
from .results import TrialBench as TrialBench
from .results import WayBench as WayBench
from .results import read_report as read_report
