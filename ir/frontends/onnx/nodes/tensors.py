"""Arrays that a model carries: tensors in the file, beside it, and sparse ones.

Data beside the model is mapped, not read, and only from regular files inside the model's folder:
a path that is absolute, climbs out or leads out by a link is refused, whatever else is in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ....arrays import Array
from ....dtypes import to_numpy
from ....errors import ParseError
from ....hlo.limits import require_bytes
from .package import import_onnx
from .types import element_type

EXTERNAL = 1  # TensorProto.EXTERNAL


def tensor_array(tensor: Any, folder: Path | None, where: str) -> Array:
    """Return the array of a ``TensorProto``, row-major; a view of its bytes where these allow it.

    ``folder`` is the model's, None where it has none. ``ParseError`` for data that does not fit
    the dims, or lies outside the folder; ``UnsupportedError`` for strings.
    """
    dtype = element_type(tensor.data_type, where)
    dims = tuple(tensor.dims)
    if any(d < 0 for d in dims):
        raise ParseError("a tensor with a negative dimension", f"{list(dims)}", where)
    count = 1
    for d in dims:
        count *= d
    require_bytes(count * dtype.bytes, "the tensor", where)
    if tensor.data_location == EXTERNAL:
        packed = _beside(tensor, folder, where)
        needed = -(-count * dtype.bits // 8)
        if len(packed) != needed:
            _misfit(f"{len(packed)} bytes of data", dims, f"{needed} bytes", where)
        if dtype.bits >= 8:
            return packed.view(to_numpy(dtype)).reshape(dims)
        tensor = _inside(tensor, packed.tobytes())
    try:
        found: Array = import_onnx("numpy_helper").to_array(tensor)
    except (ValueError, TypeError, OverflowError) as e:
        raise ParseError("a tensor whose data does not fit its dims", str(e), where) from None
    if found.shape != dims:
        _misfit(f"{found.size} elements", dims, f"{count}", where)
    return found


def sparse_array(sparse: Any, folder: Path | None, where: str) -> Array:
    """Return a ``SparseTensorProto`` as a dense array."""
    values = tensor_array(sparse.values, folder, where)
    places = tensor_array(sparse.indices, folder, where)
    dims = tuple(sparse.dims)
    count = 1
    for d in dims:
        count *= d
    if any(d < 0 for d in dims) or count > max(1 << 24, 64 * values.size):
        raise ParseError("a sparse tensor that is too large to be made dense", str(dims), where)
    dense = np.zeros(dims, values.dtype)
    try:
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), dims)
        if flat.size and flat.min() < 0:
            raise IndexError("a negative index")
        dense.reshape(-1)[flat] = values
    except (IndexError, ValueError) as e:
        raise ParseError("a sparse tensor whose indices do not fit it", str(e), where) from None
    return dense


def _inside(tensor: Any, data: bytes) -> Any:
    """The same tensor with its data in it."""
    kind = type(tensor)
    return kind(data_type=tensor.data_type, dims=tensor.dims, raw_data=data)


def _misfit(has: str, dims: tuple[int, ...], needed: str, where: str) -> None:
    why = f"it has {has}, and dims {list(dims)} take {needed}"
    raise ParseError("a tensor whose data does not fit its dims", why, where)


def _beside(tensor: Any, folder: Path | None, where: str) -> Array:
    """The bytes of a tensor that lie in a file beside the model, mapped."""
    told = {e.key: e.value for e in tensor.external_data}
    path = _place(told.get("location", ""), folder, where)
    try:
        size = path.stat().st_size
        start = int(told.get("offset") or 0)
        length = int(told["length"]) if told.get("length") else size - start
    except (OSError, ValueError) as e:
        raise ParseError("external data cannot be read", str(e), where) from None
    if start < 0 or length < 0 or start + length > size:
        why = f"bytes {start} to {start + length} of {path.name}, which has {size}"
        raise ParseError("external data beyond the end of its file", why, where)
    if not length:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, "r", start, (length,))


def _place(location: str, folder: Path | None, where: str) -> Path:
    """The file that a model names; ``ParseError`` unless it is one inside the model's folder."""
    what = f"external data at {location!r}"
    if folder is None:
        hint = "give the path of the model, or load the data with onnx.load_external_data_for_model"
        raise ParseError(what, "the model has no folder to look in", where, hint)
    if not location or "\0" in location or os.path.isabs(location):
        raise ParseError(what, "is no path relative to the model", where)
    home = folder.resolve()
    try:
        found = (home / location).resolve()
        is_file = found.is_file()
    except (OSError, RuntimeError) as e:  # of a name that is too long, and of links in a circle
        raise ParseError(what[:200], f"cannot be looked up: {type(e).__name__}", where) from None
    if not found.is_relative_to(home):
        hint = "copy the model and its data into one folder"
        raise ParseError(what, "lies outside the model's folder", where, hint)
    if not is_file:
        raise ParseError(what, "no such file beside the model", where)
    return found
