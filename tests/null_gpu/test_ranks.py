# SPDX-License-Identifier: Apache-2.0
"""What ranks of a program send each other on null GPUs: threads stand in for their processes.

What each rank must know afterwards is computed from the values of all ranks, as MPI defines it.
"""

import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.null_gpu.test_inside import Program, called, loaded, on_gpu

torch = pytest.importorskip("torch")
collectives = loaded("collectives")
OP = torch.distributed.ReduceOp
RANKS, GROUP = 3, [2, 0]  # ranks of the world, and of a group in its own order
MOST = collectives._MOST


class Store:
    """What all ranks have sent."""

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            assert self.sent.setdefault(key, value) is value, f"{key} was sent twice"
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.sent, 20), f"{key} did not come"
        return self.sent[key]

    def wait(self, keys: Sequence[str], _timeout: object) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: {*keys} <= self.sent.keys(), 0.5):
                raise RuntimeError("timeout")


class Rank:
    """One rank: its PyTorch, and what it knows."""

    def __init__(
        self, number: int, store: Store, ranks: Sequence[int], alone: bool = False
    ) -> None:
        self.number, self.ranks, self.made = number, [*ranks], list[int]()
        group = SimpleNamespace(group_name="g")
        of_c10d = SimpleNamespace(
            _get_default_store=lambda: store,
            _get_default_group=lambda: group,
            _pickler=lambda stream: SimpleNamespace(dump=partial(pickle.dump, file=stream)),
            _unpickler=lambda stream: SimpleNamespace(load=partial(pickle.load, stream)),
            _get_object_coll_device=lambda _group: "cuda",
        )
        dist = SimpleNamespace(
            get_rank=lambda group=None: number if group is None else self.ranks.index(number),
            get_process_group_ranks=lambda _group: self.ranks,
            get_global_rank=lambda _group, rank: self.ranks[rank],
            distributed_c10d=of_c10d,
            ReduceOp=OP,
            Work=SimpleNamespace(wait=lambda _work: True),
        )
        names = {name: getattr(torch, name) for name in ("stack", "cat", "Tensor", "frombuffer")}
        self.torch: Any = SimpleNamespace(
            **names,
            uint8=torch.uint8,
            device=torch.device,
            distributed=dist,
            __version__=(2, 13),
            empty=lambda size, dtype, device: self.made.append(size),
        )
        self.program, self.group = Program(), group
        self.begin: Any = None  # the function for operators
        messages = collectives.Messages(self.torch, alone)
        follower = SimpleNamespace(special=lambda _names, begin, _of: setattr(self, "begin", begin))
        self.all = collectives.Collectives(self.torch, follower, self.program.copies, messages)
        self.objects = collectives.Objects(self.torch, messages)
        self.all.follow()

    def there(self, values: Any) -> Any:
        """A tensor on the GPU of which these values are known; None: of five, nothing is."""
        moved = on_gpu(torch.zeros(5) if values is None else values)
        if values is not None:
            self.program.copies.keep(moved, values)
        self.program.alive.append(moved)
        return moved

    def calls(self, name: str, **given: Any) -> None:
        """A function of Python calls an operator."""
        given = {"group": self.group, "async_op": False} | given
        run = lambda: self.begin(None, [])  # noqa: E731
        finish = called("torch.distributed.distributed_c10d", name, "x", run, **given)
        if finish is not None:
            finish([])

    def knows(self, tensor: Any) -> Any:
        found = self.program.copies.get(tensor)
        return None if found is None else found.tolist()


def together(run: Callable[[Rank], Any], ranks: Sequence[int] = range(RANKS)) -> list[Any]:
    """What a function returns for each rank, in the order of the group."""
    store = Store()
    with ThreadPoolExecutor(len(ranks)) as threads:
        return [*threads.map(lambda number: run(Rank(number, store, ranks)), ranks)]


def values_of(rank: int, count: int = 4) -> Any:
    return torch.tensor([(rank + 2) * (n + 1) % 7 for n in range(count)], dtype=torch.float32)


@pytest.mark.parametrize(
    ("operation", "judge"),
    [
        (OP.SUM, sum),
        (OP.AVG, lambda values: sum(values) / len(values)),
        (OP.MAX, max),
        (OP.MIN, min),
        (OP.PRODUCT, lambda values: values[0] * values[1] * (values[2] if values[2:] else 1)),
        (OP.BAND, None),
    ],
)
@pytest.mark.parametrize("ranks", [range(RANKS), GROUP])
def test_a_reduction(operation: Any, judge: Any, ranks: Sequence[int]) -> None:
    def run(rank: Rank) -> Any:
        tensor, other, third = (rank.there(values_of(rank.number)) for _ in range(3))
        rank.calls("all_reduce", tensor=tensor, op=operation)
        rank.calls("reduce", tensor=other, op=operation, dst=ranks[1], group_dst=None)
        rank.calls("reduce", tensor=third, op=operation, dst=None, group_dst=0)
        return [rank.knows(one) for one in (tensor, other, third)]

    own = [values_of(rank).tolist() for rank in ranks]
    every = [judge(column) for column in zip(*own, strict=True)] if judge else None
    for n, (reduced, second, first) in enumerate(together(run, ranks)):
        assert reduced == (every if every is None else pytest.approx(every))
        assert second == (pytest.approx(every) if n == 1 and every else None if n == 1 else own[n])
        assert first == (pytest.approx(every) if n == 0 and every else None if n == 0 else own[n])


@pytest.mark.parametrize("ranks", [range(RANKS), GROUP])
def test_gathers_and_exchanges(ranks: Sequence[int]) -> None:
    count = len(ranks)

    def run(rank: Rank) -> Any:
        mine = rank.there(values_of(rank.number))
        parts = [rank.there(torch.zeros(4)) for _ in ranks]
        rank.calls("all_gather", tensor=mine, tensor_list=parts)
        whole = [rank.there(torch.zeros(4 * count)) for _ in range(3)]
        names = ("all_gather_into_tensor", "all_gather_single", "_all_gather_base")
        for name, output in zip(names, whole, strict=True):
            rank.calls(name, input_tensor=mine, output_tensor=output)
        sent = rank.there(values_of(rank.number, 2 * count).reshape(count, 2))
        got, uneven = (rank.there(torch.zeros(count, 2)) for _ in range(2))
        sizes: dict[str, Any] = {"output_split_sizes": None, "input_split_sizes": None}
        rank.calls("all_to_all_single", input=sent, output=got, **sizes)
        rank.calls(
            "all_to_all_single", input=sent, output=uneven, **sizes | {sorted(sizes)[0]: [1]}
        )
        found = [[rank.knows(one) for one in parts], *map(rank.knows, (*whole, got, uneven))]
        return [*found, rank.knows(mine)]

    own = [values_of(rank).tolist() for rank in ranks]
    flat = [one for part in own for one in part]
    sent = [values_of(rank, 2 * count).reshape(count, 2).tolist() for rank in ranks]
    for n, (parts, *whole, got, uneven, mine) in enumerate(together(run, ranks)):
        assert parts == own
        assert whole == [flat] * 3
        assert got == [part[n] for part in sent]
        assert uneven is None
        assert mine == own[n]


@pytest.mark.parametrize("source", [{"src": 0, "group_src": None}, {"src": None, "group_src": 1}])
def test_what_one_rank_sends(source: dict[str, Any]) -> None:
    """To all others, or to one: integers arrive when the program waits for them."""

    def run(rank: Rank) -> Any:
        tensor, integer = rank.there(values_of(rank.number)), values_of(rank.number).int()
        rank.calls("broadcast", tensor=tensor, **source)
        arrived = rank.there(integer)
        numbers = [rank.there(integer), rank.there(values_of(rank.number))]
        for one in numbers:
            if rank.number == 2:
                rank.calls("isend", tensor=one, dst=0, group_dst=None)
            else:
                rank.calls("irecv", tensor=one, **{"src": None, "group_src": 0})
        rank.calls("recv", tensor=arrived, src=None, group_src=None)  # from any rank
        before = [rank.knows(one) for one in numbers]
        assert len(rank.all._expected) == (rank.number != 2)
        assert rank.torch.distributed.Work.wait(None)
        return rank.knows(tensor), before, [rank.knows(one) for one in numbers], rank.knows(arrived)

    theirs, own = values_of(2).tolist(), values_of(0).tolist()
    sender, receiver = together(run, GROUP)
    assert sender == (own, [theirs, theirs], [theirs, theirs], None)
    assert receiver == (own, [None, None], [theirs, None], None)  # floats are not sent


def test_what_is_not_known_or_is_too_large_is_not_sent() -> None:
    def run(rank: Rank) -> Any:
        known = [torch.ones(MOST), torch.ones(MOST + 1), torch.ones(0), torch.ones(2).cfloat()]
        tensors = [*map(rank.there, known), rank.there(None if rank.number == 1 else torch.ones(5))]
        for tensor in tensors:
            rank.calls("all_reduce", tensor=tensor, op=OP.SUM)
        gathered = [rank.there(torch.ones(5)) for _ in range(RANKS)]
        rank.calls("all_gather", tensor=tensors[-1], tensor_list=gathered)
        assert [*map(rank.knows, gathered)] == [None] * RANKS
        large = rank.there(torch.ones(MOST + 1))
        rank.calls("broadcast", tensor=large, src=1, group_src=None)
        outside = rank.begin(None, [])  # of PyTorch's own code
        assert outside is not None
        outside([])
        other = called("torch.distributed.distributed_c10d", "x", "x", lambda: rank.begin(None, []))
        return (
            [rank.knows(one) for one in tensors[:-1]],
            rank.knows(tensors[-1]),
            rank.knows(large),
            other,
        )

    for number, (all_known, unknown, large, other) in enumerate(together(run)):
        assert all_known == [[3.0] * MOST, None, [], None]
        assert unknown is other is None
        assert large == ([1.0] * (MOST + 1) if number == 1 else None)


def test_a_tensor_on_the_host_is_not_sent() -> None:
    store = Store()
    rank = Rank(0, store, [0])
    rank.calls("all_reduce", tensor=torch.ones(2), op=OP.SUM)
    assert store.sent == {}


def test_a_rank_alone_gets_what_it_sends() -> None:
    rank = Rank(1, Store(), range(RANKS), alone=True)
    tensor, kept = rank.there(values_of(1)), rank.there(values_of(1))
    rank.calls("all_reduce", tensor=tensor, op=OP.SUM)
    rank.calls("broadcast", tensor=kept, src=0, group_src=None)
    assert rank.knows(tensor) == [3 * one for one in values_of(1).tolist()]
    assert rank.knows(kept) == values_of(1).tolist()


class Peers:
    """What each function of objects does with the arguments of a rank, and what it changes."""

    OBJECTS = ({"rank": 2}, [0, "x" * 50])  # of the ranks of the group

    def __init__(self, rank: Rank) -> None:
        self.rank, self.own = rank, self.OBJECTS[GROUP.index(rank.number)]

    def of(self, name: str, **given: Any) -> Any:
        self.rank.made.clear()
        returned = getattr(self.rank.objects, name)(given, self.rank.group)
        return returned, [*self.rank.made]


def test_objects() -> None:
    """The tensors that PyTorch allocates for them have the sizes of the largest, and of all."""

    def run(rank: Rank) -> Any:
        peers, first = Peers(rank), rank.number == 2
        everything, gathered, given = [None] * 2, [None] * 2, [peers.own]
        got, list_of_two = [None], [*Peers.OBJECTS] if first else [None, None]
        told = [
            peers.of("all_gather_object", obj=peers.own, object_list=everything),
            peers.of("gather_object", obj=peers.own, object_gather_list=gathered, dst=0),
            peers.of("broadcast_object_list", object_list=given, src=None, group_src=0),
            peers.of("scatter_object_list", scatter_object_output_list=got, src=2,
                     scatter_object_input_list=list_of_two),
        ]  # fmt: skip
        if first:
            told.append(peers.of("send_object_list", object_list=list_of_two, dst=0))
        else:
            told.append(peers.of("recv_object_list", object_list=list_of_two, src=2))
        return [everything, gathered, given, got, list_of_two], told

    sizes = [len(pickle.dumps(one)) for one in Peers.OBJECTS]
    one, both = len(pickle.dumps([Peers.OBJECTS[0]])), len(pickle.dumps([*Peers.OBJECTS]))
    for n, (changed, told) in enumerate(together(run, GROUP)):
        here = [*Peers.OBJECTS]
        assert changed == [here, [None] * 2 if n == 0 else here, here[:1], [here[n]], here]
        most = max(sizes) if n == 1 else sizes[0]
        assert [made for _, made in told] == [
            [max(sizes), 16, 2 * max(sizes)],
            [most, 8 * (1 + n), most * (1 + n)],
            [8, one],
            [both, 8],
            [16, both],
        ]
        assert [returned for returned, _ in told] == [None] * 4 + [None if n == 0 else 2]


def test_objects_of_ranks_that_do_not_run_are_missed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rank = Rank(1, Store(), range(RANKS), alone=True)
    for _ in range(2):
        objects = ["own"]
        rank.objects.broadcast_object_list({"object_list": objects, "src": 0}, rank.group)
        assert objects == ["own"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "rank 1 keeps its own object where it expects one from rank 0" in said


@pytest.mark.parametrize("device", [None, "cuda:1", "cpu"])
@pytest.mark.parametrize("alone", [False, True])
def test_only_objects_on_a_gpu_are_sent_here(device: str | None, alone: bool) -> None:
    rank, asked = Rank(1, Store(), [1, 0], alone), list[Any]()
    rank.torch.distributed.get_rank = lambda group=None: -1 if group == "others" else 1

    def original(obj: Any, group: Any = None, device: Any = None) -> str:
        return "original"

    instead = rank.objects._instead_of(original, lambda given, group: asked.append((given, group)))
    returned = [instead(5, group, device=device) for group in (None, "others", "ours")]
    here = alone or device != "cpu"
    assert returned == [None if here else "original", "original", None if here else "original"]
    assert [group for _, group in asked] == ([rank.group, "ours"] if here else [])
    assert all(given["obj"] == 5 for given, _ in asked)


def test_a_rank_alone_has_a_store_and_a_launcher_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dist, begun = torch.distributed, list[dict[str, Any]]()
    original = lambda backend, **given: begun.append({"backend": backend, **given})  # noqa: E731
    for module in (dist, dist.distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", original)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    collectives.be_alone(torch)
    assert dist.init_process_group is dist.distributed_c10d.init_process_group is not original
    dist.init_process_group("nccl", init_method="env://", world_size=2, timeout=5)
    store = begun[0].pop("store")
    assert begun == [{"backend": "cpu:fake,cuda:nccl", "rank": 3, "world_size": 8, "timeout": 5}]
    assert len(store.get("unique")) == 128
    store.set("a", "b")
    assert (store.get("a"), store.add("n", 2), store.add("n", 3), store.num_keys()) == (
        b"b",
        2,
        5,
        2,
    )
    assert store.compare_set("a", "b", b"c") == store.get("a") == b"c"
    assert store.check(["a", "n"])
    assert (store.delete_key("a"), store.delete_key("a"), store.check(["a", "n"])) == (
        True,
        False,
        False,
    )

    class Configuration:
        min_nodes, max_nodes, nproc_per_node = 2, 4, 8

        def __post_init__(self) -> None:
            self.finished = self.nproc_per_node

    collectives.launch_alone(SimpleNamespace(LaunchConfig=Configuration))
    made: Any = Configuration()
    made.__post_init__()
    assert (made.min_nodes, made.max_nodes, made.nproc_per_node, made.finished) == (1, 1, 1, 1)
    assert (made.rdzv_backend, made.rdzv_endpoint) == ("c10d", "localhost:0")
