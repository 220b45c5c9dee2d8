"""Operators that are refused by name, each with the reason; ``docs/torch.md`` lists them."""

from __future__ import annotations

_RANDOM = "its numbers come from torch's generator"
_VALUE = "it hands a value to Python"
_SPARSE = "sparse arrays are not compiled"
_LIBRARY = "torch computes it with a routine of LAPACK that compiled code does not call"
_HISTOGRAM = "histograms are not compiled"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "aten.rand",
            "aten.randn",
            "aten.randint",
            "aten.randperm",
            "aten.rand_like",
            "aten.randn_like",
            "aten.randint_like",
            "aten.bernoulli",
            "aten.bernoulli_",
            "aten.native_dropout",
            "aten.multinomial",
            "aten.normal",
            "aten.normal_functional",
            "aten.uniform",
            "aten.uniform_",
            "aten.exponential",
            "aten.geometric",
            "aten.cauchy",
            "aten.log_normal",
            "aten.poisson",
            "aten.rrelu_with_noise",
            "prims.normal",
            "prims.uniform",
            "prims._uniform_helper",
        ),
        _RANDOM,
    ),
    **dict.fromkeys(("aten.equal", "aten.allclose", "aten.is_nonzero"), _VALUE),
    **dict.fromkeys(
        ("aten._to_sparse", "aten._spdiags", "aten.sparse_coo_tensor", "aten._sparse_mm"), _SPARSE
    ),
    **dict.fromkeys(
        (
            "aten.linalg_eig",
            "aten.linalg_lstsq",
            "aten.linalg_ldl_factor_ex",
            "aten.linalg_ldl_solve",
            "aten.geqrf",
            "aten.ormqr",
            "aten.linalg_householder_product",
        ),
        _LIBRARY,
    ),
    **dict.fromkeys(
        (
            "aten.histogram",
            "aten._histogramdd_bin_edges",
            "aten._histogramdd_from_bin_cts",
            "aten._histogramdd_from_bin_tensors",
        ),
        _HISTOGRAM,
    ),
    "aten.copy_": "it writes to a tensor that the graph is given",
    "aten._linalg_check_errors": "it raises errors that depend on values",
    "aten.hash_tensor": "it hashes bits for debugging",
}
"""By an overload's name, or by a name for all its overloads."""
