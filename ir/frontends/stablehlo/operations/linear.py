"""Products, windows, gathers and scatters, linear algebra and random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....hlo.nodes import ConvLabels, Raw, Shape, Window, WindowDim
from ..mlir.syntax import Dialect
from .plain import array_of, operands
from .to_hlo import Handler, OpSite, Results

PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")
"""Words of ``precision_config``."""


def precision(site: OpSite) -> dict[str, Any]:
    """``operand_precision`` where it is not the default."""
    config = site.op.attrs.get("precision_config", ())
    words = [v.fields.get("", "") if isinstance(v, Dialect) else v for v in config or ()]
    for word in words:
        if word not in PRECISIONS:
            site.fail(f"precision {word} is not one of {', '.join(PRECISIONS)}")
    if all(w == "DEFAULT" for w in words):
        return {}
    return {"operand_precision": Raw("{" + ",".join(words).lower() + "}")}


def dot_general(site: OpSite) -> Results:
    """Make a ``dot``; older texts give its dimension numbers as attributes of the operation."""
    operands(site, 2)
    names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
    fields = (
        site.fields("dot_dimension_numbers")
        if "dot_dimension_numbers" in site.op.attrs
        else site.op.attrs
    )
    found = [site.as_ints(fields.get(f"{n}_dimensions", ()), n) for n in names]
    attrs: dict[str, Any] = {}
    if found[0] or found[1]:
        attrs.update(lhs_batch_dims=found[0], rhs_batch_dims=found[1])
    attrs.update(lhs_contracting_dims=found[2], rhs_contracting_dims=found[3])
    return site.make("dot", site.operands, **attrs, **precision(site))


def dot(site: OpSite) -> Results:
    """The older form: the last dimension of the left, the first of the right."""
    operands(site, 2)
    last = array_of(site, 0).rank - 1
    if last < 0:
        site.fail("a product of scalars")
    dims = {"lhs_contracting_dims": (last,), "rhs_contracting_dims": (0,)}
    return site.make("dot", site.operands, **dims, **precision(site))


_RAGGED = {
    "lhs_batch_dims": "lhs_batching_dimensions",
    "rhs_batch_dims": "rhs_batching_dimensions",
    "lhs_contracting_dims": "lhs_contracting_dimensions",
    "rhs_contracting_dims": "rhs_contracting_dimensions",
    "lhs_ragged_dims": "lhs_ragged_dimensions",
    "rhs_group_dims": "rhs_group_dimensions",
}


def ragged_dot(site: OpSite) -> Results:
    """Make a ``ragged-dot``; a composite has its dimension numbers as a list."""
    operands(site, 3)
    given = site.op.attrs.get("composite_attributes", site.op.attrs)
    numbers = given.get("ragged_dot_dimension_numbers") if isinstance(given, Mapping) else None
    if isinstance(numbers, tuple) and len(numbers) == len(_RAGGED):
        fields: Mapping[str, Any] = dict(zip(_RAGGED.values(), numbers, strict=True))
    else:
        fields = site.fields("ragged_dot_dimension_numbers")
    found = {k: site.as_ints(fields.get(name, ()), name) for k, name in _RAGGED.items()}
    attrs = {k: dims for k, dims in found.items() if dims or k.endswith("contracting_dims")}
    return site.make("ragged-dot", site.operands, **attrs, **precision(site))


def window(
    site: OpSite,
    sizes: tuple[int, ...],
    names: Mapping[str, str],
    padding: tuple[int, ...] | None = None,
) -> Window:
    """Sizes with the other numbers of a window, each of them at its default where it is absent."""
    rank = len(sizes)

    def column(key: str, default: int, width: int = 1) -> tuple[int, ...]:
        values = site.ints(names[key], (default,) * (rank * width)) if key in names else ()
        values = values or (default,) * (rank * width)
        if len(values) != rank * width:
            site.fail(f"`{names[key]}` has {len(values)} numbers, the window {rank} dimensions")
        return values

    pads = column("padding", 0, 2) if padding is None else padding
    if len(pads) != 2 * rank:
        site.fail(f"its padding has {len(pads)} numbers, the window {rank} dimensions")
    reversal = site.op.attrs.get("window_reversal") or (False,) * rank
    flags = site.as_ints(reversal, "window_reversal")
    if len(flags) != rank:
        site.fail(f"`window_reversal` has {len(flags)} values, the window {rank} dimensions")
    columns = (column("strides", 1), column("base", 1), column("dilation", 1))
    return tuple(
        WindowDim(size, stride, pads[2 * k], pads[2 * k + 1], base, dilation, bool(flags[k]))
        for k, (size, stride, base, dilation) in enumerate(zip(sizes, *columns, strict=True))
    )


CONVOLUTION = {
    "strides": "window_strides",
    "padding": "padding",
    "base": "lhs_dilation",
    "dilation": "rhs_dilation",
}
WINDOW = {
    "strides": "window_strides",
    "padding": "padding",
    "base": "base_dilations",
    "dilation": "window_dilations",
}


def convolution(site: OpSite) -> Results:
    """Make a ``convolution`` with the padding of its attribute."""
    operands(site, 2)
    return convolve(site, None)


def convolve(site: OpSite, padding: tuple[int, ...] | None) -> Results:
    """A convolution of the first two operands; the padding may be given apart."""
    labels, kernel = site.attr("dimension_numbers"), array_of(site, 1)
    if (dtype := array_of(site, 0).dtype) != kernel.dtype:
        site.fail(f"its operands are {dtype} and {kernel.dtype}, of one type in StableHLO")
    if not isinstance(labels, ConvLabels) or kernel.rank != len(labels.rhs_spatial) + 2:
        site.fail("its dimension numbers do not fit its operands")
    sizes = tuple(kernel.dims[d] for d in labels.rhs_spatial)
    return site.make(
        "convolution",
        site.operands[:2],
        window=window(site, sizes, CONVOLUTION, padding),
        dim_labels=labels,
        feature_group_count=site.integer("feature_group_count", 1),
        batch_group_count=site.integer("batch_group_count", 1),
        **precision(site),
    )


def reduce_window(site: OpSite) -> Results:
    """Make a ``reduce-window`` of one or several arrays."""
    sizes = site.ints("window_dimensions")
    reducer = site.scalars(site.region(0), "window")
    value = site.make(
        "reduce-window",
        site.operands,
        window=window(site, sizes, WINDOW),
        to_apply=reducer,
    )
    return site.results(value)


def select_and_scatter(site: OpSite) -> Results:
    """Make a ``select-and-scatter``; its window is 1 in each dimension by default."""
    operands(site, 3)
    rank = array_of(site, 0).rank
    sizes = site.ints("window_dimensions", (1,) * rank)
    select = site.scalars(site.region(0), "select")
    scatter = site.scalars(site.region(1), "scatter")
    cut = window(site, sizes, {"strides": "window_strides", "padding": "padding"})
    return site.make(
        "select-and-scatter", site.operands, window=cut, select=select, scatter=scatter
    )


def _numbers(site: OpSite, attr: str, required: str, optional: str) -> dict[str, Any]:
    """Dimension numbers; lists that are only for batches are left out when empty."""
    fields = site.fields(attr)
    found: dict[str, Any] = {n: site.as_ints(fields.get(n, ()), n) for n in required.split()}
    for name in optional.split():
        if values := site.as_ints(fields.get(name, ()), name):
            found[name] = values
    vector = fields.get("index_vector_dim", 0)
    if not isinstance(vector, int):
        site.fail("`index_vector_dim` is not an integer")
    found["index_vector_dim"] = int(vector)
    return found


GATHER = (
    "dimension_numbers",
    "offset_dims collapsed_slice_dims start_index_map",
    "operand_batching_dims start_indices_batching_dims",
)
SCATTER = (
    "scatter_dimension_numbers",
    "update_window_dims inserted_window_dims scatter_dims_to_operand_dims",
    "input_batching_dims scatter_indices_batching_dims",
)


def gather(site: OpSite) -> Results:
    """Make a ``gather`` with the slice sizes of its attribute."""
    return gather_of(site, site.ints("slice_sizes"))


def gather_of(site: OpSite, sizes: tuple[int, ...]) -> Results:
    """Make a ``gather`` of the first two operands with the given slice sizes."""
    attrs = _numbers(site, *GATHER)
    if site.flag("indices_are_sorted"):
        attrs["indices_are_sorted"] = True
    return site.make("gather", site.operands[:2], slice_sizes=sizes, **attrs)


def scatter(site: OpSite) -> Results:
    """Make a ``scatter`` of one or several arrays."""
    attrs = _numbers(site, *SCATTER)
    for name in ("indices_are_sorted", "unique_indices"):
        if site.flag(name):
            attrs[name] = True
    combiner = site.scalars(site.region(0), "combine")
    return site.results(site.make("scatter", site.operands, **attrs, to_apply=combiner))


def fft(site: OpSite) -> Results:
    """Make an ``fft``."""
    kind, length = site.word("fft_type"), site.ints("fft_length")
    return site.make("fft", operands(site, 1), fft_type=kind, fft_length=length)


def cholesky(site: OpSite) -> Results:
    """Make a ``cholesky``."""
    return site.make("cholesky", operands(site, 1), lower=site.flag("lower"))


def triangular_solve(site: OpSite) -> Results:
    """Make a ``triangular-solve``."""
    attrs: dict[str, Any] = {n: site.flag(n) for n in ("left_side", "lower", "unit_diagonal")}
    attrs["transpose_a"] = site.word("transpose_a", "NO_TRANSPOSE")
    if attrs["transpose_a"] == "TRANSPOSE_INVALID":
        attrs["transpose_a"] = "NO_TRANSPOSE"
    return site.make("triangular-solve", operands(site, 2), **attrs)


ALGORITHMS = {"DEFAULT": "rng_default", "THREE_FRY": "rng_three_fry", "PHILOX": "rng_philox"}


def rng_bit_generator(site: OpSite) -> Results:
    """Make an ``rng-bit-generator``, whose results are the new state and the bits."""
    value = site.make("rng-bit-generator", operands(site, 1), algorithm=algorithm(site))
    return site.results(value)


def algorithm(site: OpSite) -> str:
    """Return HLO's name of the attribute ``rng_algorithm``."""
    word = site.word("rng_algorithm")
    if word not in ALGORITHMS:
        site.fail(f"`{word}` is not an algorithm", f"known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[word]


def rng(site: OpSite) -> Results:
    """Random numbers of a distribution; the third operand is the shape of the result."""
    low, high, size = operands(site, 3)
    word = site.word("rng_distribution")
    if word not in ("UNIFORM", "NORMAL"):
        site.fail(f"`{word}` is not a distribution", "known: UNIFORM, NORMAL")
    known = site.builder.known(size)
    shape = site.element()
    if known is not None:
        shape = Shape(shape.dtype, tuple(int(n) for n in known.reshape(-1)))
    else:
        shape = site.array()
    return site.add("rng", shape, [low, high], distribution=f"rng_{word.lower()}")


def batch_norm(site: OpSite) -> Results:
    """Make a batch normalization for training or inference, or its gradient."""
    opcode = site.op.name.partition(".")[2].replace("_", "-")
    epsilon = site.attr("epsilon")
    if not isinstance(epsilon, int | float):
        site.fail("attribute `epsilon` is not a number")
    index = site.integer("feature_index")
    attrs: dict[str, Any] = {"epsilon": float(epsilon), "feature_index": index}
    return site.results(site.make(opcode, site.operands, **attrs))


TABLE: Mapping[str, Handler] = {
    "dot_general": dot_general,
    "dot": dot,
    "convolution": convolution,
    "reduce_window": reduce_window,
    "select_and_scatter": select_and_scatter,
    "gather": gather,
    "scatter": scatter,
    "fft": fft,
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "rng_bit_generator": rng_bit_generator,
    "rng": rng,
    "batch_norm_training": batch_norm,
    "batch_norm_inference": batch_norm,
    "batch_norm_grad": batch_norm,
}
"""By the operation's name in the dialects StableHLO and MHLO."""
