# SPDX-License-Identifier: Apache-2.0
"""What runs inside of programs, without a GPU: tensors on the host stand in for those on one.

The memory of a null GPU holds zeros. A table in place of the native library has the values that the
host knows.
"""

import ctypes
import importlib.util
import io
import json
import linecache
import struct
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import allocbench
from tests.gold import Gold

torch = pytest.importorskip("torch")
_NAME = "allocbench_inside"  # of the package inside of programs


def loaded(module: str) -> Any:
    if _NAME not in sys.modules:
        folder = Path(allocbench.__file__).parent / "null_gpu/inside"
        spec = importlib.util.spec_from_file_location(
            _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_NAME])
    return importlib.import_module(f"{_NAME}.{module}")


known_values, nvidia_smi = loaded("known_values"), loaded("nvidia_smi")
Follower, HostCopies, Operator = (
    getattr(loaded("following"), name) for name in ("Follower", "HostCopies", "Operator")
)
Guesses, Reads, call_site = (
    loaded("guesses").Guesses,
    loaded("reads").Reads,
    loaded("reads").call_site,
)
KEY, Workspaces = loaded("workspaces").KEY, loaded("workspaces").Workspaces


class Core:
    """The part of the native library that keeps values and says which operators run."""

    def __init__(self, operators: str = "", kind: int = 7) -> None:
        self.known: dict[int, int] = {}  # by address: a byte
        self.operators, self.kind = operators, kind

    def null_follow(self, address: int, host: int, size: int) -> None:
        content = ctypes.string_at(host, size)
        self.known |= {address + n: byte for n, byte in enumerate(content)}

    def null_known(self, address: int, host: int, size: int) -> bool:
        found = [self.known.get(address + n) for n in range(size)]
        if None in found:
            return False
        ctypes.memmove(host, bytes(found), size)  # type: ignore[arg-type]
        return True

    def null_forget(self, begin: int, size: int) -> None:
        for address in range(begin, begin + size):
            self.known.pop(address, None)

    def null_depth(self) -> int:
        return 1

    def null_on_read(self, callback: Any) -> None:
        self.callback = callback

    def null_operators(self, text: Any, _most: int) -> int:
        text.value = self.operators.encode()
        return self.kind


class OnGpu(torch.Tensor):  # type: ignore[misc,name-defined]
    """A tensor that says that it is on a GPU."""

    is_cuda = property(lambda _self: True)


def on_gpu(like: Any) -> Any:
    """A tensor of zeros with the shape and strides of another."""
    return torch.zeros_like(like).as_subclass(OnGpu)


class Program:
    """Operators of a program, whose kernels do nothing."""

    def __init__(self, share: float = 0.0) -> None:
        self.core: Any = Core()
        self.alive = list[Any]()  # nothing else gets the same address
        self.reads = Reads(self.core, {}, 0, share)
        self.copies = HostCopies(torch, self.core)
        self.follower = Follower(torch, None, self.copies, self.reads)
        Guesses(torch, self.core, self.follower, self.copies, self.reads).follow()

    def runs(self, name: str, *values: Any, known: bool = True) -> tuple[list[Any], list[Any]]:
        """The results of an operator with tensors on a GPU: what the host knows, and the truth."""
        full, _, overload = name.partition(".")
        operator = Operator(torch, f"aten::{full}", overload)
        given = [*values, *[None] * (operator.arguments - len(values))]
        arguments = operator.function._schema.arguments
        for n in range(len(values), operator.arguments):
            if arguments[n].has_default_value():
                given[n] = arguments[n].default_value
        there = [self._moved(value, known) for value in given]
        begin = self.follower._special.get(operator.full_name, self.follower.computed)
        finish = begin(operator, there)
        made = operator.call(given)
        results = [*made] if isinstance(made, tuple) else [made]
        outputs = there[:1] if operator.written else [on_gpu(result) for result in results]
        self.alive += [there, outputs]
        if finish is not None:
            finish(outputs)
        return [self.copies.get(output) for output in outputs], results

    def _moved(self, value: Any, known: bool) -> Any:
        if isinstance(value, list):
            return [self._moved(one, known) for one in value]
        if not isinstance(value, torch.Tensor):
            return value
        moved = on_gpu(value)
        if known:
            self.copies.keep(moved, value)
        return moved


X, WIDE = torch.tensor([3, 0, 5, 2, 2]), torch.arange(12.0).reshape(3, 4) - 5
MASK = torch.tensor([True, False, True, True, False])
CALLS: dict[str, tuple[Any, ...]] = {
    "add.Tensor": (X, X),
    "sub.Tensor": (WIDE, 2),
    "mul.Tensor": (WIDE, WIDE),
    "cat": ([X, X + 1],),
    "where.self": (MASK, X, -X),
    "cumsum": (X, 0),
    "sum": (X,),
    "sum.dim_IntList": (WIDE, [1]),
    "all": (MASK,),
    "any": (MASK,),
    "count_nonzero": (X,),
    "nonzero": (MASK,),
    "topk": (WIDE, 2),
    "argmax": (WIDE, 1),
    "max.dim": (WIDE, 0),
    "sort": (X,),
    "clamp": (X, 1),
    "isnan": (WIDE,),
    "isfinite": (WIDE,),
    "unique_dim": (X, 0),
    "_unique2": (X,),
    "index_select": (WIDE, 0, torch.tensor([2, 0])),
    "gather": (WIDE, 1, torch.tensor([[1], [0], [3]])),
    "eq.Scalar": (X, 2),
    "bitwise_not": (MASK,),
    "max": (X,),
    "min": (WIDE,),
    "remainder.Scalar": (X, 2),
    "flip": (X, [0]),
    "add_.Tensor": (X, 1),
    "fill_.Scalar": (WIDE, 4),
    "copy_": (X, X + 7),
    "masked_fill_.Scalar": (X, MASK, 9),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_host_computes_what_an_operator_does(name: str) -> None:
    """PyTorch on the host is the judge."""
    values = [one.clone() if isinstance(one, torch.Tensor) else one for one in CALLS[name]]
    found, truth = Program().runs(name, *values)
    for one, other in zip(found, truth, strict=True):
        if isinstance(other, torch.Tensor):
            assert one is not None, name
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


def test_arguments_on_the_host() -> None:
    program, cpu = Program(), torch.device("cpu")
    known, unknown = on_gpu(X), on_gpu(X)
    program.copies.keep(known, X + 1)
    follower = program.follower
    assert follower.on_host([torch.device("cuda:1"), 3, None, "x"]) == [cpu, 3, None, "x"]
    assert torch.equal(follower.on_host([known])[0], X + 1)
    given = [3, known, [known, X], [], unknown, [known, unknown], [[unknown], 1]]
    assert [follower.is_known(one) for one in given] == [True] * 4 + [False] * 3


GUESSED = ("nonzero", "all", "any", "count_nonzero", "sum", "topk", "argmax", "max.dim", "sort")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_guesses(share: float, gold: Gold) -> None:
    """Results of values that nobody knows."""
    found = {}
    for name in (*GUESSED, "clamp", "isnan", "isfinite", "add.Tensor", "add_.Tensor"):
        for values in (CALLS[name], (MASK,), (X.reshape(5, 1), *CALLS[name][1:])):
            try:
                results, _ = Program(share).runs(name, *values, known=False)
            except (IndexError, NotImplementedError, RuntimeError, TypeError):
                continue
            known = [None if one is None else one.tolist() for one in results]
            found[f"{name} {[*values[0].shape]} {values[0].dtype}"] = known
    gold(f"guesses_{share}", found)


SCORES = torch.zeros(3, 1000)
MASKS = torch.zeros(4, 6, dtype=torch.bool)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_guesses_of_large_and_of_several_rows(share: float, gold: Gold) -> None:
    """Several calls of one program; `generate` of transformers chooses itself."""
    program, found = Program(share), dict[str, Any]()
    calls: list[tuple[str, tuple[Any, ...]]] = [
        *((("topk", (SCORES, count))) for count in (1, 2, 500, 501, 700)),
        *(
            (("argmax", (scores, dim)))
            for scores in (SCORES, SCORES[:, :8])
            for dim in (None, 0, 1)
        ),
        *((("sum.dim_IntList", (MASKS, [dim]))) for dim in (0, 1)),
        ("all.dim", (MASKS, 1)),
        ("nonzero", (MASKS,)),
        ("sort", (SCORES[:, :6], 0)),
        ("min.dim", (SCORES[:, :9], 1)),
        ("multinomial", (SCORES[:, :600] + 1, 3)),
        ("linalg_matrix_exp", (torch.zeros(2, 3, 3),)),
        ("linalg_matrix_exp", (torch.zeros(3, 3),)),
    ]
    for n, (name, values) in enumerate(calls):
        results, _ = program.runs(name, *values, known=False)
        shown = [
            None if one is None else (one.tolist() if one.numel() < 40 else one.numpy())
            for one in results
        ]
        again = called(
            "transformers.generation.utils",
            "sample",
            "x",
            partial(program.runs, name, *values, known=False),
        )
        found[f"{n} {name}"] = [shown, [one is None for one in again[0]]]
    gold(f"guesses_of_rows_{share}", found)


def test_random_numbers_follow_from_the_generator() -> None:
    """With the same seed, a program reads the same numbers again, and none of those of the host."""
    program, drawn = Program(), list[Any]()
    for seed in (1, 1, 2):
        generator = torch.Generator()
        for name, values in {
            "uniform_": (torch.zeros(5), 2.0, 3.0),
            "normal_": (torch.zeros(5), 10.0, 0.01),
            "bernoulli_.float": (torch.zeros(50), 0.5),
            "random_.from": (torch.zeros(5, dtype=torch.int64), 7, 9),
        }.items():
            (found,), _ = program.runs(name, *values, generator.manual_seed(seed))
            drawn.append(found.tolist())
    assert drawn[:4] == drawn[4:8] != drawn[8:]
    for uniform, normal, coins, numbers in (drawn[:4], drawn[8:]):
        assert all(2 <= one < 3 for one in uniform)
        assert all(abs(one - 10) < 1 for one in normal)
        assert {*coins} == {0, 1}
        assert {*numbers} <= {7, 8}
    for tensor in (torch.zeros(1 << 17), torch.zeros(3, dtype=torch.complex64)):
        (found,), _ = program.runs("normal_", tensor, 0.0, 1.0, torch.Generator(), known=False)
        assert found is None


@pytest.mark.parametrize("seed", range(12))
def test_values_are_kept_for_any_view(seed: int) -> None:
    rng = Random(seed)
    copies = HostCopies(torch, Core())
    whole = torch.zeros(rng.randrange(1, 5), rng.randrange(1, 6), dtype=torch.int32)
    there = whole.as_subclass(OnGpu)
    views = [there.t(), there[:, :: rng.randrange(1, 3)], there[rng.randrange(len(whole)) :]]
    view = rng.choice(views)
    values = torch.arange(view.numel(), dtype=torch.int32).reshape(view.shape) + 1
    copies.keep(view, values)
    contiguous = view.numel() == 1 + sum(
        (size - 1) * stride for size, stride in zip(view.shape, view.stride(), strict=True)
    )
    assert copies.knows(view) is contiguous  # else nobody knows what lies between
    copies.keep(there, whole)
    assert torch.equal(copies.get(there), whole)
    copies.keep(view, values)
    assert torch.equal(copies.get(view), values)
    assert int(copies.get(there).sum()) == int(values.sum())
    copies.keep(view, values[:0] if view.numel() else values)
    assert not copies.knows(view)
    copies.keep(there, whole)
    copies.forget(view)
    assert not copies.knows(there)


def test_what_is_followed(gold: Gold) -> None:
    copies = HostCopies(torch, Core())
    found = {}
    for elements in (0, 1, 1 << 16, (1 << 16) + 1, 1 << 20, (1 << 20) + 1):
        for dtype in (torch.int8, torch.bool, torch.float32, torch.complex64):
            tensor = torch.zeros(1, dtype=dtype).expand(elements).as_subclass(OnGpu)
            found[f"{elements} {dtype}"] = [copies.may_have(tensor), copies.is_small(tensor, 5)]
    learned = torch.zeros(2, requires_grad=True).as_subclass(OnGpu)
    found["others"] = [copies.may_have(learned), copies.may_have(torch.zeros(2))]
    gold("followed", found)


NAMES = """
add.Tensor add_.Tensor add.out copy_ fill_.Scalar empty.memory_format empty_like zeros full arange
randn rand uniform_ bernoulli_.float randperm nonzero topk view transpose.int as_strided squeeze t_
detach_ resize_ matmul linear native_batch_norm cudnn_batch_norm index_put_ unique_dim equal
_local_scalar_dense sum all clamp embedding conv2d cat sort.values max.dim_max to_sparse isnan
_sparse_coo_tensor_with_dims_and_tensors rrelu_with_noise scatter_add_ randint
"""


def test_how_operators_are_followed(gold: Gold) -> None:
    follower, found = Program().follower, {}
    for name in NAMES.split():
        short, _, overload = name.partition(".")
        operator = Operator(torch, f"aten::{short}", overload)
        found[name] = {
            "flags": follower._flags(operator),
            "shape": [operator.arguments, operator.results, operator.device, operator.written],
            "traits": [operator.is_view, operator.has_tensors, operator.is_random, operator.out],
        }
        found[name]["described"] = follower._describe(5, f"aten::{short}", overload)
    found["nothing"] = {"described": follower._describe(6, "aten::nothing", "")}
    gold("operators", found)


# --- reads


def called(module: str, name: str, line: str, run: Any, **variables: Any) -> Any:
    """What a function returns that is called in a line of another module, with some variables."""
    file = f"/{module}/program.py"
    source = f"def {name}(run, {', '.join(variables)}):\n    return run()  # {line}\n"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    names: dict[str, Any] = {"__name__": module}
    exec(compile(source, file, "exec"), names)
    return names[name](run, **variables)


@pytest.mark.parametrize(
    ("values", "operators", "size", "given", "read"),
    [
        ({}, "item", 8, {}, 0),
        ({"*": 3}, "item", 8, {}, 3),
        ({"program.py:2": 5}, "item", 4, {}, 5),
        ({"loss": 6, "*": 1}, "item", 2, {}, 6),
        ({"los": 6}, "item", 2, {}, 0),
        ({}, "nonzero", 8, {"usual": 4}, 4),
        ({}, "nonzero_static", 8, {"usual": 4}, 0),
        ({"loss": 9.7}, "masked_select", 8, {"usual": 4}, 9),
        ({"loss": -2}, "unique", 8, {}, 0),
        ({}, "x normal_", 1, {}, 1),
        ({}, "item", 8, {"numbers": [7, 8]}, 7),
        ({"loss": 2}, "item", 8, {"numbers": [7]}, 7),
        ({}, "item", 8, {"assumed": 12}, 12),
        ({"loss": 2}, "item", 8, {"assumed": 12}, 2),
    ],
)
def test_what_a_read_returns(
    values: dict[str, float], operators: str, size: int, given: dict[str, Any], read: int
) -> None:
    """In a line of a program that reads a loss; the type of what is read is that of its size."""
    core: Any = Core(operators, {1: 0, 2: 2, 4: 3, 8: 4}.get(size, 4))
    reads = Reads(core, values, 0, 0.5)
    reads.watch(torch)
    room = ctypes.create_string_buffer(8)
    ends = []
    if "numbers" in given:
        ends.append(reads.answer_until(given["numbers"]))
    if "assumed" in given:
        ends.append(reads.assume_until(given["assumed"]))
    if "usual" in given:
        ends.append(reads.usually_until(2 * given["usual"]))
    noted = reads.note_until()
    called("main", "main", "loss.item()", partial(reads._on_read, ctypes.addressof(room), size))
    assert int.from_bytes(room.raw, "little") == read
    shaped = operators in ("nonzero", "masked_select", "unique")
    noted_numbers = noted()
    assert noted_numbers == ([read] if noted_numbers else [])
    assert bool(noted_numbers) == (shaped or "numbers" in given)
    for end in ends:
        end()
    site = "program.py:2 return run() # loss.item()"
    told = "numbers" in given or "normal_" in operators or ("assumed" in given and not values)
    assert reads.sites == ({} if told else {site: 1})
    assert reads.shapes == ({site: 1} if shaped and "loss" not in values else {})
    assert reads.chosen == (
        not told and any(name in values for name in ("loss", "*", "program.py:2"))
    )
    assert set(reads.unused) <= values.keys()


def test_sites_are_those_of_the_program() -> None:
    for module, function in (("torch.nn", "forward"), ("monai", "__torch_function__")):
        inner = called(module, function, "inner", lambda: call_site(sys._getframe(1)))
        assert inner.startswith("test_inside.py:")  # the first that is not PyTorch's
    outer = called("other", "main", "y" * 90, lambda: call_site(sys._getframe(1)))
    assert outer == "program.py:2 return run() # ..."


# --- the others


def test_workspaces_are_added_to_snapshots() -> None:
    uses = [(4096, 512, 77, 0, 1), (0, 64, 78, 1, 0)]

    def tell(room: Any, _count: Any) -> int:
        for n, use in enumerate(uses if room is not None else ()):
            room[n] = use
        return len(uses)

    def count(counts: Any) -> None:
        counts[1] = 5

    library = SimpleNamespace(
        null_workspace_rules=lambda: b"gemm fft",
        null_workspace_bound=lambda: 9,
        null_workspaces_forgone=lambda: 2,
        null_workspaces=tell,
        null_workspaces_unknown=count,
    )
    found = Workspaces(library)
    told = [(0, 77, 4096, 512, "fft"), (1, 78, 0, 64, "gemm")]
    assert found.uses() == told
    assert (found.unknown(), found.bound()) == ({"fft": 5}, 9)
    assert found.forgone() == 2
    memory = SimpleNamespace(_snapshot=lambda device=None: {"segments": [device]})
    found.watch(SimpleNamespace(cuda=SimpleNamespace(memory=memory)))
    assert memory._snapshot(3) == {"segments": [3], KEY: told}
    uses.clear()
    assert memory._snapshot() == {"segments": [None]}


def test_nvidia_smi(gold: Gold, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = tmp_path / "usage"
    usage.write_bytes(struct.pack("<QQ", 0, 5 << 30))
    card = {"count": 2, "name": "RTX", "memory": 80 << 30, "compute_capability": 89}
    card["usage"] = str(usage)
    monkeypatch.setenv("ALLOCBENCH_NULL", json.dumps({"settings": card}))
    found = {}
    for line in (
        "-L",
        "--list-gpus",
        "--query-gpu=name,memory.total,index,power.draw --format=csv",
        "--query-gpu=gpu_uuid, compute_cap --format=csv,noheader",
        "--query-gpu=memory.used,memory.free,utilization.gpu,utilization.memory --format=csv",
        "--query-gpu=memory.total,count --format=csv,noheader,nounits",
        "--query-gpu=name",
        "--query-gpu=name --format=json",
        "",
    ):
        monkeypatch.setattr(sys, "argv", ["nvidia-smi", *line.replace(", ", ",").split()])
        with redirect_stdout(io.StringIO()) as printed:
            code = nvidia_smi.main()
        found[line] = [code, printed.getvalue()]
    gold("nvidia_smi", found)


@pytest.mark.parametrize("most", [None, 5, 7])
def test_generation_ends_at_its_length(most: int | None) -> None:
    class Criteria:
        max_length = most

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            return input_ids

    class Mixin:
        def _has_unfinished_sequences(self) -> Any:
            return "asked"

        @staticmethod
        def _beam_search_has_unfinished_sequences() -> Any:
            return "beams"

    utils: Any = SimpleNamespace(StoppingCriteriaList=Criteria, GenerationMixin=Mixin)
    known_values.end_at_length(utils)
    known_values.end_at_length(
        SimpleNamespace(StoppingCriteriaList=Criteria, GenerationMixin=object)
    )
    criteria, mixin, told = Criteria(), Mixin(), []
    for length in (4, 5, 6, 7, 4):
        criteria(torch.zeros(2, length), None)
        told.append(
            (mixin._has_unfinished_sequences(), mixin._beam_search_has_unfinished_sequences())
        )
    ended = [most is not None and length >= most for length in (4, 5, 6, 7, 4)]
    assert [one for one, _ in told] == [False if end else "asked" for end in ended]
    assert [one for _, one in told] == ["beams" if most is None or end else True for end in ended]


def test_positions_begin_anew_only_if_they_are_known() -> None:
    masking = SimpleNamespace(find_packed_sequence_indices=lambda ids: ids.shape)
    program, compiling = Program(), False
    known_values.know_packed(masking, lambda: compiling, program.copies)
    known_values.know_packed(SimpleNamespace(), lambda: compiling, program.copies)
    find, there = masking.find_packed_sequence_indices, on_gpu(X)
    assert (find(X), find(there)) == (X.shape, None)
    program.copies.keep(there, X)
    assert find(there) == X.shape
    compiling = True
    assert find(on_gpu(X)) == X.shape
