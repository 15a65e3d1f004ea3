# SPDX-License-Identifier: Apache-2.0
"""GPU memory allocator strategies behind one interface, on a simulated or real device."""

from allocbench.allocators import _core
from allocbench.allocators._core import Allocator as Allocator
from allocbench.allocators._core import ArenaPlanner as ArenaPlanner
from allocbench.allocators._core import BadFree as BadFree
from allocbench.allocators._core import Block as Block
from allocbench.allocators._core import Device as Device
from allocbench.allocators._core import DeviceError as DeviceError
from allocbench.allocators._core import DeviceStats as DeviceStats
from allocbench.allocators._core import Graph as Graph
from allocbench.allocators._core import GraphPlan as GraphPlan
from allocbench.allocators._core import InvariantViolation as InvariantViolation
from allocbench.allocators._core import Operator as Operator
from allocbench.allocators._core import Option as Option
from allocbench.allocators._core import OutOfMemory as OutOfMemory
from allocbench.allocators._core import Placement as Placement
from allocbench.allocators._core import Segment as Segment
from allocbench.allocators._core import SegmentSource as SegmentSource
from allocbench.allocators._core import SimpleMemoryArena as SimpleMemoryArena
from allocbench.allocators._core import SpecError as SpecError
from allocbench.allocators._core import Stats as Stats
from allocbench.allocators._core import StrategyInfo as StrategyInfo
from allocbench.allocators._core import Tensor as Tensor
from allocbench.allocators._core import Unavailable as Unavailable
from allocbench.allocators._core import WrapperInfo as WrapperInfo
from allocbench.allocators._core import cuda_devices as cuda_devices
from allocbench.allocators._core import human_bytes as human_bytes
from allocbench.allocators._core import strategies as strategies
from allocbench.allocators._core import unavailable as unavailable
from allocbench.allocators._core import wrappers as wrappers
from allocbench.allocators.devices import DEVICE_SPECS as DEVICE_SPECS
from allocbench.allocators.devices import CudaDevice as CudaDevice
from allocbench.allocators.devices import RecordedDevice as RecordedDevice
from allocbench.allocators.devices import SimulatedDevice as SimulatedDevice
from allocbench.allocators.devices import make_device as make_device
from allocbench.allocators.devices import parse_bytes as parse_bytes
from allocbench.allocators.external import External as External
from allocbench.allocators.observers import Leak as Leak
from allocbench.allocators.observers import RecordedEvents as RecordedEvents
from allocbench.allocators.observers import leaks as leaks
from allocbench.allocators.observers import recording as recording
from allocbench.allocators.planning import FOREVER as FOREVER
from allocbench.allocators.planning import PlanResult as PlanResult
from allocbench.allocators.planning import judge as judge
from allocbench.allocators.planning import plan as plan
from allocbench.allocators.planning import plan_graph as plan_graph
from allocbench.allocators.planning import planners as planners
from allocbench.allocators.programs import GpuUse as GpuUse
from allocbench.allocators.programs import Program as Program
from allocbench.allocators.replays import Change as Change
from allocbench.allocators.replays import ReplayResult as ReplayResult
from allocbench.allocators.replays import completes as completes
from allocbench.allocators.replays import failing_event as failing_event
from allocbench.allocators.replays import replay as replay
from allocbench.allocators.replays import time_calls as time_calls
from allocbench.allocators.replays import time_each as time_each
from allocbench.allocators.replays import time_pass as time_pass
from allocbench.allocators.spec import make as make
from allocbench.allocators.spec import names as names

planner_infos, info = _core.planners, _core.strategy
