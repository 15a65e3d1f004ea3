# SPDX-License-Identifier: Apache-2.0
"""Allocator strategies behind one interface, on a simulated device or a real one."""

from allocators._core import (
    Allocator,
    ArenaPlanner,
    BadFree,
    Block,
    Device,
    DeviceStats,
    Graph,
    GraphPlan,
    InvariantViolation,
    Operator,
    Option,
    OutOfMemory,
    Placement,
    Segment,
    SimpleMemoryArena,
    SpecError,
    Stats,
    StrategyInfo,
    Tensor,
    human_bytes,
    strategies,
)
from allocators._core import planners as planner_infos
from allocators._core import strategy as info
from allocators.devices import DEVICE_SPECS, SimulatedDevice, make_device, parse_bytes
from allocators.factory import make, names
from allocators.planning import FOREVER, PlanResult, plan, plan_graph, planners
from allocators.replays import ReplayResult, completes, replay, time_each, time_pass

__all__ = [
    "DEVICE_SPECS",
    "FOREVER",
    "Allocator",
    "ArenaPlanner",
    "BadFree",
    "Block",
    "Device",
    "DeviceStats",
    "Graph",
    "GraphPlan",
    "InvariantViolation",
    "Operator",
    "Option",
    "OutOfMemory",
    "Placement",
    "PlanResult",
    "ReplayResult",
    "Segment",
    "SimpleMemoryArena",
    "SimulatedDevice",
    "SpecError",
    "Stats",
    "StrategyInfo",
    "Tensor",
    "completes",
    "human_bytes",
    "info",
    "make",
    "make_device",
    "names",
    "parse_bytes",
    "plan",
    "plan_graph",
    "planner_infos",
    "planners",
    "replay",
    "strategies",
    "time_each",
    "time_pass",
]
