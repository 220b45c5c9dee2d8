"""The front-ends: a row for each format of files and each kind of Python object.

A row names the function that reads the model as ``module:function``, relative to this package; it
is imported when the first such model is read. A row without one is a format that is recognized and
refused, with a hint of what to give instead. The first row that recognizes a model has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ..lazy import resolve
from .protocols import is_class, is_function, is_jitted, is_staged
from .signatures import (
    MLIR_BYTECODE,
    STABLEHLO,
    is_exported_program,
    is_hlo_proto,
    is_keras,
    is_onnx,
    is_safetensors,
    is_serialized_export,
    is_tflite,
    is_torch_archive,
    never,
    starts_with,
    text_matches,
)

Shapes: TypeAlias = Mapping[str | int, Sequence[int | None]]
"""Sizes of inputs, by name or place; None leaves a size as the model has it."""

Values: TypeAlias = Mapping[str | int, Any]
"""Values of inputs, by name or place, that will be constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFrontend:
    """A format of files.

    ``recognizes`` is asked with the first bytes of a file (``HEAD`` or more). A file that no row
    recognizes goes by its name's ``endings``; a folder is recognized by a file ``folder`` in it.
    ``read(content, source)`` returns an ``HloModule``, or an ``Imported`` where the model has
    weights or names of its own; the content is a string if ``text`` is set, else bytes. With
    ``opens`` it is ``read(path)``: the model may lie in several files, which the reader opens. With
    ``sized`` the reader has a keyword ``shapes`` (``Shapes``), since models of this format leave
    sizes open; with ``valued`` it has a keyword ``values`` (``Values``), since shapes may depend on
    inputs. ``hint`` says how such a file is made, or, where the format is refused, what to do
    instead. ``family`` is the form that other runtimes take such a model in, ``hlo``, ``onnx`` or
    ``torch``, and ``declares`` the function of the model that returns the sizes of its inputs, with
    None for those that it leaves open (``declared.Declared``).
    """

    name: str
    recognizes: Callable[[bytes], bool]
    read: str = ""
    hint: str = ""
    endings: tuple[str, ...] = ()
    text: bool = False
    opens: bool = False
    folder: str = ""
    sized: bool = False
    valued: bool = False
    family: str = ""
    declares: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFrontend:
    """A kind of Python object.

    ``read(model, example)`` returns an ``HloModule`` or an ``Imported``; ``example`` is None unless
    ``takes_example`` is set: then it is a tuple of arguments, or None. ``sized``, ``valued``,
    ``family`` and ``declares`` are as for files.
    ``hint`` is what a user writes to give such a model, or, where it is refused, what to do
    instead.
    """

    name: str
    recognizes: Callable[[object], bool]
    read: str = ""
    hint: str = ""
    takes_example: bool = False
    sized: bool = False
    valued: bool = False
    family: str = ""
    declares: str = ""


def instance_of(package: str, *names: str) -> Callable[[object], bool]:
    """Return a predicate: true for instances of classes of a package, which is not imported."""

    def recognizes(model: object) -> bool:
        return any(
            c.__name__ in names and c.__module__.split(".")[0] == package
            for c in type(model).__mro__
        )

    return recognizes


def method_of(package: str, *names: str) -> Callable[[object], bool]:
    """Return a predicate: true for methods of instances of classes of a package."""
    is_owner = instance_of(package, *names)
    return lambda model: is_owner(getattr(model, "__self__", None))


_UNPACK = "unpack it first"
_PICKLE = "pickles are never read; export the model"
_TORCH = "weights alone are no model; torch.export.save(torch.export.export(model, args), path)"
_TFLITE = "give the model that it was made of: a .keras file, or the folder of a SavedModel"

FILES: tuple[FileFrontend, ...] = (
    FileFrontend(
        name="HLO text",
        recognizes=text_matches(rb"HloModule"),
        read="..hlo.text.parser:parse",
        hint='jax.jit(f).lower(*args).as_text("hlo")',
        endings=(".hlo", ".txt"),
        text=True,
        family="hlo",
    ),
    FileFrontend(
        name="StableHLO text",
        recognizes=text_matches(STABLEHLO),
        read=".stablehlo.reader:parse",
        hint="jax.jit(f).lower(*args).as_text()",
        endings=(".mlir",),
        text=True,
        sized=True,
        family="hlo",
        declares=".stablehlo.declared:of_file",
    ),
    FileFrontend(
        name="StableHLO bytecode",
        recognizes=starts_with(MLIR_BYTECODE),
        read=".stablehlo.bytecode:parse",
        hint="jax.export.export(jax.jit(f))(*args).mlir_module_serialized",
        endings=(".mlirbc",),
        sized=True,
        family="hlo",
        declares=".stablehlo.bytecode:of_file",
    ),
    FileFrontend(name="an object file", recognizes=starts_with(b"\x7fELF")),
    FileFrontend(name="a gzip archive", recognizes=starts_with(b"\x1f\x8b"), hint=_UNPACK),
    FileFrontend(name="a bzip2 archive", recognizes=starts_with(b"BZh"), hint=_UNPACK),
    FileFrontend(name="an xz archive", recognizes=starts_with(b"\xfd7zXZ"), hint=_UNPACK),
    FileFrontend(name="a zstd archive", recognizes=starts_with(b"\x28\xb5\x2f\xfd"), hint=_UNPACK),
    FileFrontend(name="an HDF5 file (Keras weights?)", recognizes=starts_with(b"\x89HDF")),
    FileFrontend(
        name="a NumPy array",
        recognizes=starts_with(b"\x93NUMPY"),
        hint="arrays are inputs, not models",
    ),
    FileFrontend(
        name="a Python pickle",
        recognizes=starts_with(b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        hint=_PICKLE,
    ),
    FileFrontend(name="LLVM bitcode", recognizes=starts_with(b"BC\xc0\xde")),
    FileFrontend(name="LLVM IR", recognizes=starts_with(b"; ModuleID")),
    FileFrontend(name="JSON", recognizes=starts_with(b"{")),
    FileFrontend(
        name="a PyTorch program",
        recognizes=is_exported_program,
        read=".torch.archive:read",
        hint="torch.export.save(torch.export.export(model, args), path)",
        endings=(".pt2",),
        opens=True,
        sized=True,
        family="torch",
        declares=".torch.archive:declared",
    ),
    FileFrontend(name="a saved torch model", recognizes=is_torch_archive, hint=_TORCH),
    FileFrontend(
        name="a Keras model",
        recognizes=is_keras,
        read=".keras.archive:read",
        hint="model.save(path)",
        endings=(".keras",),
        opens=True,
        sized=True,
        declares=".keras.declared:of_file",
    ),
    FileFrontend(
        name="a zip archive (a built model cut short? an npz file?)",
        recognizes=starts_with(b"PK\x03\x04"),
    ),
    FileFrontend(name="a TensorFlow Lite model", recognizes=is_tflite, hint=_TFLITE),
    FileFrontend(
        name="what jax.export serialized",
        recognizes=is_serialized_export,
        hint="give what jax.export.deserialize returns, or its mlir_module_serialized (.mlirbc)",
    ),
    FileFrontend(
        name="an ONNX model",
        recognizes=is_onnx,
        read=".onnx.reader:read",
        hint="torch.onnx.export(model, args, path)",
        endings=(".onnx",),
        opens=True,
        sized=True,
        valued=True,
        family="onnx",
        declares=".onnx.declared:of_file",
    ),
    FileFrontend(
        name="a safetensors file",
        recognizes=is_safetensors,
        hint="arrays are constants, not models",
    ),
    FileFrontend(
        name="a SavedModel",
        recognizes=never,
        read=".tensorflow.saved_model:read",
        hint="tf.saved_model.save(model, folder)",
        opens=True,
        folder="saved_model.pb",
        sized=True,
    ),
    FileFrontend(
        name="an HLO proto",
        recognizes=is_hlo_proto,
        read=".hlo_proto.reader:parse",
        hint='jax.jit(f).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()',
        endings=(".pb", ".hlo_pb", ".hlo_proto", ".binpb"),
        family="hlo",
    ),
)

OBJECTS: tuple[ObjectFrontend, ...] = (
    ObjectFrontend(
        name="a class",
        recognizes=is_class,
        hint="give an instance of it",
    ),
    ObjectFrontend(
        name="a Keras model",
        recognizes=instance_of("keras", "Model", "Layer"),
        read=".keras.model:convert",
        hint="a Keras model with example= or shapes=",
        takes_example=True,
        sized=True,
        declares=".keras.declared:of_model",
    ),
    ObjectFrontend(
        name="a PyTorch module",
        recognizes=instance_of("torch", "Module"),
        read=".torch.export:module",
        hint="a torch.nn.Module with example=",
        takes_example=True,
        family="torch",
    ),
    ObjectFrontend(
        name="a method of a PyTorch module",
        recognizes=method_of("torch", "Module"),
        hint="give the module itself; another method: make it the forward of a module",
    ),
    ObjectFrontend(
        name="an exported PyTorch program",
        recognizes=instance_of("torch", "ExportedProgram"),
        read=".torch.export:exported",
        hint="torch.export.export(model, args)",
        sized=True,
        family="torch",
        declares=".torch.open_programs:declared",
    ),
    ObjectFrontend(
        name="an ONNX model",
        recognizes=instance_of("onnx", "ModelProto"),
        read=".onnx.reader:convert",
        hint="onnx.load(path)",
        takes_example=True,
        sized=True,
        valued=True,
        family="onnx",
        declares=".onnx.declared:of_proto",
    ),
    ObjectFrontend(
        name="a concrete function of TensorFlow",
        recognizes=instance_of("tensorflow", "ConcreteFunction"),
        read=".tensorflow.functions:concrete",
        hint="tf.function(f).get_concrete_function(...)",
        takes_example=True,
        sized=True,
    ),
    ObjectFrontend(
        name="a tf.function",
        recognizes=instance_of("tensorflow", "Function"),
        read=".tensorflow.functions:traced",
        hint="tf.function(f) with example=",
        takes_example=True,
        sized=True,
    ),
    ObjectFrontend(
        name="a module of TensorFlow",
        recognizes=instance_of("tensorflow", "Module", "AutoTrackable"),
        read=".tensorflow.functions:module",
        hint="a tf.Module with example=",
        takes_example=True,
        sized=True,
    ),
    ObjectFrontend(
        name="a function of nw.jit",
        recognizes=is_jitted,
        read=".jax.lower:jitted_model",
        hint="nw.jit(f) with example=",
        takes_example=True,
        family="hlo",
    ),
    ObjectFrontend(
        name="what JAX traced, lowered or exported",
        recognizes=is_staged,
        read=".jax.lower:staged_model",
        hint="jax.jit(f).lower(x)",
        sized=True,
        family="hlo",
        declares=".stablehlo.declared:of_staged",
    ),
    ObjectFrontend(
        name="what JAX compiled",
        recognizes=instance_of("jax", "Compiled"),
        hint="give what it was compiled from: jax.jit(f).lower(x)",
    ),
    ObjectFrontend(
        name="a jaxpr",
        recognizes=instance_of("jax", "ClosedJaxpr", "Jaxpr"),
        hint="give the function that it was made of, with example=, or jax.jit(f).trace(x)",
    ),
    ObjectFrontend(
        name="a JAX function",
        recognizes=is_function,
        read=".jax.calls:function_model",
        hint="a JAX function with example=",
        takes_example=True,
        family="hlo",
    ),
)


def reader(
    row: FileFrontend | ObjectFrontend, shapes: Shapes | None = None, values: Values | None = None
) -> Callable[..., Any]:
    """Return the function that reads what a row recognizes; import its module if need be.

    It is bound to ``shapes`` if the row is ``sized``, and to ``values`` if it is ``valued``.
    """
    found: Callable[..., Any] = resolve(row.read, __package__)
    if row.sized and shapes:
        found = partial(found, shapes=shapes)
    return partial(found, values=values) if row.valued and values else found


def alternatives(parts: Iterable[str]) -> str:
    """Return ``a, b or c``."""
    *first, last = parts
    return f"{', '.join(first)} or {last}" if first else last


def readable_files() -> str:
    """Return the names of the formats that are read, as in "HLO text or an HLO proto"."""
    return alternatives(row.name for row in FILES if row.read)
