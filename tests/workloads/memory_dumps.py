# SPDX-License-Identifier: Apache-2.0
"""A memory profile of JAX and a buffer assignment of XLA, written for tests."""

ASSIGNMENT = """BufferAssignment:
allocation 0: size 4000, parameter 0, shape |f32[1000]| at ShapeIndex {}:
 value: <1 p0 @0> (size=4000,offset=0): f32[1000]{0}
allocation 1: size 2000, maybe-live-out:
 value: <2 out.1 @0> (size=2000,offset=0): f32[500]{0}
allocation 2: size 3072, preallocated-temp:
 value: <3 dot.1 @0> (size=1000,offset=0): f32[250]{0}
 value: <4 tanh.1{0} @0> (size=1000,offset=0): f32[250]{0}
 value: <5 dot.2 @0> (size=1000,offset=1024): f32[250]{0}
 value: <6 loop.1{1} (phi) @0> (size=1000,offset=2048): f32[250]{0}
allocation 3: size 8, constant:
 value: <7 constant.1 @0> (size=8,offset=0): f32[2]{0}

Total bytes used: 9080 (8.9KiB)

Used values:
<1 p0 @0>
 from instruction: %p0 = f32[1000] parameter(0)
"""
RANGES = """HloLiveRange (max 9):
  InstructionSequence:
    0:p0
  BufferLiveRange:
    p0{}:0-9
    dot.1{}:1-2
    tanh.1{0}:2-4
    dot.2{}:4-6
    loop.1{1}:7-9
    out.1{}:8-9
  Live ranges at 4 (peak):
    p0{}:0-0
"""
"""tanh.1 overwrites dot.1 at instruction 2; dot.2 is live with tanh.1 at 4; loop.1 is alone."""


def number(value: int) -> bytes:
    """A varint of protobuf."""
    parts = []
    while value >= 128:
        parts.append(value % 128 + 128)
        value //= 128
    return bytes([*parts, value])


def field(key: int, content: bytes | int) -> bytes:
    """A field of a message of protobuf: a number, or bytes."""
    if isinstance(content, int):
        return number(8 * key) + number(content)
    return number(8 * key + 2) + number(len(content)) + content


def profile(stacks: list[tuple[list[tuple[str, str, int]], int, str]]) -> bytes:
    """A profile: for each stack the function, file and line of its frames, bytes, the device."""
    strings = ["", "allocations", "count", "space", "bytes", "kind", "buffer", "device"]
    functions, locations, samples = list[bytes](), list[bytes](), list[bytes]()
    for stack, size, device in stacks:
        places = []
        for name, file, line in stack:
            strings += [name, file]
            one = len(functions) + 1
            words = field(2, len(strings) - 2) + field(4, len(strings) - 1)
            functions.append(field(5, field(1, one) + words))
            locations.append(field(4, field(1, one) + field(4, field(1, one) + field(2, line))))
            places.append(one)
        strings.append(device)
        labels = field(3, field(1, 5) + field(2, 6)) + field(
            3, field(1, 7) + field(2, len(strings) - 1)
        )
        values = field(2, number(1) + number(size))
        samples.append(field(2, field(1, b"".join(map(number, places))) + values + labels))
    types = field(1, field(1, 1) + field(2, 2)) + field(1, field(1, 3) + field(2, 4))
    table = [field(6, text.encode()) for text in strings]
    return types + b"".join([*samples, *locations, *functions, *table])


PROFILE = profile(
    [
        (
            [("dot", "/x/site-packages/jax/lax.py", 9), ("train", "/home/user/train.py", 12)],
            3000,
            "gpu:0",
        ),
        (
            [("add", "/x/site-packages/jax/lax.py", 7), ("train", "/home/user/train.py", 12)],
            50,
            "gpu:0",
        ),
        (
            [("dot", "/x/site-packages/jax/lax.py", 9), ("train", "/home/user/train.py", 12)],
            700,
            "gpu:1",
        ),
        ([("load", "/home/user/train.py", 3)], 1 << 40, "gpu:0"),
    ]
)
